#include "worker/contract/rank_report.h"

#include <type_traits>

#include "common/status.h"
#include "worker/contract/json_fields.h"

namespace lynx {
namespace {

constexpr const char* kWhat = "rank report";

const char* TypeName(const RankReady&) { return "ready"; }
const char* TypeName(const StepReport&) { return "step"; }
const char* TypeName(const StepSkipped&) { return "skipped"; }
const char* TypeName(const EvaluationReport&) { return "evaluation"; }
const char* TypeName(const TraceReport&) { return "trace"; }
const char* TypeName(const CheckpointReport&) { return "checkpoint"; }
const char* TypeName(const CheckpointFailure&) { return "checkpoint_failure"; }
const char* TypeName(const RankDone&) { return "done"; }
const char* TypeName(const RankYielded&) { return "yielded"; }
const char* TypeName(const CopiesNotice&) { return "copies"; }
const char* TypeName(const NodeCheckReport&) { return "node_check"; }
const char* TypeName(const RankFailure&) { return "failure"; }

}  // namespace

// The Describe functions are found by their argument, for which an unnamed namespace would be out of sight.

template <class Fields>
static void Describe(Fields& fields, RankReady& ready) {
  fields.Field("next_step", ready.next_step);
  fields.Field("arena_bytes", ready.arena);
  fields.Field("states_bytes", ready.states);
  fields.Field("backend", ready.backend);
  fields.Field("from_copies", ready.from_copies);
}

template <class Fields>
static void Describe(Fields& fields, CopiesNotice& notice) {
  fields.Field("reason", notice.reason);
}

template <class Fields>
static void Describe(Fields& fields, NodeCheckReport& check) {
  fields.Field("duration_ns", check.duration);
  fields.Field("devices", check.devices);
  fields.Field("links", check.links);
  fields.Field("slowest_bytes_per_second", check.slowest_bytes_per_second);
}

template <class Fields>
static void Describe(Fields& fields, LinkUse& link) {
  fields.Field("peer", link.peer);
  fields.Field("bytes", link.bytes);
  fields.Field("busy_ns", link.busy);
}

template <class Fields>
static void Describe(Fields& fields, StepReport& step) {
  fields.Field("step", step.step);
  fields.Field("loss", step.loss);
  fields.Field("gradient_norm", step.gradient_norm);
  fields.Field("lr", step.lr);
  fields.Field("tokens", step.tokens);
  fields.Field("duration_ns", step.duration);
  fields.Field("forward_ns", step.forward);
  fields.Field("backward_ns", step.backward);
  fields.Field("weight_ns", step.weight);
  fields.Field("recompute_hidden_ns", step.recompute_hidden);
  fields.Field("recompute_exposed_ns", step.recompute_exposed);
  fields.Field("tensor_wait_ns", step.tensor_wait);
  fields.Field("stall_ns", step.stall);
  fields.Field("data_parallel_wait_ns", step.data_parallel_wait);
  fields.Field("norm_wait_ns", step.norm_wait);
  fields.Field("optimizer_ns", step.optimizer);
  if (fields.Has("data_wait_ns")) fields.Field("data_wait_ns", step.data_wait);
  fields.Field("checkpoint_ns", step.checkpoint);
  fields.Field("arena_peak_bytes", step.arena_peak);
  fields.Field("bytes_sent", step.bytes_sent);
  fields.Field("communication_cpu_ns", step.communication_cpu);
  if (fields.Has("core_wait_ns")) fields.Field("core_wait_ns", step.core_wait);
  fields.Field("copied_steps", step.copied_steps);
  fields.Field("copies_skipped", step.copies_skipped);
  if (fields.Has("links")) fields.Objects("links", step.links);
}

template <class Fields>
static void Describe(Fields& fields, StepSkipped& skipped) {
  fields.Field("step", skipped.step);
  fields.Field("reason", skipped.reason);
}

template <class Fields>
static void Describe(Fields& fields, EvaluationReport& evaluation) {
  fields.Field("step", evaluation.step);
  fields.Field("loss", evaluation.loss);
  fields.Field("tokens", evaluation.tokens);
  fields.Field("duration_ns", evaluation.duration);
}

template <class Fields>
static void Describe(Fields& fields, TraceReport& trace) {
  fields.Field("step", trace.step);
  fields.Field("actions", trace.actions);
  fields.Field("first", trace.first);
  fields.Field("times", trace.times);
}

template <class Fields>
static void Describe(Fields& fields, CheckpointReport& checkpoint) {
  fields.Field("step", checkpoint.step);
  fields.Field("path", checkpoint.path);
  fields.Field("bytes", checkpoint.bytes);
}

template <class Fields>
static void Describe(Fields& fields, CheckpointFailure& failure) {
  fields.Field("step", failure.step);
  fields.Field("reason", failure.reason);
}

template <class Fields>
static void Describe(Fields& fields, RankDone& done) {
  fields.Field("steps", done.steps);
}

template <class Fields>
static void Describe(Fields& fields, RankYielded& yielded) {
  fields.Field("steps", yielded.steps);
}

template <class Fields>
static void Describe(Fields& fields, RankFailure& failure) {
  fields.Field("reason", failure.reason);
  fields.Field("peer_lost", failure.peer_lost);
  fields.Named("cause", failure.cause, FaultCauseName, ParseFaultCause);
  fields.Field("peers", failure.peers);
}

namespace {

// True when `type` names alternative T, which is then read.
template <class T>
bool ReadAlternative(JsonReader& reader, const std::string& type, RankReport& report) {
  T value;
  if (type != TypeName(value)) return false;
  Describe(reader, value);
  report = value;
  return true;
}

template <class... Alternatives>
bool ReadAnyOf(JsonReader& reader, const std::string& type, std::variant<Alternatives...>& report) {
  return (ReadAlternative<Alternatives>(reader, type, report) || ...);
}

}  // namespace

std::string RankReportLine(const RankReport& report) {
  JsonWriter writer;
  RankReport copy = report;
  std::visit(
      [&](auto& value) {
        std::string type = TypeName(value);
        writer.Field("type", type);
        Describe(writer, value);
      },
      copy);
  return writer.Line();
}

absl::StatusOr<RankReport> ParseRankReport(const std::string& line) {
  JsonReader reader(line, kWhat);
  std::string type;
  reader.Field("type", type);
  RankReport report;
  if (reader.ok() && !ReadAnyOf(reader, type, report)) reader.Fail("type", "'" + type + "' is no report");
  LYNX_RETURN_IF_ERROR(reader.Finish());
  return report;
}

}  // namespace lynx
