#include "cli/output/narrow.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace lynx::cli {
namespace {

TEST(Narrow, ATerminalSaysHowWideItIs) {
  int screen = -1, terminal = -1;
  winsize size{.ws_row = 24, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(openpty(&screen, &terminal, nullptr, nullptr, &size), 0);
  EXPECT_EQ(TerminalWidth(terminal), 40u);
  close(screen);
  close(terminal);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(TerminalWidth(ends[1]), std::nullopt);
  close(ends[0]);
  close(ends[1]);
}

TEST(Narrow, ACutLineShowsThatItIsCut) {
  EXPECT_EQ(CutLine("abcdef", 6), "abcdef");
  EXPECT_EQ(CutLine("abcdef", 5), "abcd~");
  EXPECT_EQ(CutLine("äöüß", 3, "…"), "äö…");
  EXPECT_EQ(CutLine("abc", 0), "");
}

TEST(Narrow, TextIsBrokenBetweenWords) {
  EXPECT_EQ(Wrapped("one two three", 20, 0, 2), "one two three");
  EXPECT_EQ(Wrapped("one two three", 8, 0, 2), "one two\n  three");
  EXPECT_EQ(Wrapped("one two three", 13, 8, 4), "one\n    two three") << "8 columns are used";
  EXPECT_EQ(Wrapped("step 2: /a/long/path (3 KiB)", 10, 0, 2), "step 2:\n  /a/long/path\n  (3 KiB)") << "people copy paths";
  EXPECT_EQ(Wrapped("word", 10, 8, 2), "\n  word");
  EXPECT_EQ(Wrapped("", 10, 0, 2), "");
  EXPECT_EQ(Wrapped("no room", 2, 2, 2), "no room");
  EXPECT_EQ(Wrapped(" two  spaces ", 13, 0, 2), " two  spaces ") << "it fits, so it stays";
  EXPECT_EQ(Wrapped(" two  spaces ", 12, 0, 2), "two spaces");
  EXPECT_EQ(Wrapped("two  spaces", 11, 1, 2), "two spaces") << "1 column is used";
}

TEST(Narrow, NoLineOfWrappedTextIsTooWide) {
  const std::string text =
      "stage 0 needs 3.1 GiB more with everything recomputed; raise resources.activationMemoryPerRank to 12.5GiB";
  for (size_t width = 11 + 40; width < 130; ++width) {
    const std::string shown = std::string(11, ' ') + Wrapped(text, width, 11, 11);
    std::string words;
    const std::vector<std::string> lines = absl::StrSplit(shown, '\n');
    for (const std::string& line : lines) {
      EXPECT_LE(line.size(), width) << shown;
      for (const char c : line) words += c == ' ' ? "" : std::string(1, c);
    }
    std::string expected;
    for (const char c : text) expected += c == ' ' ? "" : std::string(1, c);
    EXPECT_EQ(words, expected);
  }
}

TEST(Narrow, TheLeastColumnsGoFirst) {
  using Rows = std::vector<std::vector<std::string>>;
  const Rows whole = {{"A", "B", "C", "D"}, {"1", "22", "333", "4"}};  // 1 + 2 + 3 + 1, and 2 between neighbours: 13 columns
  Rows rows = whole;
  LeaveOutColumns(rows, 13, {1, 2});
  EXPECT_EQ(rows, whole);
  LeaveOutColumns(rows, 12, {1, 2});
  EXPECT_EQ(rows, (Rows{{"A", "C", "D"}, {"1", "333", "4"}}));
  rows = whole;
  LeaveOutColumns(rows, 1, {2, 1});
  EXPECT_EQ(rows, (Rows{{"A", "D"}, {"1", "4"}})) << "others stay";
}

}  // namespace
}  // namespace lynx::cli
