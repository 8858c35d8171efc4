#include "worker/rank/process/drop_privileges.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx::worker {
namespace {

using ::testing::HasSubstr;

// Runs `holds` in a separate process, which may give up rights that this process still needs.
bool HoldsInChild(const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(holds() ? 0 : 1);
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string ProcessStatus() {
  std::ostringstream text;
  text << std::ifstream("/proc/self/status").rdbuf();
  return text.str();
}

TEST(RightsTest, TextsThatNameNobodyOrRootAreRefused) {
  for (const char* bad : {"", "1000", "1000:1000", "nobody:1:", "0:0:", "0:1000:", "1000:1000:x", "1000:1000:1:1"}) {
    const absl::Status status = DropPrivileges(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--run-as")) << bad;
  }
}

TEST(RightsTest, ARankThatHasGivenUpItsRightsDoesNotGetThemBack) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  EXPECT_TRUE(HoldsInChild([] {
    if (!DropPrivileges("65534:65533:65532,65531").ok()) return false;
    gid_t groups[8];
    const int count = ::getgroups(8, groups);
    const std::string status = ProcessStatus();
    return ::getuid() == 65534 && ::geteuid() == 65534 && ::getegid() == 65533 && count == 2 &&
           groups[0] + groups[1] == 65532 + 65531 && ::setuid(0) != 0 && ::setgid(0) != 0 &&
           status.find("NoNewPrivs:\t1") != std::string::npos && status.find("CapEff:\t0000000000000000") != std::string::npos;
  }));
}

// A rank restarts itself after it has pinned itself to its cores. So it drops its rights a second time.
TEST(RightsTest, WhoIsThatUserAlreadyGoesOn) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  EXPECT_TRUE(HoldsInChild([] { return DropPrivileges("65534:65534:").ok() && DropPrivileges("65534:65534:").ok(); }));
  EXPECT_TRUE(HoldsInChild([] {
    return DropPrivileges("65534:65534:").ok() && DropPrivileges("65533:65534:").code() == absl::StatusCode::kPermissionDenied;
  }));
}

}  // namespace
}  // namespace lynx::worker
