// RankReport is what a rank process reports to its worker daemon. The rank appends reports to a file, one JSON object per line.
// The daemon reads the file and sends each report to the server as a message with the same fields. rank_report_fields.h has the
// names and limits of the fields. Plain data.
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

// The rank has connected to its peers, has its states, and is about to run its first step.
struct RankReady {
  int64_t next_step = 0;  // counted from 0
  Bytes arena;            // the allocated size
  Bytes states;           // the allocated size of weights, gradients and optimizer moments
  std::string backend;
  // True: the states come from in-memory checkpoints. False: they come from a checkpoint on disk, or have their initial values.
  bool from_copies = false;
  bool operator==(const RankReady&) const = default;
};

// A rank sends it if in-memory checkpoints are not written, or do not work as they should. Training continues.
struct CopiesNotice {
  std::string reason;
  bool operator==(const CopiesNotice&) const = default;
};

// Rank 0 sends it before its RankReady, if the ranks have checked their devices and links (worker/rank/check/node_check.h) and
// found no fault.
struct NodeCheckReport {
  Nanos duration;
  int32_t devices = 0;
  int32_t links = 0;  // number of checked pairs of ranks
  // The rate of the slowest link in one direction, measured while the other direction is used too; 0 if there are no links.
  int64_t slowest_bytes_per_second = 0;
  bool operator==(const NodeCheckReport&) const = default;
};

// The load of experts in a step. Rows are those of forward passes, over all layers and microbatches: a token is a row once for
// each of its experts. The even share is what each rank of an expert group, or each of its experts, would receive if the router
// spread all rows evenly and dropped none. So the numbers are a summary, of the same size for any number of experts.
//
// `skew` is a mean over the dispatches of the step, so that a rank that is full in one layer and empty in the next counts as
// even. It is comparable with MoeSpec::skew.
struct ExpertLoad {
  // The fields up to `fullest_rank` describe the whole job. They have the same values on all ranks.
  int64_t rows_routed = 0;
  int64_t rows_dropped = 0;  // rows among rows_routed that were dropped because their room was full (MoeSpec::capacity)
  // With MoeSpec::dropless: of the rows routed, those that went through rounds because their room was full; the number of
  // rounds, where one of an expert group counts once; and the largest number of rounds of one dispatch.
  int64_t rows_in_rounds = 0;
  int64_t rounds = 0;
  int64_t most_rounds = 0;
  double skew = 0;           // largest number of rows that a rank received, as a multiple of the even share
  int32_t fullest_rank = 0;  // that rank
  // The other fields describe this rank. They are 0 if it has no layers with experts.
  int64_t rows = 0;             // rows that its experts received
  double fullest_dispatch = 0;  // rows in the fullest dispatch (of one layer and microbatch), as a multiple of the even share
  double fullest_expert = 0;    // rows of its fullest expert, as a multiple of an expert's even share
  double median_expert = 0;     // rows of the median expert; of two middle ones, the upper
  double emptiest_expert = 0;

  bool any() const { return rows_routed > 0; }  // false if the model has no experts
  // The share of the rows routed that was dropped.
  double dropped() const { return ShareOfRouted(rows_dropped); }
  // The share of the rows routed that went through rounds.
  double in_rounds() const { return ShareOfRouted(rows_in_rounds); }
  double ShareOfRouted(int64_t of_rows) const {
    return any() ? static_cast<double>(of_rows) / static_cast<double>(rows_routed) : 0;
  }
  bool operator==(const ExpertLoad&) const = default;
};

struct StepReport {
  int64_t step = 0;  // counted from 0; reported when the step is done
  double loss = 0;   // mean over the global batch, nats per token
  double gradient_norm = 0;
  double lr = 0;
  int64_t tokens = 0;  // number of tokens in the global batch
  Nanos duration;
  // Times on this rank's compute stream. Together with `optimizer` they add up to about `duration`.
  Nanos forward, backward, weight, recompute_hidden, recompute_exposed;
  Nanos tensor_wait, stall, data_parallel_wait, norm_wait;  // exposed communication, by kind
  Nanos optimizer;
  // The time before the step's computation in which the rank waits for the step's tokens. Memory-mapped files are read then.
  Nanos data_wait;
  // The time that training waited for checkpoints, on disk and in memory, since the last report.
  Nanos checkpoint;
  Bytes arena_peak;         // the highest byte of the arena that a step has written, including the padding of its buffer
  int64_t bytes_sent = 0;   // number of bytes in this step
  Nanos communication_cpu;  // CPU time of the communication thread in this step
  // The time in the step in which the compute thread was ready to run, but other threads used its core. The times above contain
  // it too.
  Nanos core_wait;
  // The number of steps done at the newest in-memory checkpoint that all ranks know to be whole; 0 if there is none yet.
  int64_t copied_steps = 0;
  // The number of in-memory checkpoints of this generation that failed, or that were due but not begun: the previous one was
  // not finished, or one had failed a few steps before.
  int64_t copies_skipped = 0;
  // The memory of the rank's process in RAM at the end of the step, without in-memory checkpoints in shared files.
  Bytes resident;
  // The use of links in this step, ascending by peer; at most kMaxLinkUses entries. Empty if the use is not known.
  std::vector<LinkUse> links;
  ExpertLoad experts;
  bool operator==(const StepReport&) const = default;
};

// Rank 0 sends it after a step that made no update, because its loss or its gradient norm was not finite: see
// train.onNonFinite.
struct StepSkipped {
  int64_t step = 0;  // counted from 0
  std::string reason;
  bool operator==(const StepSkipped&) const = default;
};

// Rank 0 sends it: the loss on the validation data.
struct EvaluationReport {
  int64_t step = 0;  // number of steps done
  double loss = 0;   // mean over all tokens of the evaluation, in nats per token
  int64_t tokens = 0;
  Nanos duration;
  bool operator==(const EvaluationReport&) const = default;
};

// Rank 0 sends it when a checkpoint becomes visible. It also sends it before its RankReady for the checkpoint that it resumes
// from, if the server may not know that checkpoint.
struct CheckpointReport {
  int64_t step = 0;  // number of steps done
  std::string path;
  Bytes bytes;  // the size of all files
  bool operator==(const CheckpointReport&) const = default;
};
// Rank 0 sends it if a checkpoint could not be written. Training continues. For the checkpoint of the last step it is sent
// once, before the retries.
struct CheckpointFailure {
  int64_t step = 0;
  std::string reason;
  bool operator==(const CheckpointFailure&) const = default;
};

// A part of one step's trace. The first rank of each pipeline rank sends it; the parts come in order.
// planner/report/step_trace.h says when it is sent and what `times` holds.
struct TraceReport {
  int64_t step = 0;     // counted from 0
  int32_t actions = 0;  // number of actions in the whole program
  int32_t first = 0;    // index of the first action in this part
  std::vector<int64_t> times;
  bool operator==(const TraceReport&) const = default;
};

// The rank has done all steps.
struct RankDone {
  int64_t steps = 0;
  bool operator==(const RankDone&) const = default;
};

// The run was asked to give way. All ranks agreed on the step after which it does so, and the checkpoint of this step is
// visible.
struct RankYielded {
  int64_t steps = 0;  // number of steps done
  bool operator==(const RankYielded&) const = default;
};

// The rank ends with an error. `peer_lost` distinguishes the loss of a peer from a fault of this rank.
struct RankFailure {
  std::string reason;
  bool peer_lost = false;  // true if this rank only noticed that another rank has ended
  FaultCause cause = FaultCause::kUnknown;
  std::vector<int32_t> peers;  // for the cause kLink: the ranks at the other ends of the bad links
  bool operator==(const RankFailure&) const = default;
};

using RankReport = std::variant<RankReady, StepReport, StepSkipped, EvaluationReport, TraceReport, CheckpointReport,
                                CheckpointFailure, RankDone, RankYielded, RankFailure, CopiesNotice, NodeCheckReport>;

std::string RankReportLine(const RankReport& report);  // without a newline
absl::StatusOr<RankReport> ParseRankReport(const std::string& line);

// Exit codes of a rank process. The worker daemon and the server use them.
inline constexpr int32_t kRankExitOk = 0;
inline constexpr int32_t kRankExitFailure = 1;    // the rank's own fault: bad data, a bad program, full memory
inline constexpr int32_t kRankExitPeerLost = 3;   // a peer has ended; this rank has no fault
inline constexpr int32_t kRankExitCancelled = 4;  // the rank got SIGTERM
inline constexpr int32_t kRankExitYielded = 5;    // the rank gave way after a step, as asked; the step's checkpoint is visible
inline constexpr int32_t kRankExitLeaseOver = 6;  // the rank's node is cut off from the server and may not train any longer
// The exit code that a daemon reports for a rank that a signal has killed.
constexpr int32_t RankExitOfSignal(int signal) { return 128 + signal; }

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_RANK_REPORT_H_
