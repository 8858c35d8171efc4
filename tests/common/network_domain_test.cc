#include "common/network_domain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lynx {
namespace {

TEST(NetworkDomain, UpToFourNamesWithSlashes) {
  for (const char* domain : {"", "rack7", "row2/rack7", "a/b/c/d", "pod-1/leaf_2.3"}) {
    EXPECT_TRUE(CheckNetworkDomain(domain).ok()) << domain;
  }
  for (const std::string& domain : {std::string("/"), std::string("a/"), std::string("/a"), std::string("a//b"),
                                    std::string("a/b/c/d/e"), std::string("a b"), std::string("a\n"), std::string(64, 'x')}) {
    const absl::Status status = CheckNetworkDomain(domain);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << domain;
    EXPECT_NE(status.message().find("such as row2/rack7"), std::string::npos) << domain;
  }
}

TEST(NetworkDomain, PartsFromTheWidest) {
  EXPECT_EQ(DomainPart("row2/rack7", 0), "row2");
  EXPECT_EQ(DomainPart("row2/rack7", 1), "rack7");
  EXPECT_EQ(DomainPart("row2/rack7", 2), "");
  EXPECT_EQ(DomainPart("", 0), "");
}

// As plain text, "a-b" would come between "a" and "a/x", so the parts of "a" would not be together.
TEST(NetworkDomain, APartsDomainsComeOneAfterAnother) {
  std::vector<std::string> domains = {"a/x", "b", "a-b/y", "a", "", "a/b/c"};
  std::sort(domains.begin(), domains.end(), [](const auto& a, const auto& b) { return CompareDomains(a, b) < 0; });
  EXPECT_EQ(domains, (std::vector<std::string>{"", "a", "a/b/c", "a/x", "a-b/y", "b"}));
  EXPECT_EQ(CompareDomains("a/b", "a/b"), 0);
}

}  // namespace
}  // namespace lynx
