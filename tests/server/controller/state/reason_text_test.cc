#include "server/controller/state/reason_text.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace lynx::server {
namespace {

std::vector<NodeId> Nodes(int count) {
  std::vector<NodeId> nodes;
  for (int i = 0; i < count; ++i) nodes.push_back(NodeId(absl::StrCat("n", 100 + i)));
  return nodes;
}

TEST(NodeNames, EachOnceInOrder) {
  EXPECT_EQ(NodeNames(std::vector<NodeId>{}), "");
  EXPECT_EQ(NodeNames({NodeId("n3"), NodeId("n0"), NodeId("n3")}), "n0, n3");
}

TEST(NodeNames, ThoseOfALargeJobAreCounted) {
  EXPECT_EQ(NodeNames(Nodes(16)),
            "n100, n101, n102, n103, n104, n105, n106, n107, n108, n109, n110, n111, n112, n113, n114, n115");
  EXPECT_EQ(
      NodeNames(Nodes(1024)),
      "n100, n1000, n1001, n1002, n1003, n1004, n1005, n1006, n1007, n1008, n1009, n101, n1010, n1011, n1012 and 1009 more");
}

}  // namespace
}  // namespace lynx::server
