#include "server/controller/state/node_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/parts_fixture.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Party = NodeTable::Party;

class NodeTableTest : public ::testing::Test {
 protected:
  LiveNode* Admit(int64_t stream, const std::string& name, const std::string& host, const std::string& boot) {
    return nodes_.Admit(Party::kWorker, stream, NodeId(name), host, boot);
  }
  // Returns the reason for which a stream was closed since the last call, or "" unless exactly one stream was closed.
  std::string Closed() {
    const std::vector<CloseStream> closed = parts_.Take<CloseStream>();
    return closed.size() == 1 ? std::string(closed[0].reason.message()) : "";
  }
  testing::PartsFixture parts_;
  NodeTable& nodes_ = parts_.nodes;
};

TEST_F(NodeTableTest, AStreamReportsForOneNode) {
  LiveNode* node = Admit(1, "n1", "h1", "b");
  ASSERT_NE(node, nullptr);
  EXPECT_TRUE(node->worker_attached());
  EXPECT_EQ(Admit(1, "n1", "h1", "b"), node);
  EXPECT_EQ(Admit(1, "n2", "h1", "b"), nullptr);
  EXPECT_THAT(Closed(), HasSubstr("this stream began as node \"n1\""));
}

TEST_F(NodeTableTest, ASecondDaemonWithTheSameNameIsRefused) {
  ASSERT_NE(Admit(1, "n1", "h1", "b"), nullptr);
  EXPECT_EQ(Admit(2, "n1", "h2", "b"), nullptr);
  EXPECT_THAT(Closed(), HasSubstr("give this one a name of its own with --node"));
  EXPECT_EQ(nodes_.At(NodeId("n1")).worker_link.stream, 1);
}

TEST_F(NodeTableTest, ANewerStreamOfTheSameProcessReplacesTheOlder) {
  ASSERT_NE(Admit(1, "n1", "h1", "b"), nullptr);
  ASSERT_NE(Admit(2, "n1", "h1", "b"), nullptr);
  EXPECT_THAT(Closed(), HasSubstr("newer stream"));
  EXPECT_EQ(nodes_.Leave(1), nullptr) << "the older stream reports for no node";
  EXPECT_EQ(nodes_.Leave(2), &nodes_.At(NodeId("n1")));
}

TEST_F(NodeTableTest, TheNumberOfNodesIsLimited) {
  parts_.options.max_nodes = 1;
  ASSERT_NE(Admit(1, "n1", "h1", "b"), nullptr);
  EXPECT_EQ(Admit(2, "n2", "h2", "b"), nullptr);
  EXPECT_THAT(Closed(), HasSubstr("the server knows 1 nodes, its limit"));
  EXPECT_EQ(nodes_.Find(NodeId("n2")), nullptr);
}

TEST_F(NodeTableTest, AttachingTellsTheNodeAndTheQueue) {
  ASSERT_NE(Admit(1, "n1", "h1", "b"), nullptr);
  EXPECT_THAT(parts_.step.TakeWorkers(), SizeIs(1));
  EXPECT_THAT(parts_.step.TakeAgents(), IsEmpty());
  EXPECT_TRUE(parts_.step.queue_changed());
}

TEST_F(NodeTableTest, KnowsWhetherThereAreGpus) {
  LiveNode& node = parts_.AddNode("n1", 1, 1);
  nodes_.NoteDevices(node);
  EXPECT_FALSE(nodes_.has_gpus());
  node.agent.devices[0].kind = DeviceKind::kCuda;
  nodes_.NoteDevices(node);
  EXPECT_TRUE(nodes_.has_gpus());
  EXPECT_EQ(nodes_.ModelOf({NodeId("n1"), 0}, DeviceKind::kCuda), "test");
  EXPECT_EQ(nodes_.ModelOf({NodeId("n1"), 0}, DeviceKind::kCpu), "");
  EXPECT_EQ(nodes_.ModelOf({NodeId("n2"), 0}, DeviceKind::kCuda), "");
  nodes_.Forget(NodeId("n1"));
  EXPECT_FALSE(nodes_.has_gpus());
}

TEST_F(NodeTableTest, PresenceIsOfBothDaemons) {
  EXPECT_EQ(PresenceOf(LiveNode()), NodePresence::kAbsent);
  LiveNode& node = parts_.AddNode("n1", 1, 1);
  EXPECT_EQ(PresenceOf(node), NodePresence::kAttached);
  node.agent_link = {};
  EXPECT_EQ(PresenceOf(node), NodePresence::kPartial);
  node.lost = true;
  EXPECT_EQ(PresenceOf(node), NodePresence::kLost);
}

}  // namespace
}  // namespace lynx::server
