// RankReport: what a rank process reports to its worker daemon. The rank appends one JSON object per line to a file, and the
// daemon reads the file and sends each report to the server as a message with the same fields. rank_report_fields.h has the
// fields' names and bounds. Plain data.
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

// The rank is connected, has its states, and is about to run its first step.
struct RankReady {
  int64_t next_step = 0;  // 0-based
  Bytes arena;            // allocated
  Bytes states;           // weights, gradients, optimizer, allocated
  std::string backend;
  // The states come from in-memory checkpoints; otherwise from a checkpoint on disk, or they are initial.
  bool from_copies = false;
  bool operator==(const RankReady&) const = default;
};

// From rank 0: in-memory checkpoints are not written, or do not work as they should. Training continues.
struct CopiesNotice {
  std::string reason;
  bool operator==(const CopiesNotice&) const = default;
};

// From rank 0, before its RankReady: the ranks have checked their devices and links (worker/rank/check/node_check.h) and found
// no fault.
struct NodeCheckReport {
  Nanos duration;
  int32_t devices = 0;
  int32_t links = 0;  // between pairs of ranks
  // The rate of the slowest link in one direction, while the other direction is used too; 0: there are no links.
  int64_t slowest_bytes_per_second = 0;
  bool operator==(const NodeCheckReport&) const = default;
};

struct StepReport {
  int64_t step = 0;  // 0-based; reported when done
  double loss = 0;   // mean over the global batch, nats per token
  double gradient_norm = 0;
  double lr = 0;
  int64_t tokens = 0;  // of the global batch
  Nanos duration;
  // Time on this rank's compute stream; the times add up to about `duration`.
  Nanos forward, backward, weight, recompute_hidden, recompute_exposed;
  Nanos tensor_wait, stall, data_parallel_wait, norm_wait;  // exposed communication by kind
  Nanos optimizer;
  Nanos data_wait;          // waiting until the step's tokens are read, before it computes; memory-mapped files are read then
  Nanos checkpoint;         // time that training waited for checkpoints of both kinds since the last report
  Bytes arena_peak;         // highest byte of the arena that a step has written, including the padding of its buffer
  int64_t bytes_sent = 0;   // in this step
  Nanos communication_cpu;  // of the communication thread in this step
  // Time in the step in which the compute thread was ready to run but others used its core. The times above contain it too.
  Nanos core_wait;
  int64_t copied_steps = 0;  // steps done of the newest in-memory checkpoint that all ranks know to be whole; 0: none yet
  // In-memory checkpoints of this generation that failed, or were due while the previous one was not finished.
  int64_t copies_skipped = 0;
  Bytes resident;              // memory of the rank's process in RAM when the step ends, without copies in shared files
  std::vector<LinkUse> links;  // in this step, ascending by peer, at most kMaxLinkUses; empty where nothing is known about them
  bool operator==(const StepReport&) const = default;
};

// From rank 0, after a step whose loss or gradient norm was not finite, so that it updated nothing: see train.onNonFinite.
struct StepSkipped {
  int64_t step = 0;  // 0-based
  std::string reason;
  bool operator==(const StepSkipped&) const = default;
};

// From rank 0: the loss on the validation data.
struct EvaluationReport {
  int64_t step = 0;  // number of steps done
  double loss = 0;   // mean over the evaluation's tokens, nats per token
  int64_t tokens = 0;
  Nanos duration;
  bool operator==(const EvaluationReport&) const = default;
};

// From rank 0, when a checkpoint becomes visible. Also before its RankReady, for the checkpoint that it resumes from, if the
// server may not know that checkpoint.
struct CheckpointReport {
  int64_t step = 0;  // number of steps done
  std::string path;
  Bytes bytes;  // of all files
  bool operator==(const CheckpointReport&) const = default;
};
// From rank 0, when a checkpoint could not be written; training continues. For the last step it is sent once, before the
// retries.
struct CheckpointFailure {
  int64_t step = 0;
  std::string reason;
  bool operator==(const CheckpointFailure&) const = default;
};

// A part of one step's trace, from the first rank of each pipeline rank; the parts come in order. planner/report/step_trace.h
// says when it is sent and what `times` holds.
struct TraceReport {
  int64_t step = 0;     // 0-based
  int32_t actions = 0;  // of the whole program
  int32_t first = 0;    // index of the first action in this part
  std::vector<int64_t> times;
  bool operator==(const TraceReport&) const = default;
};

// All steps are done.
struct RankDone {
  int64_t steps = 0;
  bool operator==(const RankDone&) const = default;
};

// The run was asked to give way; all ranks agreed on the step, and its checkpoint is visible.
struct RankYielded {
  int64_t steps = 0;  // done
  bool operator==(const RankYielded&) const = default;
};

// The rank ends with an error. `peer_lost` distinguishes the loss of a peer from a fault of this rank.
struct RankFailure {
  std::string reason;
  bool peer_lost = false;  // it only noticed that another rank is gone
  FaultCause cause = FaultCause::kUnknown;
  std::vector<int32_t> peers;  // for the cause kLink: the ranks at the other ends
  bool operator==(const RankFailure&) const = default;
};

using RankReport = std::variant<RankReady, StepReport, StepSkipped, EvaluationReport, TraceReport, CheckpointReport,
                                CheckpointFailure, RankDone, RankYielded, RankFailure, CopiesNotice, NodeCheckReport>;

std::string RankReportLine(const RankReport& report);  // without newline
absl::StatusOr<RankReport> ParseRankReport(const std::string& line);

// Exit codes of a rank process. Its daemon and the server use them.
inline constexpr int32_t kRankExitOk = 0;
inline constexpr int32_t kRankExitFailure = 1;    // its own fault: bad data, bad program, full memory
inline constexpr int32_t kRankExitPeerLost = 3;   // a peer is gone; this rank has no fault
inline constexpr int32_t kRankExitCancelled = 4;  // SIGTERM
inline constexpr int32_t kRankExitYielded = 5;    // gave way after a step, as asked; the step's checkpoint is visible
inline constexpr int32_t kRankExitLeaseOver = 6;  // its node is cut off from the server, and may not train any longer
// The exit code that a daemon reports for a rank that a signal has killed.
constexpr int32_t RankExitOfSignal(int signal) { return 128 + signal; }

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_RANK_REPORT_H_
