#include "node/command.h"

#include <gtest/gtest.h>

namespace lynx {
namespace {

std::vector<std::string> Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

constexpr Nanos kLong{60'000'000'000};

TEST(RunCommands, RunsSideBySideAndKeepsTheOrder) {
  const WakeEvent cancel;
  // Each command waits for the file of the other one. So both end only if they run at the same time.
  const std::string folder = testing::TempDir() + "lynx-command-test";
  const std::string meet =
      "mkdir -p " + folder + "; touch " + folder + "/$0; until [ -e " + folder + "/$1 ]; do sleep 0.01; done; echo $0";
  const std::vector<CommandResult> results =
      RunCommands({{"/bin/sh", "-c", meet, "a", "b"}, {"/bin/sh", "-c", meet, "b", "a"}}, kLong, cancel);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_TRUE(results[0].status.ok()) << results[0].status;
  EXPECT_EQ(results[0].output, "a\n");
  EXPECT_EQ(results[1].output, "b\n");
  RunCommands({Shell("rm -r " + folder)}, kLong, cancel);
}

TEST(RunCommands, FailureCarriesCodeAndLastLineOfStandardError) {
  const WakeEvent cancel;
  const std::vector<CommandResult> results =
      RunCommands({Shell("echo first >&2; echo the reason >&2; exit 7"), {"/no/such/file"}}, kLong, cancel);
  EXPECT_EQ(results[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(results[0].status.message(), "/bin/sh ended with exit code 7: the reason");
  EXPECT_EQ(results[1].status.code(), absl::StatusCode::kNotFound);
}

TEST(RunCommands, KillsWhatRunsTooLong) {
  const WakeEvent cancel;
  const std::vector<CommandResult> results =
      RunCommands({Shell("echo quick"), Shell("exec sleep 600")}, Nanos(300'000'000), cancel);
  EXPECT_TRUE(results[0].status.ok());
  EXPECT_EQ(results[1].status.code(), absl::StatusCode::kDeadlineExceeded) << results[1].status;
}

TEST(RunCommands, CancelEndsAll) {
  WakeEvent cancel;
  cancel.Raise();
  const std::vector<CommandResult> results = RunCommands({Shell("exec sleep 600")}, kLong, cancel);
  EXPECT_EQ(results[0].status.code(), absl::StatusCode::kCancelled);
}

TEST(RunCommands, LargeOutputArrivesWholeAndBeyondTheLimitIsAnError) {
  const WakeEvent cancel;
  const std::vector<CommandResult> results =
      RunCommands({Shell("head -c 1000000 /dev/zero"), Shell("head -c 9000000 /dev/zero")}, kLong, cancel);
  EXPECT_TRUE(results[0].status.ok());
  EXPECT_EQ(results[0].output.size(), 1000000u);
  EXPECT_EQ(results[1].status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(RunCommands, GivesEachOfThemTheInput) {
  const WakeEvent cancel;
  const std::string input(1'000'000, 'x');  // more bytes than a pipe holds; the program does not read them
  const std::vector<CommandResult> results =
      RunCommands({Shell("wc -c"), Shell("echo not read"), Shell("cat; cat")}, kLong, cancel, input);
  EXPECT_EQ(results[0].output, "1000000\n");
  EXPECT_EQ(results[1].output, "not read\n");
  EXPECT_EQ(results[2].output, input);
  EXPECT_EQ(RunCommands({Shell("cat")}, kLong, cancel).front().output, "") << "without input: /dev/null";
}

TEST(LastLine, SkipsBlankLinesAndIsBounded) {
  EXPECT_EQ(LastLine("one\ntwo\n\n  \n"), "two");
  EXPECT_EQ(LastLine("only"), "only");
  EXPECT_EQ(LastLine("\n\n"), "");
  EXPECT_EQ(LastLine("abcdef", 3), "abc");
}

}  // namespace
}  // namespace lynx
