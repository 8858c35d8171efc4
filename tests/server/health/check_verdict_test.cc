// Tests which nodes are responsible for the result of a check.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "server/health/check_verdict.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;

CheckFinding Device(const std::string& node) { return {.node = NodeId(node)}; }
CheckFinding Link(const std::string& node, const std::string& other, bool silent = false) {
  return {.node = NodeId(node), .other = NodeId(other), .other_silent = silent};
}

std::string Blamed(const std::vector<CheckFinding>& findings, const std::map<std::string, int>& before = {}) {
  std::string text;
  for (const BadNode& bad :
       NodesToBlame(findings, [&](const NodeId& node) { return before.contains(node.value) ? before.at(node.value) : 0; })) {
    text += (text.empty() ? "" : " ") + bad.node.value;
  }
  return text;
}

TEST(CheckVerdict, NothingFoundBlamesNobody) { EXPECT_EQ(Blamed({}), ""); }

TEST(CheckVerdict, ADeviceBlamesItsNodeOnce) {
  EXPECT_EQ(Blamed({Device("n1"), Device("n1"), Device("n0")}), "n1 n0");
  EXPECT_EQ(Blamed({Link("n2", "n2")}), "n2") << "a link within a node";
}

TEST(CheckVerdict, TheNodeWithBadLinksToSeveralIsToBlame) {
  EXPECT_EQ(Blamed({Link("n0", "n2"), Link("n3", "n2"), Link("n2", "n0")}), "n2");
  EXPECT_EQ(Blamed({Link("n2", "n0"), Link("n2", "n1"), Link("n2", "n3"), Link("n0", "n1")}), "n2 n1")
      << "and what it does not explain";
  EXPECT_EQ(Blamed({Link("a", "b"), Link("b", "c"), Link("c", "d"), Link("d", "e")}), "d b");
  EXPECT_THAT(NodesToBlame({Link("n0", "n2"), Link("n3", "n2")}, [](const NodeId&) { return 0; }).front().why,
              HasSubstr("its links to nodes n0, n3 are bad"));
}

TEST(CheckVerdict, OfALinkThatIsAloneTheOneThatHasFailedBeforeIsToBlame) {
  EXPECT_EQ(Blamed({Link("n0", "n1"), Link("n1", "n0")}, {{"n0", 1}}), "n0");
  EXPECT_EQ(Blamed({Link("n0", "n1")}, {{"n0", 1}, {"n1", 1}}), "n1");
  EXPECT_THAT(NodesToBlame({Link("n1", "n0")}, [](const NodeId&) { return 0; }).front().why,
              HasSubstr("either may be to blame"));
  EXPECT_THAT(NodesToBlame({Link("n0", "n1")}, [](const NodeId& node) { return node.value == "n0" ? 2 : 1; }).front().why,
              HasSubstr("of the two it has failed more often within the hour (2 times)"));
}

TEST(CheckVerdict, WhoSaysNothingIsToBlame) {
  EXPECT_EQ(Blamed({Link("n1", "n0", /*silent=*/true)}), "n0");
  EXPECT_EQ(Blamed({Link("n1", "n0", /*silent=*/true)}, {{"n1", 5}}), "n0");
}

TEST(CheckVerdict, ABadDeviceExplainsItsLinks) { EXPECT_EQ(Blamed({Link("n0", "n1"), Device("n0")}, {{"n1", 5}}), "n0"); }

}  // namespace
}  // namespace lynx::server
