#include "server/services/cluster_service.h"

#include <gtest/gtest.h>

namespace lynx::server {
namespace {

TEST(HostOfPeerTest, TakesTheHost) {
  EXPECT_EQ(HostOfPeer("ipv4:127.0.0.1:5000"), "127.0.0.1");
  EXPECT_EQ(HostOfPeer("ipv6:%5B::1%5D:5000"), "::1");
  EXPECT_EQ(HostOfPeer("ipv6:[::1]:5000"), "::1");
  EXPECT_EQ(HostOfPeer("unix:"), "unix:");
}

}  // namespace
}  // namespace lynx::server
