// Makes the engine's report of a step that it has run.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "planner/program/hidden_time.h"
#include "worker/engine/core_wait.h"
#include "worker/engine/engine.h"

namespace lynx::worker {

std::string Engine::NotFiniteText() const {
  const int32_t rank = world_sum_.FirstNotFinite();
  const std::string where = rank < 0 ? "" : absl::StrCat(", by what rank ", rank, " adds to it");
  if (!std::isfinite(loss_)) return absl::StrCat("the loss is ", loss_, where);
  return absl::StrCat("the gradient norm is ", gradient_norm_, where, " (the loss is ", loss_, ")");
}

std::vector<ActionSpan> Engine::Spans() const {
  const Program& program = config_.program;
  std::vector<ActionSpan> spans(program.size());
  for (size_t i = 0; i < program.size(); ++i) {
    const ActionTrace& trace = trace_[i];
    ActionSpan& span = spans[i];
    span.begin = trace.begin - begin_;
    span.end = trace.end - begin_;
    span.hidden = HiddenTime(hiding_, trace_, i);
    if (InfoOf(program[i].kind).phase != Phase::kStart) continue;
    span.transfer_begin = std::max(span.begin, trace.transfer_begin - begin_);
    span.transfer_end = std::max(span.transfer_begin, trace.transfer_end - begin_);
  }
  return spans;
}

StepReport Engine::MakeReport(const Before& before) {
  const StepPhases phases = PhasesOf(config_.program, hiding_, trace_);
  return {.step = step_,
          .loss = loss_,
          .gradient_norm = gradient_norm_,
          .lr = lr_,
          .tokens = int64_t{config_.train.global_batch} * config_.context.model.seq,
          .duration = clock_.Monotonic() - begin_,
          .forward = phases.forward,
          .backward = phases.backward,
          .weight = phases.weight,
          .recompute_hidden = phases.recompute_hidden,
          .recompute_exposed = phases.recompute_exposed,
          .tensor_wait = phases.tensor_wait,
          .stall = phases.stall,
          .data_parallel_wait = phases.data_parallel_wait,
          .norm_wait = phases.norm_wait,
          .optimizer = phases.optimizer,
          .data_wait = data_wait_,
          .checkpoint = Nanos(0),
          .arena_peak = watch_.peak(),
          .bytes_sent = communicator_.BytesSent() - before.bytes_sent,
          .communication_cpu = communicator_.ThreadCpuTime() - before.communication_cpu,
          .core_wait = ThreadCoreWait() - before.core_wait,
          .experts = expert_load_};
}

}  // namespace lynx::worker
