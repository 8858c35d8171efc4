#include "worker/daemon/report_tail.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace lynx::worker {
namespace {

class TailTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/lynx-tail-test-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    path_ = folder_ + "/file";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Append(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }
  void AppendSteps(int64_t first, int64_t count) {
    std::string text;
    for (int64_t step = first; step < first + count; ++step) {
      text += RankReportLine(StepReport{.step = step, .loss = 1, .gradient_norm = 1, .lr = 1}) + "\n";
    }
    Append(text);
  }
  ReportTail Tail() const { return ReportTail(path_, {JobId("j"), Generation(1), 0}); }

  std::string folder_;
  std::string path_;
};

std::vector<int64_t> Sequences(ReportTail& tail) {
  std::vector<int64_t> sequences;
  while (const NumberedReport* report = tail.Next()) sequences.push_back(report->sequence);
  return sequences;
}

using Numbers = std::vector<int64_t>;

TEST_F(TailTest, FileTailGivesWholeLinesOnly) {
  FileTail tail(path_);
  EXPECT_TRUE(tail.Read(1000).empty());
  Append("one\ntw");
  EXPECT_EQ(tail.Read(1000), std::vector<std::string>{"one"});
  EXPECT_EQ(tail.Unread(), 0);
  Append("o\n\nfour");
  EXPECT_EQ(tail.Read(1000), (std::vector<std::string>{"two", ""}));
  EXPECT_EQ(tail.TakeRest(), "four");
  EXPECT_EQ(tail.TakeRest(), "");
}

TEST_F(TailTest, FileTailReadsInPiecesAndSkips) {
  FileTail tail(path_);
  Append("0123456789\nabc\n");
  EXPECT_TRUE(tail.Read(4).empty());
  EXPECT_EQ(tail.Unread(), 11);
  EXPECT_EQ(tail.Read(8), std::vector<std::string>{"0123456789"});
  Append("def\n");
  EXPECT_EQ(tail.SkipTo(4), 3);
  EXPECT_EQ(tail.Read(1000), std::vector<std::string>{"def"});
  EXPECT_EQ(tail.SkipTo(4), 0);
}

TEST_F(TailTest, FileEndIsBounded) {
  EXPECT_EQ(FileEnd(path_, 10), "");
  Append("0123456789");
  EXPECT_EQ(FileEnd(path_, 4), "6789");
  EXPECT_EQ(FileEnd(path_, 100), "0123456789");
}

TEST_F(TailTest, ReportsAreNumberedAndGivenOnce) {
  ReportTail tail = Tail();
  AppendSteps(0, 3);
  EXPECT_FALSE(tail.Drained());
  EXPECT_EQ(tail.Read().size(), 3u);
  EXPECT_TRUE(tail.HasNext());
  EXPECT_EQ(Sequences(tail), (Numbers{1, 2, 3}));
  EXPECT_TRUE(tail.Drained());
  AppendSteps(3, 1);
  EXPECT_FALSE(tail.Drained());
  tail.Read();
  EXPECT_EQ(Sequences(tail), (Numbers{4}));
}

TEST_F(TailTest, WhatIsNotAcknowledgedComesAgainAfterRewind) {
  ReportTail tail = Tail();
  AppendSteps(0, 5);
  tail.Read();
  Sequences(tail);
  tail.Acknowledge(2);
  EXPECT_FALSE(tail.HasNext());
  tail.Rewind();
  EXPECT_EQ(Sequences(tail), (Numbers{3, 4, 5}));
  // An acknowledgement with a smaller number has no effect after one with a larger number.
  tail.Acknowledge(1);
  tail.Acknowledge(5);
  tail.Rewind();
  EXPECT_FALSE(tail.HasNext());
}

TEST_F(TailTest, AnAcknowledgementBetweenTwoSendsKeepsTheOrder) {
  ReportTail tail = Tail();
  AppendSteps(0, 6);
  tail.Read();
  for (int i = 0; i < 4; ++i) tail.Next();
  tail.Acknowledge(3);
  EXPECT_EQ(Sequences(tail), (Numbers{5, 6}));
  tail.Rewind();
  EXPECT_EQ(Sequences(tail), (Numbers{4, 5, 6}));
}

TEST_F(TailTest, AnAcknowledgementAheadOfTheFileSkipsWhatItCovers) {
  ReportTail tail = Tail();
  tail.Acknowledge(4);
  AppendSteps(0, 6);
  EXPECT_EQ(tail.Read().size(), 6u);
  EXPECT_EQ(Sequences(tail), (Numbers{5, 6}));
}

TEST_F(TailTest, DamagedLinesAreNumberedAndLeftOut) {
  ReportTail tail = Tail();
  AppendSteps(0, 1);
  Append("{\"no report\n\n");
  AppendSteps(1, 1);
  Append(RankReportLine(RankDone{2}));  // the line end of this report is missing
  EXPECT_EQ(tail.Read().size(), 2u);
  EXPECT_EQ(Sequences(tail), (Numbers{1, 4}));
  EXPECT_TRUE(tail.Drained());
  Append("\n");
  tail.Read();
  EXPECT_EQ(Sequences(tail), (Numbers{5}));
}

TEST_F(TailTest, ReadingPausesWhenTheServerAcknowledgesNothing) {
  ReportTail tail = Tail();
  const int64_t count = static_cast<int64_t>(ReportTail::kWindow) + 12'000;
  AppendSteps(0, count);
  for (int i = 0; i < 100; ++i) tail.Read();
  const size_t held = Sequences(tail).size();
  EXPECT_GE(held, ReportTail::kWindow);
  EXPECT_LT(held, static_cast<size_t>(count));
  EXPECT_FALSE(tail.Drained());
  // The other reports arrive when the earlier ones are acknowledged.
  int64_t last = static_cast<int64_t>(held);
  while (!tail.Drained()) {
    tail.Acknowledge(last);
    tail.Read();
    for (const int64_t sequence : Sequences(tail)) EXPECT_EQ(sequence, ++last);
  }
  EXPECT_EQ(last, count);
}

TEST_F(TailTest, FinalReportIsTheLastThatEndsARank) {
  EXPECT_FALSE(FinalReport(path_).has_value());
  AppendSteps(0, 2000);
  EXPECT_FALSE(FinalReport(path_).has_value());
  Append(RankReportLine(RankFailure{"why", true}) + "\n" + "damaged\n{\"partial");
  EXPECT_EQ(FinalReport(path_), RankReport(RankFailure{"why", true}));
}

TEST_F(TailTest, FinalReportNeedsItsWholeLine) {
  Append(RankReportLine(RankDone{1}));
  EXPECT_FALSE(FinalReport(path_).has_value());
}

TEST_F(TailTest, LogLinesAreTakenInOrderAndBounded) {
  LogTail log(path_);
  Append("a\nb\nc\nrest");
  log.Read();
  EXPECT_EQ(log.Take(2), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(log.Take(2), std::vector<std::string>{"c"});
  EXPECT_FALSE(log.HasLines());
  log.Finish();
  EXPECT_EQ(log.Take(2), std::vector<std::string>{"rest"});
}

TEST_F(TailTest, LogPassesOverWhatIsTooMuch) {
  LogTail log(path_);
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "line " + std::to_string(i) + "\n";
  Append(text);
  log.Finish();
  const std::vector<std::string> lines = log.Take(100'000);
  EXPECT_LE(lines.size(), 1000u);
  EXPECT_EQ(lines.back(), "line 99999");
  EXPECT_NE(lines.front().find("bytes of output were passed over]"), std::string::npos) << lines.front();
  Append("more\n");
  log.Read();
  EXPECT_EQ(log.Take(10), std::vector<std::string>{"more"});
}

// In place of the file there is a folder. It has a size and can be opened, but it cannot be read, like a file on a failing
// disk.
TEST_F(TailTest, WhatCannotBeReadHoldsNobodyUp) {
  std::filesystem::create_directory(path_);
  ASSERT_GT(FileTail(path_).Unread(), 0);
  LogTail log(path_);
  log.Finish();
  const std::vector<std::string> lines = log.Take(10);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("bytes of output could not be read"), std::string::npos) << lines[0];
  log.Finish();
  EXPECT_FALSE(log.HasLines());

  ReportTail reports = Tail();
  EXPECT_FALSE(reports.Drained());
  EXPECT_TRUE(reports.Read().empty());
  EXPECT_TRUE(reports.Drained()) << "else the rank's end would never be told";
}

// The problem may be temporary, so the tail tries to read the file again.
TEST_F(TailTest, WhatCouldNotBeReadIsReadLater) {
  std::filesystem::create_directory(path_);
  ReportTail reports = Tail();
  reports.Read();
  std::filesystem::remove(path_);
  AppendSteps(0, 2);
  EXPECT_EQ(reports.Read().size(), 2u);
  EXPECT_EQ(Sequences(reports), (Numbers{1, 2}));
  EXPECT_TRUE(reports.Drained());
}

TEST_F(TailTest, LogOfAnAdoptedRankStartsAtItsEnd) {
  Append("old\n");
  LogTail log(path_);
  log.SkipExisting();
  Append("new\n");
  log.Read();
  EXPECT_EQ(log.Take(10), std::vector<std::string>{"new"});
}

TEST(CleanLine, KeepsUtf8AndReplacesTheRest) {
  EXPECT_EQ(CleanLine("plain \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x99\x82"), "plain \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x99\x82");
  EXPECT_EQ(CleanLine("\xff\x80"), "??");
  EXPECT_EQ(CleanLine("\xC0\xAF"), "??");            // an overlong form
  EXPECT_EQ(CleanLine("\xED\xA0\x80"), "???");       // a surrogate
  EXPECT_EQ(CleanLine("\xF4\x90\x80\x80"), "????");  // larger than the last code point
  EXPECT_EQ(CleanLine("a\xE2\x82"), "a??");          // a character without its end
  EXPECT_EQ(CleanLine("abcdef", 3), "abc");
  EXPECT_EQ(CleanLine("ab\xE2\x82\xAC", 4), "ab");  // a character is never split
}

}  // namespace
}  // namespace lynx::worker
