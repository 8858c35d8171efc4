// What the tests of lynx-worker have in common: assignments, a Cluster service in the test's own process, and a daemon process
// that connects to this service and runs fake ranks. The fixture ends all processes.
#ifndef LYNX_TESTS_WORKER_DAEMON_WORKER_HARNESS_H_
#define LYNX_TESTS_WORKER_DAEMON_WORKER_HARNESS_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "lynx/v1/cluster.grpc.pb.h"
#include "node/process.h"

namespace lynx::worker {

// Returns a valid assignment of one rank, without peers. `ranks`: the size of the world, which is one tensor-parallel group.
v1::RankAssignment MakeAssignment(const std::string& job, int64_t generation, int32_t rank, int32_t ranks = 1);
// Sets the peers: `own_port` for the rank itself, invented addresses for the others.
void SetPeers(v1::RankAssignment& assignment, int32_t own_port);

// Everything that the daemon has sent on all its streams.
struct Told {
  int attached = 0;  // number of streams that have begun
  std::string boot_id;
  std::vector<v1::RankStatus> ranks;           // in the newest message
  std::vector<v1::RankReport> reports;         // all reports of all streams, in order of arrival
  std::vector<v1::RankReport> stream_reports;  // on the newest stream
  std::vector<std::string> lines;              // lines that ranks have written to standard error
  int32_t witness_port = 0;
  std::vector<std::string> copies_of_jobs;  // in the newest message
  int messages = 0;
  size_t largest_message = 0;      // bytes
  bool end_before_report = false;  // true if a rank was EXITED before all of its reports had arrived
};

class FakeCluster : public v1::Cluster::Service {
 public:
  FakeCluster();
  ~FakeCluster() override;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  // Sets the desired state. It is sent to the present stream at once, and to every new stream as the first message.
  void Want(const v1::WorkerDesired& desired);
  // From now on answers each report with these terms. The number of the report and the time since the server began are filled
  // in.
  void Renew(const v1::LeaseRenewal& terms);
  // Stops answering reports.
  void StopRenewing();
  // Ends the present stream.
  void EndStream();
  // Sets whether ranks that have ended and are not wanted are released, as the real server releases them. The default is true.
  void SetReleases(bool releases);
  // Waits until the predicate is true for what the daemon has sent. Fails the test with the text `what` after 30 s.
  bool WaitUntil(const std::string& what, const std::function<bool(const Told&)>& holds);
  Told told();

  grpc::Status AttachWorker(grpc::ServerContext* context,
                            grpc::ServerReaderWriter<v1::WorkerDesired, v1::WorkerReport>* stream) override;

 private:
  void Record(const v1::WorkerReport& report);
  void ReleaseEnded();  // the caller must hold the lock

  std::mutex mutex_;
  std::condition_variable changed_;
  Told told_;
  v1::WorkerDesired desired_;
  int64_t desired_version_ = 0;
  std::optional<v1::LeaseRenewal> terms_;
  int64_t reported_ = 0;  // the number of the newest report
  const Nanos began_ = BootTime();
  int64_t end_streams_ = 0;
  bool releases_ = true;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Returns a rank's status in the newest message, or nullopt if the message does not name the rank.
std::optional<v1::RankStatus> StatusOf(const Told& told, int64_t generation, int32_t rank);
bool InPhase(const Told& told, int64_t generation, int32_t rank, v1::RankPhase phase);

class WorkerTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Starts lynx-worker with the fixture's data directory, the fake rank and these additional flags.
  void StartDaemon(const std::vector<std::string>& flags = {});
  // Sends the signal and waits until the daemon has ended.
  ExitStatus EndDaemon(int signal);
  ExitStatus WaitForDaemon();
  // Returns what the daemon has written to standard error.
  std::string DaemonLog() const;

  // Sends the command to the rank (see fake_rank.cc).
  void Tell(int32_t rank, const std::string& command);
  // Pids of the processes that were started for the rank, oldest first.
  std::vector<pid_t> StartedPids(int32_t rank) const;

  // Makes the server want the rank, sets the rank's own address as its peer, and waits until the rank runs. Returns its pid.
  pid_t RunRank(v1::RankAssignment assignment);
  void WantOnly(const std::vector<v1::RankAssignment>& assignments, const std::vector<v1::ReportAck>& acks = {});

  std::string folder_;
  std::string data_;
  FakeCluster cluster_;
  std::optional<Child> daemon_;
};

bool ProcessLives(pid_t pid);

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_DAEMON_WORKER_HARNESS_H_
