// Tests lynx-worker as a process that is cut off from the server. If a witness still hears from the server, the ranks of
// lynx-worker must end. If no witness hears from the server, they must go on.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "common/clock.h"
#include "lynx/v1/witness.grpc.pb.h"
#include "node/file.h"
#include "tests/node/fake_standby.h"
#include "tests/worker/daemon/worker_harness.h"
#include "worker/contract/lease_file.h"
#include "worker/contract/rank_report.h"

namespace lynx::worker {
namespace {

using testing::HasSubstr;

constexpr int64_t kLong = 3'600'000'000'000;  // longer than any test here runs

// The daemon of another node, which is a witness.
class FakeWitness : public v1::Witness::Service {
 public:
  FakeWitness() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeWitness() override { server_->Shutdown(); }
  int port() const { return port_; }
  // From now on, the witness says that the server has just answered it. Before this call, it says that the server last
  // answered it when the witness began.
  void HearOfTheServer() { hears_ = true; }
  int asked() const { return asked_; }

  grpc::Status WhenRenewed(grpc::ServerContext*, const v1::WhenRenewedRequest*, v1::WhenRenewedResponse* response) override {
    ++asked_;
    response->set_ago_ns(hears_ ? 0 : (BootTime() - began_).value);
    response->set_server_up_ns(kLong);
    return grpc::Status::OK;
  }

 private:
  const Nanos began_ = BootTime();
  std::atomic<bool> hears_{false};
  std::atomic<int> asked_{0};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class WorkerLeaseTest : public WorkerTest {
 protected:
  void Renew(int64_t isolated_ns, int port) {
    v1::LeaseRenewal terms;
    terms.set_isolated_ns(isolated_ns);
    terms.set_cut_off_ns(1'000'000'000);
    v1::PeerAddress& witness = *terms.add_witnesses();
    witness.set_host("127.0.0.1");
    witness.set_port(port);
    cluster_.Renew(terms);
  }
  // Runs a rank with a lease.
  pid_t Run() {
    Renew(kLong, witness_.port());
    StartDaemon();
    const pid_t pid = RunRank(MakeAssignment("j1", 1, 0));
    AwaitDeadline([](Nanos deadline) { return deadline.value != INT64_MAX; });
    return pid;
  }
  // Shortens the lease: from now on the ranks may go on for only a few seconds. `port`: the port of the witness.
  void Shorten(int port) {
    Renew(4'000'000'000, port);
    AwaitDeadline([](Nanos deadline) { return deadline < BootTime() + Nanos(4'000'000'000); });
  }
  Nanos Deadline() const { return LeaseFile::OpenToRead(data_ + "/lease").value().Deadline(); }
  template <class Holds>
  void AwaitDeadline(Holds holds) {
    for (int i = 0; i < 3000 && !holds(Deadline()); ++i) ::usleep(10'000);
    EXPECT_TRUE(holds(Deadline())) << Deadline().value;
  }
  static void AwaitAsked(const FakeWitness& witness, int times) {
    for (int i = 0; i < 3000 && witness.asked() < times; ++i) ::usleep(10'000);
    EXPECT_GE(witness.asked(), times);
  }

  FakeWitness witness_;
};

TEST_F(WorkerLeaseTest, EndsRanksWhenTheServerAnswersAWitnessOnly) {
  Run();
  cluster_.StopRenewing();
  witness_.HearOfTheServer();
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  const v1::RankStatus status = *StatusOf(cluster_.told(), 1, 0);
  EXPECT_EQ(status.exit_code(), kRankExitLeaseOver);
  EXPECT_FALSE(status.peer_lost());
  EXPECT_THAT(status.reason(), HasSubstr("its node was cut off"));
  EXPECT_THAT(DaemonLog(), HasSubstr("this node is cut off from the server, which answers others: its ranks end"));
}

TEST_F(WorkerLeaseTest, RanksGoOnWhileTheWitnessHearsOfNoServerEither) {
  const pid_t pid = Run();
  const Nanos before = Deadline();
  cluster_.StopRenewing();
  cluster_.EndStream();
  AwaitAsked(witness_, 5);
  EXPECT_TRUE(ProcessLives(pid));
  AwaitDeadline([&](Nanos deadline) { return deadline > before + Nanos(2'000'000'000); });
}

TEST_F(WorkerLeaseTest, EndsRanksWhenNobodyAnswers) {
  auto alone = std::make_unique<FakeWitness>();
  const int port = alone->port();
  alone.reset();
  Run();
  Shorten(port);
  cluster_.StopRenewing();
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  EXPECT_EQ(StatusOf(cluster_.told(), 1, 0)->exit_code(), kRankExitLeaseOver);
}

// Even if the daemon is killed, its ranks must end in time, and the next daemon must know which witnesses to ask.
TEST_F(WorkerLeaseTest, TheDeadlineOutlivesTheDaemon) {
  const pid_t pid = Run();
  Shorten(witness_.port());
  cluster_.StopRenewing();
  EXPECT_EQ(EndDaemon(SIGKILL).signal, SIGKILL);
  for (int i = 0; i < 3000 && ProcessLives(pid); ++i) ::usleep(10'000);
  EXPECT_FALSE(ProcessLives(pid));
  EXPECT_GE(BootTime(), Deadline());
  const int asked = witness_.asked();
  cluster_.EndStream();
  StartDaemon();
  AwaitAsked(witness_, asked + 1);
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
}

// The leader is lost, and the witness finds the next one first. The node meets a standby on its way. Its ranks train on, and
// the new leader renews their lease.
TEST_F(WorkerLeaseTest, RanksGoOnWhenTheNodeFindsTheNextLeader) {
  FakeStandby standby(cluster_.address());
  auto next = std::make_unique<FakeCluster>();
  Renew(kLong, witness_.port());
  StartDaemon({"--server", standby.address() + "," + next->address() + "," + cluster_.address()});
  const pid_t pid = RunRank(MakeAssignment("j1", 1, 0));
  EXPECT_GE(standby.refused(), 1);
  AwaitDeadline([](Nanos deadline) { return deadline.value != INT64_MAX; });
  const Nanos before = Deadline();
  // The rank is the new leader's, too.
  v1::WorkerDesired desired;
  *desired.add_ranks() = MakeAssignment("j1", 1, 0);
  SetPeers(*desired.mutable_ranks(0), StatusOf(cluster_.told(), 1, 0)->port());
  next->Want(desired);
  v1::LeaseRenewal terms;
  terms.set_isolated_ns(2 * kLong);
  next->Renew(terms);
  witness_.HearOfTheServer();
  standby.SetLeader(next->address());
  cluster_.StopRenewing();
  cluster_.EndStream();
  next->WaitUntil("the node", [&](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_RUNNING); });
  EXPECT_EQ(StatusOf(next->told(), 1, 0)->pid(), pid);
  AwaitDeadline([&](Nanos deadline) { return deadline > before; });
  EXPECT_TRUE(ProcessLives(pid));
  EndDaemon(SIGTERM);
}

TEST_F(WorkerLeaseTest, AnswersOtherDaemons) {
  StartDaemon();
  cluster_.WaitUntil("attached", [](const Told& told) { return told.witness_port > 0; });
  const auto ask = [&] {
    const auto stub = v1::Witness::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(cluster_.told().witness_port), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::WhenRenewedResponse response;
    const grpc::Status status = stub->WhenRenewed(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  };
  EXPECT_EQ(ask().ago_ns(), -1);
  cluster_.Renew({});
  for (int i = 0; i < 3000 && ask().ago_ns() < 0; ++i) ::usleep(10'000);
  EXPECT_GE(ask().ago_ns(), 0);
  EXPECT_GT(ask().server_up_ns(), 0);
}

TEST_F(WorkerLeaseTest, DamagedTermsAreSaidAndPassedOver) {
  ASSERT_TRUE(MakeDirectories(data_).ok());
  ASSERT_TRUE(WriteFileDurably(data_ + "/lease.terms", "what?\n").ok());
  StartDaemon();
  cluster_.WaitUntil("attached", [](const Told& told) { return told.witness_port > 0; });
  EXPECT_THAT(DaemonLog(), HasSubstr("lease.terms: is not \"ISOLATED_NS"));
}

}  // namespace
}  // namespace lynx::worker
