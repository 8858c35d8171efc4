// DescribeEnding says how a rank process ended. It judges by the exit status, the last report, the last line of standard error,
// and what the daemon knows (EndingFacts). Pure.
#ifndef LYNX_WORKER_DAEMON_RANK_ENDING_H_
#define LYNX_WORKER_DAEMON_RANK_ENDING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/units.h"
#include "node/process.h"
#include "worker/contract/rank_report.h"
#include "worker/daemon/reconcile.h"

namespace lynx::worker {

// How the rank ended, for metrics and logs.
enum class RankOutcome : uint8_t { kDone, kFailed, kPeerLost, kStopped, kKilled };
const char* RankOutcomeName(RankOutcome outcome);  // "done", "failed", "peer_lost", "stopped", "killed"

struct RankEnding {
  int32_t exit_code = 0;  // 0: all steps are done; kRankExitYielded: gave way; 128 + signal: ended by a signal
  std::string reason;     // a sentence; empty when exit_code is 0
  bool peer_lost = false;
  RankOutcome outcome = RankOutcome::kDone;
  FaultCause cause = FaultCause::kUnknown;
  bool operator==(const RankEnding&) const = default;
};

struct EndingFacts {
  // nullopt: an earlier daemon started the process, so it is not a child of this daemon. Then the report decides.
  std::optional<ExitStatus> exit;
  std::optional<RankReport> last_report;  // the last report that says that the rank is done, gave way or failed
  std::string last_line;                  // the last line of standard error
  // True if the kernel's out-of-memory killer ended a process of this node at about the time at which this process ended.
  bool oom_kill = false;
  StopStage stop = StopStage::kNone;  // how far this daemon was in ending the process
  // For how long the rank had made no progress when this daemon killed it for that (hang_watch.h); 0: it did not.
  Nanos hung;
};

RankEnding DescribeEnding(const EndingFacts& facts);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_RANK_ENDING_H_
