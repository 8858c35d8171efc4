#include "worker/daemon/worker_daemon.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "common/rng.h"
#include "common/status.h"
#include "common/version.h"
#include "lynx/v1/cluster.grpc.pb.h"
#include "node/daemon.h"
#include "node/heartbeat.h"
#include "node/log.h"
#include "node/stream.h"
#include "worker/daemon/lease_keeper.h"

namespace lynx::worker {
namespace {

using WorkerStream = NodeStream<v1::WorkerReport, v1::WorkerDesired>;

// Sleeps until one of the descriptors is readable or `limit` has passed.
void WaitFor(std::vector<int> fds, Nanos limit) {
  std::vector<pollfd> polled;
  for (const int fd : fds) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  ::poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(0, limit.value / 1'000'000)) + 1);
}

class Loop {
 public:
  Loop(const WorkerDaemonOptions& options, RankSupervisor& supervisor, WorkerMetrics& metrics, const Clock& clock,
       WakeEvent& wake, LeaseKeeper& lease)
      : options_(options), boot_id_(NewBootId()), supervisor_(supervisor), metrics_(metrics), clock_(clock), wake_(wake),
        lease_(lease), stream_(
                           {.servers = options.servers,
                            .seed = Mix64(static_cast<uint64_t>(clock.Wall().value)),
                            .credentials = options.credentials},
                           [](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context) {
                             return v1::Cluster::NewStub(channel)->AttachWorker(context);
                           },
                           wake_) {}

  // Does one round, then sleeps until there is something to do. A readable `signal_fd` also ends the sleep.
  void Round(int signal_fd) {
    wake_.Clear();
    for (const v1::WorkerDesired& desired : stream_.TakeDesired()) {
      if (desired.has_renewal()) {
        lease_.Renewed(desired.renewal());
        continue;
      }
      supervisor_.SetDesired(desired);
      heartbeat_.SetInterval(Nanos(desired.heartbeat_ns()));
    }
    lease_.Step();
    supervisor_.Step();
    Report();

    std::vector<int> fds = supervisor_.WatchedFds();
    fds.push_back(wake_.fd());
    fds.push_back(signal_fd);
    const Nanos idle =
        std::min(stream_.attachment() != 0 ? heartbeat_.Left(clock_.Monotonic()) : Lease::kAskEvery, Lease::kAskEvery);
    WaitFor(std::move(fds), supervisor_.Busy() ? std::min(idle, RankSupervisor::kTick) : idle);
  }

  void Stop() { stream_.Stop(); }

 private:
  void Report() {
    const int64_t attachment = stream_.attachment();
    metrics_.SetAttached(stream_.accepted());
    if (attachment != 0 && attachment != attachment_) {
      supervisor_.Rewind();
      heartbeat_.Attached();
    }
    attachment_ = attachment;
    const Nanos now = clock_.Monotonic();
    if (!stream_.CanSend() || (!supervisor_.HasNews() && !heartbeat_.Due(now))) return;
    v1::WorkerReport report;
    report.set_node(options_.node);
    report.set_boot_id(boot_id_);
    report.set_address(options_.address);
    report.set_version(kVersion);
    report.set_number(++reports_);
    report.set_witness_port(lease_.witness_port());
    report.set_renewed(lease_.renewed());
    report.set_encrypts(true);
    supervisor_.Fill(report);
    lease_.Sent(reports_);
    // If the stream has just ended, TrySend sends nothing; the next stream sends everything again.
    stream_.TrySend(report);
    heartbeat_.Sent(now);
  }

  const WorkerDaemonOptions& options_;
  const std::string boot_id_;
  RankSupervisor& supervisor_;
  WorkerMetrics& metrics_;
  const Clock& clock_;
  Heartbeat heartbeat_{Mix64(static_cast<uint64_t>(clock_.Wall().value) ^ static_cast<uint64_t>(::getpid()))};
  int64_t attachment_ = 0;
  int64_t reports_ = 0;
  WakeEvent& wake_;
  LeaseKeeper& lease_;
  WorkerStream stream_;  // declared last, because the stream uses wake_
};

}  // namespace

absl::Status RunWorkerDaemon(const WorkerDaemonOptions& options, RankSupervisor& supervisor, WorkerMetrics& metrics,
                             StopSignals& signals, const Clock& clock) {
  WakeEvent wake;
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<LeaseKeeper> lease,
                        LeaseKeeper::Open(supervisor.lease_file(), options.address, options.peers, wake));
  Loop loop(options, supervisor, metrics, clock, wake, *lease);
  bool stopping = false;
  while (!stopping || (options.stop_ranks_on_exit && supervisor.AnyRuns())) {
    loop.Round(signals.fd());
    if (const std::optional<int> signal = signals.Take(); signal.has_value() && !stopping) {
      stopping = true;
      LogInfo("{}: {}", ::strsignal(*signal), options.stop_ranks_on_exit ? "ending the ranks" : "leaving; ranks go on");
      if (options.stop_ranks_on_exit) supervisor.StopAll();
    }
  }
  loop.Stop();
  return absl::OkStatus();
}

void StopAllRanks(RankSupervisor& supervisor) {
  supervisor.StopAll();
  supervisor.Step();
  while (supervisor.AnyRuns()) {
    WaitFor(supervisor.WatchedFds(), RankSupervisor::kTick);
    supervisor.Step();
  }
}

}  // namespace lynx::worker
