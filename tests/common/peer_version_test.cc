#include "common/peer_version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/version.h"

namespace lynx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(PeerVersionTest, TheSameMinorVersionAndTheOneBeforeAreTaken) {
  struct Case {
    std::string server, peer;
    bool taken;
  };
  const Case cases[] = {
      {"0.1.0", "0.1.0", true},
      {"0.1.0", "0.1.7", true},
      {"0.1.7", "0.1.0", true},
      {"0.1.0", "0.0.9", true},
      {"0.1.0", "0.2.0", false},
      {"0.2.0", "0.1.9", true},
      {"0.2.0", "0.0.9", false},
      {"0.2.0", "0.3.0", false},
      {"1.0.0", "0.9.0", false},
      {"1.0.0", "1.0.3", true},
      {"1.10.0", "1.9.5", true},
      {"1.10.0", "1.1.0", false},
      {"1.2.0", "2.1.0", false},
      {"2.1.0", "1.1.0", false},
      {"1.2.0", "1.2.0-rc1", true},
      {"1.2.0", "1.2", true},
      {"1.2.0", "", false},
      {"1.2.0", "1", false},
      {"1.2.0", "1.", false},
      {"1.2.0", ".2", false},
      {"1.2.0", "1.-2", false},
      {"1.2.0", "1.+2", false},
      {"1.2.0", "1.2x", false},
      {"1.2.0", " 1.2", false},
      {"1.2.0", "v1.2", false},
      {"1.2.0", "1.99999999999", false},
      {"1.2.0", "1.2." + std::string(60, '0'), true},
      {"1.2.0", "1.2." + std::string(61, '0'), false},
  };
  for (const Case& c : cases) {
    const absl::Status status = CheckPeerVersion(c.server, "lynx-worker", c.peer);
    EXPECT_EQ(status.ok(), c.taken) << c.server << " with " << c.peer << ": " << status;
    if (!c.taken) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    }
  }
}

TEST(PeerVersionTest, ARefusalSaysWhatToUpgrade) {
  EXPECT_EQ(CheckPeerVersion("1.3.2", "lynx-agent", "1.4.0").message(),
            "lynx-agent 1.4.0 does not work with lynx-server 1.3.2, which works with nodes of 1.3 and 1.2: upgrade lynx-server "
            "first");
  EXPECT_EQ(CheckPeerVersion("1.3.2", "lynx-worker", "1.1.9").message(),
            "lynx-worker 1.1.9 does not work with lynx-server 1.3.2, which works with nodes of 1.3 and 1.2: install "
            "lynx-worker 1.3.2 on the node");
  EXPECT_THAT(CheckPeerVersion("1.0.0", "lynx-worker", "0.9.0").message(),
              AllOf(HasSubstr("which works with nodes of 1.0:"), HasSubstr("install lynx-worker 1.0.0")));
  EXPECT_EQ(CheckPeerVersion("1.3.2", "lynx-worker", "").message(),
            "lynx-worker states no version that lynx-server 1.3.2 can read; install lynx-worker 1.3.2 on the node");
}

TEST(PeerVersionTest, ThisReleaseWorksWithItself) { EXPECT_TRUE(CheckPeerVersion(kVersion, "lynx-agent", kVersion).ok()); }

}  // namespace
}  // namespace lynx
