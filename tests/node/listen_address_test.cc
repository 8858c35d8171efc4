#include "node/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx {
namespace {

using ::testing::HasSubstr;

TEST(ListenAddressTest, Parses) {
  const ListenAddress four = ParseListenAddress("127.0.0.1:7470").value();
  EXPECT_EQ(four.host, "127.0.0.1");
  EXPECT_EQ(four.port, 7470);
  EXPECT_TRUE(four.loopback);
  EXPECT_EQ(AddressText(four, 9), "127.0.0.1:9");
  const ListenAddress six = ParseListenAddress("[::1]:0").value();
  EXPECT_EQ(six.host, "::1");
  EXPECT_TRUE(six.loopback);
  EXPECT_EQ(AddressText(six, 9), "[::1]:9");
  EXPECT_EQ(ParseListenAddress("localhost:1").value().host, "127.0.0.1");
  EXPECT_FALSE(ParseListenAddress("0.0.0.0:1").value().loopback);
  EXPECT_FALSE(ParseListenAddress("[::]:1").value().loopback);
  EXPECT_TRUE(ParseListenAddress("127.3.2.1:1").value().loopback);
}

TEST(ListenAddressTest, RefusesWithAnExample) {
  for (const char* bad : {"", "7470", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "example.org:1", "::1:7470",
                          "[::1:7470", "127.0.0.1:-1", "[127.0.0.1]:7"}) {
    const absl::Status status = ParseListenAddress(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("for example 127.0.0.1:7470")) << bad;
  }
}

}  // namespace
}  // namespace lynx
