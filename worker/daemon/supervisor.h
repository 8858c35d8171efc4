// RankSupervisor: manages the ranks of this node. It holds the table of existing ranks and changes it to what the server wants
// (Reconcile). It starts, stops and reaps rank processes, and composes reports about them.
//
// Ranks outlive the supervisor: each leads a session of its own. A new supervisor on the same data directory finds them by
// their records and watches them by pidfd, although they are not its children. If a supervisor ends, only the bound sockets of
// ranks that had not been started (kListening) are lost. The next supervisor does not have such a rank in its table, and binds
// a new socket. If the server had already sent the old address to the peers, the rank is refused with a sentence that says so.
//
// The end of a rank is reported in the message with its last reports, or in a later one, never before. A rank that has ended is
// kept, and the next supervisor reports it again, until the server releases it. So its last reports arrive even if it ended
// because it was no longer wanted.
//
// Not thread-safe: one owner thread. Step blocks only to write to the data directory.
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
#include "worker/daemon/allowed_paths.h"
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
  std::string copies_directory;              // absolute; empty: the node keeps no in-memory checkpoints
  Bytes copies_limit;                        // 0: as much as fits into the memory
  Nanos grace{5'000'000'000};                // from SIGTERM to SIGKILL
  size_t kept_folders = 50;                  // of ended ranks
  JobUser user;                              // the user that ranks run as
  AllowedPaths allowed;                      // where their data and checkpoints may be
  std::string oom_counter = "/proc/vmstat";  // node/oom_kills.h

  std::string lease_file() const { return data_directory + "/lease"; }  // worker/contract/lease_file.h
};

class RankSupervisor {
 public:
  // Takes the data directory's lock and adopts the running ranks. FailedPrecondition when another daemon has the lock.
  static absl::StatusOr<std::unique_ptr<RankSupervisor>> Open(SupervisorOptions options, const Clock& clock,
                                                              WorkerMetrics& metrics);

  // Sets the desired state, with all ranks that the server wants. Before the first call the supervisor changes nothing.
  void SetDesired(const v1::WorkerDesired& desired);
  // Ends every rank. Later calls of SetDesired have no effect.
  void StopAll();
  // Looks at what has happened and does what is due now. Call it when a watched descriptor is readable, after SetDesired, and
  // every kTick while Busy.
  void Step();

  bool Busy() const;     // there is something to look at or to wait for
  bool AnyRuns() const;  // whether a rank process runs
  std::vector<int> WatchedFds() const;

  // Call it for a new stream: sends again what the server has not acknowledged.
  void Rewind();
  bool HasNews() const;
  // Adds all ranks to the report, and as many rank reports and log lines as one message may hold.
  void Fill(v1::WorkerReport& report);

  std::string lease_file() const { return options_.lease_file(); }

  static constexpr Nanos kTick{100'000'000};

 private:
  struct Rank {
    RankPhase phase = RankPhase::kListening;
    StoredRank record;
    UniqueFd socket;                    // kListening
    UniqueFd pidfd;                     // kRunning
    StopStage stop = StopStage::kNone;  // kRunning
    Nanos asked_at;
    bool yield = false;  // kRunning: asked to give way
    ReportTail reports;
    LogTail log;
    bool measured = false;      // its series exist in the metrics
    bool end_reported = false;  // kExited has been reported
    bool released = false;      // the server needs nothing more of it
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
  std::optional<std::map<RankKey, Wanted>> wanted_;  // nullopt: not yet known
  OomKills oom_kills_;
  bool stopping_ = false;
  bool changed_ = true;  // since the last Fill
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_SUPERVISOR_H_
