// RankSupervisor manages the ranks of this node. It holds a table of the existing ranks, and changes the ranks until they are
// those that the server wants (Reconcile). It starts and ends rank processes, notices their ends, and composes reports about
// them.
//
// Ranks outlive the supervisor, because each rank leads a session of its own. A new supervisor on the same data directory finds
// the ranks by their records. It watches them by pidfd, although they are not its children. If a supervisor ends, only the
// sockets of ranks that had not been started (kListening) are lost. The next supervisor does not have such a rank in its table,
// and binds a new socket for it. If the server had already sent the old address to the peers, the rank is refused with a
// sentence that says so.
//
// The end of a rank is reported together with its last reports or after them, never before. Until the server releases an ended
// rank, the supervisor keeps the rank, and the next supervisor reports the end again. So the last reports arrive even if the
// rank ended because the server did not want it any more.
//
// Not thread-safe: only one thread may call it. Step blocks only to write to the data directory.
#ifndef LYNX_WORKER_DAEMON_SUPERVISOR_H_
#define LYNX_WORKER_DAEMON_SUPERVISOR_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "lynx/v1/cluster.pb.h"
#include "node/oom_kills.h"
#include "worker/contract/rank_config.h"
#include "worker/daemon/allowed_paths.h"
#include "worker/daemon/hang_watch.h"
#include "worker/daemon/job_user.h"
#include "worker/daemon/rank_ending.h"
#include "worker/daemon/rank_folder.h"
#include "worker/daemon/report_tail.h"
#include "worker/daemon/worker_metrics.h"

namespace lynx::worker {

struct SupervisorOptions {
  std::string data_directory;  // absolute
  std::string rank_binary;
  std::string address;  // this node's numeric address, on which ranks listen
  int64_t pacing_bytes_per_second = 0;
  std::string copies_directory;                    // an absolute path; empty: the node keeps no in-memory checkpoints
  Bytes copies_limit;                              // 0: as much as the memory can hold
  Nanos grace{5'000'000'000};                      // the time from SIGTERM to SIGKILL
  Nanos hang_limit = RankConfig().progress_limit;  // for ranks without peers (hang_watch.h)
  size_t kept_folders = 50;                        // the number of folders of ended ranks that are kept
  JobUser user;                                    // the user that ranks run as
  AllowedPaths allowed;                            // where the ranks' data and checkpoints may be
  std::string oom_counter = "/proc/vmstat";        // counts out-of-memory kills (node/oom_kills.h)

  std::string lease_file() const { return data_directory + "/lease"; }  // worker/contract/lease_file.h
};

class RankSupervisor {
 public:
  // Takes the data directory's lock and adds the running ranks to the table. Returns FailedPrecondition if another daemon has
  // the lock.
  static absl::StatusOr<std::unique_ptr<RankSupervisor>> Open(SupervisorOptions options, const Clock& clock,
                                                              WorkerMetrics& metrics);

  // Sets the desired state, which has all ranks that the server wants. Before the first call the supervisor changes nothing.
  void SetDesired(const v1::WorkerDesired& desired);
  // Ends every rank. Later calls of SetDesired start no ranks, but still handle acknowledgements and ended jobs.
  void StopAll();
  // Handles what has happened, and does what is due now. Call it when a watched descriptor is readable, after SetDesired, and
  // every kTick while Busy returns true.
  void Step();

  bool Busy() const;     // true if Step must be called every kTick
  bool AnyRuns() const;  // true if a rank process runs
  std::vector<int> WatchedFds() const;

  // Call it when a new stream to the server begins. Then the supervisor sends again what the server has not acknowledged.
  void Rewind();
  bool HasNews() const;
  // Adds the status of all ranks to the report, and as many rank reports and log lines as fit into one message.
  void Fill(v1::WorkerReport& report);

  std::string lease_file() const { return options_.lease_file(); }

  static constexpr Nanos kTick{100'000'000};

 private:
  struct Rank {
    RankPhase phase = RankPhase::kListening;
    StoredRank record;
    UniqueFd socket;                    // valid in phase kListening
    UniqueFd pidfd;                     // valid in phase kRunning
    StopStage stop = StopStage::kNone;  // kNone unless the phase is kRunning
    Nanos asked_at;
    bool yield = false;  // in phase kRunning: the rank has been asked to give way
    ReportTail reports;
    LogTail log;
    std::optional<HangWatch> watch;  // in phase kRunning, if the rank has no peers
    Nanos hung;                      // it was killed after this time without progress; 0: it was not
    bool measured = false;           // the metrics have series for this rank
    bool end_reported = false;       // the rank's end (kExited) has been reported
    bool released = false;           // the server needs nothing more from the rank
  };
  struct Wanted {
    v1::RankAssignment assignment;
    DesiredRank rank;
  };

  RankSupervisor(SupervisorOptions options, UniqueFd lock, const Clock& clock, WorkerMetrics& metrics);

  RankFolder Folder(const RankKey& key) const { return FolderOf(ranks_directory_, key); }
  Rank& Insert(const RankKey& key, RankPhase phase);
  void Adopt(const RankKey& key);
  void TakeUpEnded(const RankKey& key);
  std::optional<ProcessIdentity> FindStarted(const RankKey& key) const;

  void Reap();
  void KillHanging();
  void ReadTails();
  void ReadTails(Rank& rank);
  void ReconcileOnce();
  void Execute(const RankOperation& operation);
  void Listen(const RankKey& key);
  void Start(const RankKey& key);
  void Refuse(const RankKey& key, const std::string& reason, FaultCause cause = FaultCause::kUnknown);
  void Signal(Rank& rank, StopStage stage);
  void SetYield(Rank& rank, bool yield);
  void Forget(const RankKey& key);
  void End(Rank& rank, const RankEnding& ending);
  void CountRunning();
  void RemoveEndedCopies(const v1::WorkerDesired& desired);

  void FillReports(const RankKey& key, Rank& rank, v1::WorkerReport& report, size_t& report_bytes) const;
  void FillStatus(const RankKey& key, Rank& rank, v1::RankStatus& status) const;

  const SupervisorOptions options_;
  const std::string ranks_directory_;
  const UniqueFd lock_;
  const Clock& clock_;
  WorkerMetrics& metrics_;
  std::map<RankKey, Rank> ranks_;
  std::optional<std::map<RankKey, Wanted>> wanted_;  // nullopt until the first SetDesired
  OomKills oom_kills_;
  bool stopping_ = false;
  bool changed_ = true;  // something has changed since the last Fill
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_SUPERVISOR_H_
