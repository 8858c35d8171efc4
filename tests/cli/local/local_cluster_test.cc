#include "cli/local/local_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "node/file.h"

namespace lynx::cli {
namespace {

using testing::HasSubstr;

class LocalClusterTest : public testing::Test {
 protected:
  LocalClusterTest() {
    std::string pattern = testing::TempDir() + "lynx_local_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    chmod(folder_.c_str(), 0777);
  }
  ~LocalClusterTest() override { std::filesystem::remove_all(folder_); }

  // Records a cluster whose only daemon is the server. `pid`: the server's process.
  void Record(pid_t pid) const {
    const ProcessIdentity process = IdentifyProcess(pid).value();
    std::ofstream(folder_ + "/cluster.json")
        << absl::StrCat(R"({"serverAddress": "127.0.0.1:1", "daemons": [{"name": "server", "argv": ["lynx-server"], "log": ")",
                        folder_, R"(/log", "metricsAddress": "", "pid": )", process.pid, R"(, "startTicks": )",
                        process.start_ticks, R"(, "machineBoot": ")", process.machine_boot, R"("}]})");
  }

  std::string folder_;
};

// The test needs a daemon process that belongs to another user than the caller. If root runs the test, the daemon is this
// process, and a child that becomes user nobody calls LocalDown. Otherwise the daemon is process 1 of the machine.
TEST_F(LocalClusterTest, DownSaysThatADaemonIsAnotherUsers) {
  const bool root = geteuid() == 0;
  const pid_t daemon = root ? getpid() : 1;
  Record(daemon);
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (root && setuid(kNobody) != 0) _exit(2);
    alarm(60);  // so that the test does not wait forever
    const absl::Status down = LocalDown(folder_);
    std::ofstream(folder_ + "/said") << down;
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "it waited in vain";
  EXPECT_THAT(
      ReadFile(folder_ + "/said").value(),
      HasSubstr(absl::StrCat("server (process ", daemon,
                             ") cannot be stopped: it belongs to user 0; run 'lynxctl local down' as that user, or as root")));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/cluster.json")) << "it can be tried again";
}

TEST_F(LocalClusterTest, WhatIsWrongIsRefusedBeforeAnythingIsWritten) {
  for (const auto& [options, part] :
       {std::pair(LocalOptions{.directory = ""}, "neither HOME nor LYNX_HOME"),
        std::pair(LocalOptions{.directory = folder_ + "/a", .link_rate = "1G"}, "--link-rate"),
        std::pair(LocalOptions{.directory = folder_ + "/b", .nodes = 2, .devices = "cuda"}, "give --nodes 1"),
        std::pair(LocalOptions{.directory = folder_ + "/caf\xe9"}, "is not UTF-8")}) {
    const absl::Status refused = LocalUp(options).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(part));
    EXPECT_FALSE(std::filesystem::exists(options.directory + "/cluster.json")) << part;
  }
}

// The cluster's file has the form that an earlier release may have written.
TEST_F(LocalClusterTest, ARateThatIsNoneInTheFileIsAnotherThanTheOneGiven) {
  std::ofstream(folder_ + "/cluster.json") << R"({"serverAddress": "127.0.0.1:1", "daemons": [
          {"name": "server", "argv": ["x"], "log": "x", "metricsAddress": "", "pid": 0, "startTicks": 0, "machineBoot": ""},
          {"name": "node0.agent", "argv": ["x", "--link-rate=1G"], "log": "x", "metricsAddress": "", "pid": 0, "startTicks": 0, "machineBoot": ""}]})";
  const absl::Status differs = LocalUp({.directory = folder_, .link_rate = "1Gbit"}).status();
  EXPECT_THAT(std::string(differs.message()),
              HasSubstr("has --link-rate 1G, not 1Gbit; leave that out, or 'lynxctl local down' first"));
}

}  // namespace
}  // namespace lynx::cli
