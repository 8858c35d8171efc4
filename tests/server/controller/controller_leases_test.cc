// Tests nodes that are cut off: which witnesses they should ask, and when their work is given to other nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/server/controller/controller_fixture.h"

namespace lynx::server::testing {
namespace {

using ::testing::HasSubstr;

ControllerOptions WithLeases(bool leases = true) {
  ControllerOptions options;
  options.node_timeout = NanosFromSeconds(60);
  options.stop_timeout = NanosFromSeconds(10);
  options.leases = leases;
  return options;
}

class ControllerLeases : public ::testing::Test {
 protected:
  explicit ControllerLeases(ControllerOptions options = WithLeases()) : cluster_(std::move(options)) {}
  void AddNodes(int count) {
    for (int i = 0; i < count; ++i) {
      const std::string name = "n" + std::to_string(i);
      cluster_.AddNode(name, 1);
      cluster_.Node(name).leases = true;
      names_.push_back(name);
    }
    Live(61);  // after this time the server knows all nodes
  }
  // Lets `seconds` seconds pass, in which all attached nodes report.
  void Live(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      for (const std::string& name : names_) cluster_.Report(name);
      cluster_.Advance(1);
    }
  }
  std::set<int32_t> WitnessesOf(const std::string& name) {
    std::set<int32_t> ports;
    for (const RankAddress& witness : cluster_.Node(name).renewal->witnesses) ports.insert(witness.port);
    return ports;
  }
  // Runs a job of one rank. Returns the name of its node.
  std::string Run(JobId& job) {
    job = cluster_.Run(MakeSpec("one", 1, 1), {1, 1, 1});
    Live(1);
    EXPECT_EQ(cluster_.Record(job).state, JobState::kRunning);
    return cluster_.NodeOfRank(job, 0);
  }

  Cluster cluster_;
  std::vector<std::string> names_;
};

TEST_F(ControllerLeases, ARenewalAnswersEachReportWithFiveWitnessesAtMost) {
  AddNodes(8);
  for (const std::string& name : names_) {
    FakeNode& node = cluster_.Node(name);
    cluster_.Report(name);
    ASSERT_TRUE(node.renewal.has_value());
    EXPECT_EQ(node.renewal->report, node.reports);
    EXPECT_EQ(node.renewal->isolated, NanosFromSeconds(45));
    EXPECT_EQ(node.renewal->cut_off, NanosFromSeconds(6));
    EXPECT_FALSE(node.renewal->more_witnesses);
    EXPECT_GE(node.renewal->server_up, NanosFromSeconds(61));
    EXPECT_EQ(WitnessesOf(name).size(), 5u);
    EXPECT_FALSE(WitnessesOf(name).contains(node.witness_port()));
  }
  EXPECT_NE(WitnessesOf("n0"), WitnessesOf("n1"));
  EXPECT_EQ(cluster_.Node("n0").renewal->witnesses.front().host, "10.0.0.1");
}

TEST_F(ControllerLeases, ANodeThatIsAwayIsAWitnessUntilItIsForgotten) {
  AddNodes(3);
  EXPECT_EQ(WitnessesOf("n0"), (std::set<int32_t>{4001, 4002}));
  cluster_.DetachWorker("n1");
  cluster_.DetachAgent("n1");
  Live(1);
  EXPECT_EQ(WitnessesOf("n0"), (std::set<int32_t>{4001, 4002}));
  Live(601);
  EXPECT_EQ(WitnessesOf("n0"), (std::set<int32_t>{4002}));
}

TEST_F(ControllerLeases, AServerThatHasJustBegunSaysThatThereMayBeMore) {
  AddNodes(1);
  EXPECT_FALSE(cluster_.Node("n0").renewal->more_witnesses);
  cluster_.RestartServer();
  cluster_.AttachWorker("n0");
  EXPECT_TRUE(cluster_.Node("n0").renewal->more_witnesses);
}

// A server that stopped leading and leads again has ended the streams of all nodes. So it waits for the nodes like a new
// server.
TEST_F(ControllerLeases, AServerThatLeadsAgainCountsAsNew) {
  AddNodes(1);
  EXPECT_GE(cluster_.Node("n0").renewal->server_up, NanosFromSeconds(61));
  cluster_.controller().LeadsAgain(cluster_.now());
  Live(1);
  EXPECT_LE(cluster_.Node("n0").renewal->server_up, NanosFromSeconds(2));
}

TEST_F(ControllerLeases, ADaemonThatKnowsNothingOfThemIsToldNothing) {
  cluster_.AddNode("n0", 1);
  cluster_.Report("n0");
  EXPECT_FALSE(cluster_.Node("n0").renewal.has_value());
}

TEST_F(ControllerLeases, WorkIsGivenAwayWhileHalfOfTheWitnessesAreThere) {
  AddNodes(3);
  JobId job;
  const std::string node = Run(job);
  for (const std::string& name : names_) {
    if (name == node) continue;
    cluster_.DetachWorker(name);  // now only one of the two witnesses is attached
    break;
  }
  cluster_.DetachWorker(node);
  Live(59);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(1));
  Live(6);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(2));
  EXPECT_NE(cluster_.NodeOfRank(job, 0), node);
}

// If most of a node's witnesses are away too, the node may conclude that the server is away, and its ranks continue. So the
// server must not give their work to other nodes.
TEST_F(ControllerLeases, WorkIsKeptWhileMostWitnessesAreAwayToo) {
  AddNodes(5);
  JobId job;
  const std::string node = Run(job);
  std::vector<std::string> away;
  for (const std::string& name : names_) {
    if (name != node && away.size() < 3) away.push_back(name);
  }
  for (const std::string& name : away) cluster_.DetachWorker(name);
  cluster_.DetachWorker(node);
  Live(200);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(1));
  // Now two of the four witnesses are attached. From now on the server counts the time after which it gives the work to other
  // nodes.
  cluster_.AttachWorker(away[0]);
  Live(59);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(1));
  Live(6);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(2));
}

TEST_F(ControllerLeases, InTheEndWhatIsLeftTakesOver) {
  AddNodes(5);
  JobId job;
  const std::string node = Run(job);
  std::string left;
  for (const std::string& name : names_) {
    if (name == node) continue;
    if (left.empty()) {
      left = name;
    } else {
      cluster_.DetachWorker(name);
    }
  }
  cluster_.DetachWorker(node);
  Live(590);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(1));
  Live(15);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(2));
  EXPECT_EQ(cluster_.NodeOfRank(job, 0), left);
}

// The node has no witnesses. When it is cut off, it can ask no other node, and it never ends its ranks by itself.
TEST_F(ControllerLeases, ANodeThatWasAloneIsWaitedForLongest) {
  AddNodes(1);
  JobId job;
  ASSERT_EQ(Run(job), "n0");
  EXPECT_TRUE(WitnessesOf("n0").empty());
  cluster_.DetachWorker("n0");
  cluster_.AddNode("n1", 1);
  cluster_.Node("n1").leases = true;
  names_.push_back("n1");
  Live(590);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(1));
  Live(15);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(2));
  EXPECT_EQ(cluster_.NodeOfRank(job, 0), "n1");
}

// All ranks of this generation are cut off from the server. If the server knew that one of them has ended, it would know that
// the others can do no more steps. It does not know this, so it waits as long as the node may let its ranks run.
TEST_F(ControllerLeases, AGenerationThatIsCutOffWholeIsWaitedForAsLongAsItsNode) {
  AddNodes(5);
  JobId job;
  const std::string node = Run(job);
  const JobId wide = cluster_.Run(MakeSpec("two", 2, 2), {1, 2, 1});
  Live(1);
  const std::string first = cluster_.NodeOfRank(wide, 0), second = cluster_.NodeOfRank(wide, 1);
  Cordon cordon{.reason = "fans", .drain = true};
  cordon.deadline = Nanos(1);  // this deadline has passed
  for (const std::string& drained : {node, second}) {
    cluster_.DetachWorker(drained);
    cluster_.SetCordon(drained, cordon);
  }
  cluster_.Exit(wide, 0, 143);
  cluster_.Report(first);
  Live(15);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(1));
  EXPECT_EQ(cluster_.Record(wide).generation, Generation(2));
  Live(50);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(2));
}

// The server does not know whether the node has received the newest list of witnesses. The node may still use an older list.
TEST_F(ControllerLeases, WitnessesThatANodeMayNotHaveHeardOfCountBesideThoseOfBefore) {
  AddNodes(3);
  JobId job;
  const std::string node = Run(job);
  cluster_.Node(node).hears = false;  // from now on, no newer list of witnesses reaches the node
  for (const char* name : {"n3", "n4", "n5", "n6"}) {
    cluster_.AddNode(name, 1);
    cluster_.Node(name).leases = true;
    names_.push_back(name);
  }
  Live(2);
  for (const char* name : {"n0", "n1", "n2"}) cluster_.DetachWorker(name);
  Live(120);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(1));
  for (const char* name : {"n0", "n1", "n2"}) {
    if (name != node) cluster_.AttachWorker(name);
  }
  Live(66);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(2));
}

// The new server does not know which witnesses the node would ask.
TEST_F(ControllerLeases, ANewServerGivesWorkAwayWhenAlmostAllNodesAreBack) {
  AddNodes(4);
  JobId job;
  const std::string node = Run(job);
  std::string late;
  cluster_.RestartServer();
  for (const std::string& name : names_) {
    if (name == node) continue;
    if (late.empty()) {
      late = name;  // not attached yet: the server knows it only from the store
    } else {
      cluster_.AttachAgent(name);
      cluster_.AttachWorker(name);
    }
  }
  Live(120);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(1));
  cluster_.AttachWorker(late);
  Live(66);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(2));
}

// Nodes have more time to find a server that has just begun to lead. So the server gives away no work in this time, even if a
// peer has ended.
TEST_F(ControllerLeases, ANewServerKeepsTheWorkOfANodeThatMayStillLookForIt) {
  AddNodes(5);
  const JobId wide = cluster_.Run(MakeSpec("two", 2, 2), {1, 2, 1});
  Live(1);
  const std::string first = cluster_.NodeOfRank(wide, 0), second = cluster_.NodeOfRank(wide, 1);
  cluster_.RestartServer();
  for (const std::string& name : names_) {
    if (name == second) continue;
    cluster_.AttachAgent(name);
    cluster_.AttachWorker(name);
  }
  cluster_.Exit(wide, 0, 143);
  cluster_.Report(first);
  Live(18);
  EXPECT_EQ(cluster_.Record(wide).generation, Generation(1));
  Live(8);
  EXPECT_EQ(cluster_.Record(wide).generation, Generation(2));
}

// The streams of the witnesses are open, but the witnesses have sent nothing for a while. So perhaps they do not hear from this
// server either.
TEST_F(ControllerLeases, AWitnessThatIsSilentCountsAsAway) {
  AddNodes(2);
  JobId job;
  const std::string node = Run(job);
  cluster_.DetachWorker(node);
  cluster_.Advance(120);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(1));
  Live(66);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(2));
}

class ControllerWithoutLeases : public ControllerLeases {
 protected:
  ControllerWithoutLeases() : ControllerLeases(WithLeases(false)) {}
};

TEST_F(ControllerWithoutLeases, NodesGoOnAndTheirWorkIsGivenAway) {
  AddNodes(5);
  JobId job;
  const std::string node = Run(job);
  EXPECT_EQ(cluster_.Node(node).renewal->isolated, Nanos(0));
  EXPECT_TRUE(cluster_.Node(node).renewal->witnesses.empty());
  int away = 0;
  for (const std::string& name : names_) {
    if (name != node && away++ < 3) cluster_.DetachWorker(name);
  }
  cluster_.DetachWorker(node);
  Live(66);
  EXPECT_EQ(cluster_.Record(job).generation, Generation(2));
}

}  // namespace
}  // namespace lynx::server::testing
