// RankReport: what a rank process tells its worker daemon, one JSON object a line, in a file that the rank appends to
// and the daemon reads from. The daemon passes it on to the server as a message of the same fields. The fields' names and
// bounds are in rank_report_fields.h. Plain data.
#ifndef LYNX_WORKER_CONTRACT_RANK_REPORT_H_
#define LYNX_WORKER_CONTRACT_RANK_REPORT_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/fault_cause.h"
#include "common/link_use.h"
#include "common/units.h"

namespace lynx {

// Connected, states loaded, about to run its first step.
struct RankReady {
  int64_t next_step = 0;  // 0-based
  Bytes arena;            // allocated
  Bytes states;           // weights, gradients, optimizer, allocated
  std::string backend;
  bool from_copies = false;  // the states are those of copies in memory; else of a checkpoint, or initial
  bool operator==(const RankReady&) const = default;
};

// From rank 0: copies in memory are not made, or are not what they should be. Training goes on.
struct CopiesNotice {
  std::string reason;
  bool operator==(const CopiesNotice&) const = default;
};

// From rank 0, before its RankReady: the ranks have checked their devices and links (rank/node_check.h) and found nothing.
struct NodeCheckReport {
  Nanos duration;
  int32_t devices = 0;
  int32_t links = 0;                     // between pairs of ranks
  int64_t slowest_bytes_per_second = 0;  // of the links, in one direction while the other is used too; 0: there are none
  bool operator==(const NodeCheckReport&) const = default;
};

struct StepReport {
  int64_t step = 0;  // 0-based; reported when done
  double loss = 0;   // mean over the global batch, nats per token
  double gradient_norm = 0;
  double lr = 0;
  int64_t tokens = 0;  // of the global batch
  Nanos duration;
  // Compute stream time of this rank; they sum to about `duration`.
  Nanos forward, backward, weight, recompute_hidden, recompute_exposed;
  Nanos tensor_wait, stall, data_parallel_wait, norm_wait;  // exposed communication by kind
  Nanos optimizer;
  Nanos data_wait;          // to have the step's tokens read, before it computes; memory-mapped files are read then
  Nanos checkpoint;         // that training waited for checkpoints and copies since the last report
  Bytes arena_peak;         // highest byte of the arena that a step has been seen to write, with its buffer's padding
  int64_t bytes_sent = 0;   // in this step
  Nanos communication_cpu;  // of the communication thread in this step
  Nanos core_wait;  // of the step, the compute thread was ready to run while others had its core; within the times above
  int64_t copied_steps = 0;    // steps done of the newest copy in memory that all ranks know to be whole; 0: none yet
  int64_t copies_skipped = 0;  // of this generation: due while the one before was under way, or failed
  std::vector<LinkUse> links;  // in this step, ascending by peer, at most kMaxLinkUses; empty where nothing is known of them
  bool operator==(const StepReport&) const = default;
};

// From rank 0, after a step whose loss or gradient norm was not finite and whose update was left out: see
// train.onNonFinite.
struct StepSkipped {
  int64_t step = 0;  // 0-based
  std::string reason;
  bool operator==(const StepSkipped&) const = default;
};

// From rank 0, of the validation data.
struct EvaluationReport {
  int64_t step = 0;  // number of steps done
  double loss = 0;   // mean over the evaluation's tokens, nats per token
  int64_t tokens = 0;
  Nanos duration;
  bool operator==(const EvaluationReport&) const = default;
};

// From rank 0, when a checkpoint is visible; before its RankReady, of the one that it resumes from, if the server may not
// know that one.
struct CheckpointReport {
  int64_t step = 0;  // number of steps done
  std::string path;
  Bytes bytes;  // of all files
  bool operator==(const CheckpointReport&) const = default;
};
// From rank 0, when one could not be written; training goes on. Of the last step: once, before it is tried again.
struct CheckpointFailure {
  int64_t step = 0;
  std::string reason;
  bool operator==(const CheckpointFailure&) const = default;
};

// A part of one step's trace, from the first rank of each pipeline rank; parts come in order. planner/report/step_trace.h says
// when, and what `times` holds.
struct TraceReport {
  int64_t step = 0;     // 0-based
  int32_t actions = 0;  // of the whole program
  int32_t first = 0;    // action that this part begins with
  std::vector<int64_t> times;
  bool operator==(const TraceReport&) const = default;
};

// All steps are done.
struct RankDone {
  int64_t steps = 0;
  bool operator==(const RankDone&) const = default;
};

// The run was asked to give way, all ranks agreed on the step, and the checkpoint of it is visible.
struct RankYielded {
  int64_t steps = 0;  // done
  bool operator==(const RankYielded&) const = default;
};

// The rank ends with an error. `peer_lost` tells a peer's loss from a rank's own fault.
struct RankFailure {
  std::string reason;
  bool peer_lost = false;  // it only noticed that another rank is gone
  FaultCause cause = FaultCause::kUnknown;
  std::vector<int32_t> peers;  // of kLink: the ranks at the other ends
  bool operator==(const RankFailure&) const = default;
};

using RankReport = std::variant<RankReady, StepReport, StepSkipped, EvaluationReport, TraceReport, CheckpointReport,
                                CheckpointFailure, RankDone, RankYielded, RankFailure, CopiesNotice, NodeCheckReport>;

std::string RankReportLine(const RankReport& report);  // without newline
absl::StatusOr<RankReport> ParseRankReport(const std::string& line);

// Exit codes of a rank process, as its daemon and the server read them.
inline constexpr int32_t kRankExitOk = 0;
inline constexpr int32_t kRankExitFailure = 1;    // its own fault: bad data, bad program, full memory
inline constexpr int32_t kRankExitPeerLost = 3;   // a peer is gone; nothing is wrong here
inline constexpr int32_t kRankExitCancelled = 4;  // SIGTERM
inline constexpr int32_t kRankExitYielded = 5;    // gave way after a step, as asked: its checkpoint is there
inline constexpr int32_t kRankExitLeaseOver = 6;  // its node is cut off, and may not train any longer
// What a daemon reports of a rank that a signal has killed.
constexpr int32_t RankExitOfSignal(int signal) { return 128 + signal; }

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_RANK_REPORT_H_
