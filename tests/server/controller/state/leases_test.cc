#include "server/controller/state/leases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/parts_fixture.h"

namespace lynx::server {
namespace {

// Ten nodes whose daemons know leases and can be witnesses. The server has run for an hour, which is longer than the node
// timeout. So every list of witnesses that it sends is complete.
class LeasesTest : public ::testing::Test {
 protected:
  LeasesTest() {
    for (int i = 0; i < 10; ++i) {
      LiveNode& node = parts_.AddNode("n" + std::to_string(i), 1, 10 * i + 1);
      node.address = "10.0.0." + std::to_string(i);
    }
    parts_.At(3600);
    // At the first report, the server knows only some of the nodes as witnesses. Its answer to the second report has the
    // complete list. With the third report, a node confirms that it has received this list.
    for (int report = 1; report <= 3; ++report) {
      for (auto& [name, node] : parts_.nodes.all()) Report(node, report);
    }
    parts_.Take<RenewLease>();
  }
  void Report(LiveNode& node, int64_t number) {
    const WorkerState state{.node = node.name, .number = number, .witness_port = 4000, .renewed = number - 1};
    leases_.TakeWitness(node, state);
    leases_.Renew(node, node.worker_link.stream, state);
  }
  // Cuts off the daemon of node `name` from the server. The node has a rank of job j.
  LiveNode& CutOff(const std::string& name) {
    LiveNode& node = parts_.nodes.At(NodeId(name));
    node.heard = true;
    node.jobs.insert(JobId("j"));
    node.worker_link = {};
    node.worker_gone_at = parts_.step.now();
    return node;
  }
  testing::PartsFixture parts_;
  Leases leases_{parts_.options, parts_.step, parts_.nodes};
};

TEST_F(LeasesTest, ARenewalNamesFiveOtherNodesThatAreAlwaysTheSame) {
  LiveNode& node = parts_.nodes.At(NodeId("n0"));
  Report(node, 4);
  Report(node, 5);
  const std::vector<RenewLease> renewals = parts_.Take<RenewLease>();
  ASSERT_EQ(renewals.size(), 2u);
  EXPECT_EQ(renewals[0].renewal.report, 4);
  EXPECT_EQ(renewals[0].renewal.witnesses.size(), 5u);
  EXPECT_EQ(renewals[0].renewal.witnesses, renewals[1].renewal.witnesses);
  EXPECT_THAT(renewals[0].renewal.witnesses, ::testing::Not(::testing::Contains(RankAddress{"10.0.0.0", 4000})));
  EXPECT_LT(renewals[0].renewal.cut_off, renewals[0].renewal.isolated);
}

TEST_F(LeasesTest, ANodeIsAwayWhenItsLeaseMustHaveEnded) {
  const LiveNode& node = CutOff("n0");
  const Nanos timeout = NanosFromSeconds(60);
  for (double seconds = 3600; seconds <= 3660; seconds += 2) {
    parts_.At(seconds);
    for (auto& [name, other] : parts_.nodes.all()) {
      if (other.worker_attached()) other.renewed_at = parts_.step.now();
    }
    leases_.WatchQuorum();
    EXPECT_EQ(leases_.AwayFor(node, timeout, Nanos(0)), seconds >= 3660) << seconds;
  }
}

TEST_F(LeasesTest, WithoutAQuorumOfItsWitnessesANodeIsNotAwayForLong) {
  const LiveNode& node = CutOff("n0");
  for (int i = 1; i < 10; ++i) CutOff("n" + std::to_string(i));
  parts_.At(3800);
  leases_.WatchQuorum();
  EXPECT_FALSE(leases_.AwayFor(node, NanosFromSeconds(60), Nanos(0)));
  parts_.At(3600 + 601);  // after ten timeouts the server no longer waits: most nodes may be gone for good
  leases_.WatchQuorum();
  EXPECT_TRUE(leases_.AwayFor(node, NanosFromSeconds(60), Nanos(0)));
}

TEST_F(LeasesTest, AForgottenNodeIsNobodysWitness) {
  for (int i = 5; i < 10; ++i) {
    leases_.Forget(NodeId("n" + std::to_string(i)));
    parts_.nodes.Forget(NodeId("n" + std::to_string(i)));
  }
  Report(parts_.nodes.At(NodeId("n0")), 4);
  const std::vector<RenewLease> renewals = parts_.Take<RenewLease>();
  ASSERT_EQ(renewals.size(), 1u);
  EXPECT_EQ(renewals[0].renewal.witnesses.size(), 4u);
}

}  // namespace
}  // namespace lynx::server
