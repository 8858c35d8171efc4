// Describes the fields of each rank report once: names, limits and order. The rank's file (rank_report.cc) and the protocol
// (proto/convert_report.cc) are both read and written by these descriptions. A new field of a report needs a member in
// rank_report.h, a line here, and a field of the same name in proto/lynx/v1/cluster.proto.
//
// `Describe(fields, report)` calls one function of `fields` for each field. A message that violates a limit is refused. When
// the rank's file is read, limits are not checked, because the server checks them later.
//   Field(name, member)                     bool; or double, which is infinite or NaN if a run diverges
//   Number(name, member, limits)            int32_t, int64_t, Bytes or Nanos
//   Finite(name, member)                    double
//   Text(name, member, most)                at most `most` bytes
//   Path(name, member)                      an absolute path
//   Cause(name, member)                     FaultCause; a cause that the reader does not know becomes kUnknown
//   Numbers(name, member, limits, counts)   a list; its numbers are within `limits`, its length is within `counts`
//   OptionalObject(name, member)            a struct that has a description of its own; absent in a message if it has its
//   default Objects(name, member, counts)           a list of structs that have a description of their own Has(name) false if a
//   writer of an earlier release did not write the field
#ifndef LYNX_WORKER_CONTRACT_RANK_REPORT_FIELDS_H_
#define LYNX_WORKER_CONTRACT_RANK_REPORT_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "planner/problem/field.h"
#include "planner/report/step_trace.h"
#include "worker/contract/rank_report.h"

namespace lynx {

namespace report_limits {
inline constexpr FieldLimits kSteps{0, kMaxWireSteps};
inline constexpr FieldLimits kTimes{0, kMaxWireNanos};
inline constexpr FieldLimits kSizes{0, kMaxWireBytes};
inline constexpr FieldLimits kRanks{0, kMaxWireRanks};
inline constexpr FieldLimits kRankNumbers{0, kMaxWireRanks - 1};
inline constexpr FieldLimits kPairs{0, kMaxWireRanks* kMaxWireRanks};
inline constexpr FieldLimits kRates{0, kMaxWireRate};
inline constexpr FieldLimits kTokens{0, int64_t{1} << 50};
inline constexpr FieldLimits kRows{0, int64_t{1} << 60};
inline constexpr FieldLimits kActions{1, 1 << 24};
inline constexpr FieldLimits kFirstActions{0, 1 << 24};
inline constexpr FieldLimits kPeers{0, 4096};
inline constexpr FieldLimits kLinks{0, kMaxLinkUses};
inline constexpr FieldLimits kTraceTimes{kTimesPerAction, kTimesPerAction* kTraceActionsPerPart};
inline constexpr size_t kReason = 64 * 1024;  // the largest size of a reason, in bytes
inline constexpr size_t kName = 256;
}  // namespace report_limits

// Returns the kind of a report: its `type` in the rank's file, and its field in the protocol's oneof.
constexpr auto ReportKind(const RankReady&) { return LYNX_FIELD(ready); }
constexpr auto ReportKind(const StepReport&) { return LYNX_FIELD(step); }
constexpr auto ReportKind(const StepSkipped&) { return LYNX_FIELD(skipped); }
constexpr auto ReportKind(const EvaluationReport&) { return LYNX_FIELD(evaluation); }
constexpr auto ReportKind(const TraceReport&) { return LYNX_FIELD(trace); }
constexpr auto ReportKind(const CheckpointReport&) { return LYNX_FIELD(checkpoint); }
constexpr auto ReportKind(const CheckpointFailure&) { return LYNX_FIELD(checkpoint_failure); }
constexpr auto ReportKind(const RankDone&) { return LYNX_FIELD(done); }
constexpr auto ReportKind(const RankYielded&) { return LYNX_FIELD(yielded); }
constexpr auto ReportKind(const CopiesNotice&) { return LYNX_FIELD(copies); }
constexpr auto ReportKind(const NodeCheckReport&) { return LYNX_FIELD(node_check); }
constexpr auto ReportKind(const RankFailure&) { return LYNX_FIELD(failure); }

template <class Fields>
void Describe(Fields& fields, RankReady& ready) {
  fields.Number(LYNX_FIELD(next_step), ready.next_step, report_limits::kSteps);
  fields.Number(LYNX_FIELD(arena_bytes), ready.arena, report_limits::kSizes);
  // The name "states_bytes" in files is older than the name in messages. Ranks of earlier releases write it, and these ranks
  // can outlive an upgrade of their daemon.
  fields.Number(LYNX_FIELD(state_bytes).InFiles("states_bytes"), ready.states, report_limits::kSizes);
  fields.Text(LYNX_FIELD(backend), ready.backend, report_limits::kName);
  fields.Field(LYNX_FIELD(from_copies), ready.from_copies);
}

template <class Fields>
void Describe(Fields& fields, CopiesNotice& notice) {
  fields.Text(LYNX_FIELD(reason), notice.reason, report_limits::kReason);
}

template <class Fields>
void Describe(Fields& fields, NodeCheckReport& check) {
  fields.Number(LYNX_FIELD(duration_ns), check.duration, report_limits::kTimes);
  fields.Number(LYNX_FIELD(devices), check.devices, report_limits::kRanks);
  fields.Number(LYNX_FIELD(links), check.links, report_limits::kPairs);
  fields.Number(LYNX_FIELD(slowest_bytes_per_second), check.slowest_bytes_per_second, report_limits::kRates);
}

template <class Fields>
void Describe(Fields& fields, LinkUse& link) {
  fields.Number(LYNX_FIELD(peer), link.peer, report_limits::kRankNumbers);
  fields.Number(LYNX_FIELD(bytes), link.bytes, report_limits::kSizes);
  fields.Number(LYNX_FIELD(busy_ns), link.busy, report_limits::kTimes);
}

template <class Fields>
void Describe(Fields& fields, ExpertLoad& load) {
  fields.Number(LYNX_FIELD(rows_routed), load.rows_routed, report_limits::kRows);
  fields.Number(LYNX_FIELD(rows_dropped), load.rows_dropped, report_limits::kRows);
  fields.Number(LYNX_FIELD(rows_in_rounds), load.rows_in_rounds, report_limits::kRows);
  fields.Number(LYNX_FIELD(rounds), load.rounds, report_limits::kRows);
  fields.Number(LYNX_FIELD(most_rounds), load.most_rounds, report_limits::kRows);
  fields.Finite(LYNX_FIELD(skew), load.skew);
  fields.Number(LYNX_FIELD(fullest_rank), load.fullest_rank, report_limits::kRankNumbers);
  fields.Number(LYNX_FIELD(rows), load.rows, report_limits::kRows);
  fields.Finite(LYNX_FIELD(fullest_dispatch), load.fullest_dispatch);
  fields.Finite(LYNX_FIELD(fullest_expert), load.fullest_expert);
  fields.Finite(LYNX_FIELD(median_expert), load.median_expert);
  fields.Finite(LYNX_FIELD(emptiest_expert), load.emptiest_expert);
}

template <class Fields>
void Describe(Fields& fields, StepReport& step) {
  fields.Number(LYNX_FIELD(step), step.step, report_limits::kSteps);
  fields.Field(LYNX_FIELD(loss), step.loss);
  fields.Field(LYNX_FIELD(gradient_norm), step.gradient_norm);
  fields.Finite(LYNX_FIELD(lr), step.lr);
  fields.Number(LYNX_FIELD(tokens), step.tokens, report_limits::kTokens);
  fields.Number(LYNX_FIELD(duration_ns), step.duration, report_limits::kTimes);
  fields.Number(LYNX_FIELD(forward_ns), step.forward, report_limits::kTimes);
  fields.Number(LYNX_FIELD(backward_ns), step.backward, report_limits::kTimes);
  fields.Number(LYNX_FIELD(weight_ns), step.weight, report_limits::kTimes);
  fields.Number(LYNX_FIELD(recompute_hidden_ns), step.recompute_hidden, report_limits::kTimes);
  fields.Number(LYNX_FIELD(recompute_exposed_ns), step.recompute_exposed, report_limits::kTimes);
  fields.Number(LYNX_FIELD(tensor_wait_ns), step.tensor_wait, report_limits::kTimes);
  fields.Number(LYNX_FIELD(stall_ns), step.stall, report_limits::kTimes);
  fields.Number(LYNX_FIELD(data_parallel_wait_ns), step.data_parallel_wait, report_limits::kTimes);
  fields.Number(LYNX_FIELD(norm_wait_ns), step.norm_wait, report_limits::kTimes);
  fields.Number(LYNX_FIELD(optimizer_ns), step.optimizer, report_limits::kTimes);
  if (fields.Has(LYNX_FIELD(data_wait_ns))) fields.Number(LYNX_FIELD(data_wait_ns), step.data_wait, report_limits::kTimes);
  fields.Number(LYNX_FIELD(checkpoint_ns), step.checkpoint, report_limits::kTimes);
  fields.Number(LYNX_FIELD(arena_peak_bytes), step.arena_peak, report_limits::kSizes);
  fields.Number(LYNX_FIELD(bytes_sent), step.bytes_sent, report_limits::kSizes);
  fields.Number(LYNX_FIELD(communication_cpu_ns), step.communication_cpu, report_limits::kTimes);
  if (fields.Has(LYNX_FIELD(core_wait_ns))) fields.Number(LYNX_FIELD(core_wait_ns), step.core_wait, report_limits::kTimes);
  fields.Number(LYNX_FIELD(copied_steps), step.copied_steps, report_limits::kSteps);
  fields.Number(LYNX_FIELD(copies_skipped), step.copies_skipped, report_limits::kSteps);
  if (fields.Has(LYNX_FIELD(resident_bytes))) fields.Number(LYNX_FIELD(resident_bytes), step.resident, report_limits::kSizes);
  if (fields.Has(LYNX_FIELD(links))) fields.Objects(LYNX_FIELD(links), step.links, report_limits::kLinks);
  if (fields.Has(LYNX_FIELD(experts))) fields.OptionalObject(LYNX_FIELD(experts), step.experts);
}

template <class Fields>
void Describe(Fields& fields, StepSkipped& skipped) {
  fields.Number(LYNX_FIELD(step), skipped.step, report_limits::kSteps);
  fields.Text(LYNX_FIELD(reason), skipped.reason, report_limits::kReason);
}

template <class Fields>
void Describe(Fields& fields, EvaluationReport& evaluation) {
  fields.Number(LYNX_FIELD(step), evaluation.step, report_limits::kSteps);
  fields.Field(LYNX_FIELD(loss), evaluation.loss);
  fields.Number(LYNX_FIELD(tokens), evaluation.tokens, report_limits::kTokens);
  fields.Number(LYNX_FIELD(duration_ns), evaluation.duration, report_limits::kTimes);
}

template <class Fields>
void Describe(Fields& fields, TraceReport& trace) {
  fields.Number(LYNX_FIELD(step), trace.step, report_limits::kSteps);
  fields.Number(LYNX_FIELD(actions), trace.actions, report_limits::kActions);
  fields.Number(LYNX_FIELD(first), trace.first, report_limits::kFirstActions);
  fields.Numbers(LYNX_FIELD(times), trace.times, report_limits::kTimes, report_limits::kTraceTimes);
}

template <class Fields>
void Describe(Fields& fields, CheckpointReport& checkpoint) {
  fields.Number(LYNX_FIELD(step), checkpoint.step, report_limits::kSteps);
  fields.Path(LYNX_FIELD(path), checkpoint.path);
  fields.Number(LYNX_FIELD(bytes), checkpoint.bytes, report_limits::kSizes);
}

template <class Fields>
void Describe(Fields& fields, CheckpointFailure& failure) {
  fields.Number(LYNX_FIELD(step), failure.step, report_limits::kSteps);
  fields.Text(LYNX_FIELD(reason), failure.reason, report_limits::kReason);
}

template <class Fields>
void Describe(Fields& fields, RankDone& done) {
  fields.Number(LYNX_FIELD(steps), done.steps, report_limits::kSteps);
}

template <class Fields>
void Describe(Fields& fields, RankYielded& yielded) {
  fields.Number(LYNX_FIELD(steps), yielded.steps, report_limits::kSteps);
}

template <class Fields>
void Describe(Fields& fields, RankFailure& failure) {
  fields.Text(LYNX_FIELD(reason), failure.reason, report_limits::kReason);
  fields.Field(LYNX_FIELD(peer_lost), failure.peer_lost);
  fields.Cause(LYNX_FIELD(cause), failure.cause);
  fields.Numbers(LYNX_FIELD(peers), failure.peers, report_limits::kRankNumbers, report_limits::kPeers);
}

// A mistake in the relation of several fields, each of which is valid alone.
struct FieldMistake {
  std::string field, value, rule;  // "links[1].peer", "4", "must be above that before it, 4"
};
template <class Report>
std::optional<FieldMistake> MistakeBetweenFields(const Report&) {
  return std::nullopt;
}
inline std::optional<FieldMistake> MistakeBetweenFields(const StepReport& step) {
  for (size_t i = 1; i < step.links.size(); ++i) {
    const int32_t peer = step.links[i].peer, before = step.links[i - 1].peer;
    if (peer > before) continue;
    return FieldMistake{absl::StrCat("links[", i, "].peer"), absl::StrCat(peer),
                        absl::StrCat("must be above that before it, ", before)};
  }
  const ExpertLoad& load = step.experts;
  const std::pair<const char*, int64_t> parts[] = {{"rows_dropped", load.rows_dropped},
                                                   {"rows_in_rounds", load.rows_in_rounds}};
  for (const auto& [name, rows] : parts) {
    if (rows <= load.rows_routed) continue;
    return FieldMistake{absl::StrCat("experts.", name), absl::StrCat(rows),
                        absl::StrCat("must be at most the rows routed, ", load.rows_routed)};
  }
  const std::pair<const char*, double> multiples[] = {{"skew", load.skew},
                                                      {"fullest_dispatch", load.fullest_dispatch},
                                                      {"fullest_expert", load.fullest_expert},
                                                      {"median_expert", load.median_expert},
                                                      {"emptiest_expert", load.emptiest_expert}};
  for (const auto& [name, value] : multiples) {
    if (value < 0) return FieldMistake{absl::StrCat("experts.", name), absl::StrCat(value), "must be 0 or more"};
  }
  return std::nullopt;
}
// The times of a part of a trace must belong to whole actions, and these actions must be within the program.
inline std::optional<FieldMistake> MistakeBetweenFields(const TraceReport& trace) {
  if (trace.times.size() % kTimesPerAction != 0) {
    return FieldMistake{"times", absl::StrCat(trace.times.size(), " entries"),
                        absl::StrCat("must have ", kTimesPerAction, " for each action")};
  }
  const int64_t last = trace.actions - static_cast<int64_t>(trace.times.size() / kTimesPerAction);
  if (trace.first >= 0 && trace.first <= last) return std::nullopt;
  return FieldMistake{"first", absl::StrCat(trace.first), absl::StrCat("must be from 0 to ", last)};
}

// Returns an empty report of the kind, or nullopt if there is no such kind.
template <class... Reports>
std::optional<RankReport> EmptyReport(std::string_view kind, const std::variant<Reports...>* = nullptr) {
  std::optional<RankReport> report;
  ((kind == ReportKind(Reports{}).text ? void(report = Reports{}) : void()), ...);
  return report;
}
inline std::optional<RankReport> ReportOfKind(std::string_view kind) {
  return EmptyReport(kind, static_cast<const RankReport*>(nullptr));
}

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_RANK_REPORT_FIELDS_H_
