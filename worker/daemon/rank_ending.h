// DescribeEnding: how a rank process ended, judged by its exit status, its last report and the last line that it wrote. Pure.
#ifndef LYNX_WORKER_DAEMON_RANK_ENDING_H_
#define LYNX_WORKER_DAEMON_RANK_ENDING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "node/process.h"
#include "worker/contract/rank_report.h"
#include "worker/daemon/reconcile.h"

namespace lynx::worker {

// How the rank ended, for metrics and logs.
enum class RankOutcome : uint8_t { kDone, kFailed, kPeerLost, kStopped, kKilled };
const char* RankOutcomeName(RankOutcome outcome);  // "done", "failed", "peer_lost", "stopped", "killed"

struct RankEnding {
  int32_t exit_code = 0;  // 0 = all its steps are done; kRankExitYielded; 128 + signal
  std::string reason;     // a sentence; empty when exit_code is 0
  bool peer_lost = false;
  RankOutcome outcome = RankOutcome::kDone;
  FaultCause cause = FaultCause::kUnknown;
  bool operator==(const RankEnding&) const = default;
};

struct EndingFacts {
  // nullopt: the process is not a child of this daemon, because an earlier daemon started it. Then the report decides.
  std::optional<ExitStatus> exit;
  std::optional<RankReport> last_report;  // the last done, yielded or failure report, if there is one
  std::string last_line;                  // last line of standard error
  // True if the kernel's out-of-memory killer ended a process of this node at about the time when this process ended.
  bool oom_kill = false;
  StopStage stop = StopStage::kNone;  // whether this daemon was ending the process
};

RankEnding DescribeEnding(const EndingFacts& facts);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_RANK_ENDING_H_
