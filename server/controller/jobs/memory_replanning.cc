#include "server/controller/jobs/memory_replanning.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/controller/state/reason_text.h"
#include "server/health/memory_limits.h"

namespace lynx::server {
namespace {

constexpr char kTrigger[] = "out_of_memory";

}  // namespace

void MemoryReplanning::NoteMemoryEnds(LiveJob& job, int32_t rank) {
  const DeviceRef& where = job.record.ranks[static_cast<size_t>(rank)].where;
  const std::string model = nodes_.ModelOf(where, devices_.KindOf(job));
  const Bytes taken = TakenByPlan(*job.plan, CoordinatesOf(job.plan->layout, rank).stage, devices_.KindOf(job));
  if (model.empty() || taken == Bytes(0)) return;
  job.memory.taken[model] = taken;
  const MemoryLimit& limit = RunOutOfMemory(job.record.memory_limits, model, taken);
  job.memory.text =
      absl::StrCat("a device of model ", model, " counts as having ", FormatBytes(limit.limit), " for this job, ",
                   MemoryMarginPercent(limit.times), "% less than the ", FormatBytes(taken), " that the plan took there");
  step_.Touch(job);
}

bool MemoryReplanning::PlanForLess(LiveJob& job, const std::vector<NodeDevices>& free, const std::string& reason) {
  std::optional<Reservation> devices = Reserve(free, devices_.DemandOf(job));
  if (!devices.has_value()) return false;
  step_.AddEvent(job, EventKind::kReplanForced,
                 absl::StrCat(kTrigger, ": ", reason, job.memory.text.empty() ? "" : "; ", job.memory.text, "; plans for ",
                              CountText(static_cast<int32_t>(devices->devices.size()), devices_.KindOf(job)), " in place of ",
                              SummaryOf(*job.plan)));
  planning_.BeginPlanning(job, *std::move(devices));
  job.memory.is_short = true;
  return true;
}

std::string MemoryReplanning::ReplacedText(const LiveJob& job, const Plan& plan) const {
  return absl::StrCat(kTrigger, ": ", SummaryOf(plan), " replaces ", SummaryOf(*job.plan),
                      ", which did not fit; a change takes about ", FormatDuration(CostOfChange(job)));
}

bool MemoryReplanning::PlanForMore(LiveJob& job, const std::string& refusal) {
  std::string given;
  for (const auto& [model, bytes] : job.memory.taken) {
    if (!GiveBackMemory(job.record.memory_limits, model, bytes)) continue;
    absl::StrAppend(&given, given.empty() ? "" : ", ", "a device of model ", model, " counts as having ",
                    FormatBytes(MemoryLimitOf(job.record.memory_limits, model)), " again, the plan that did not fit took ",
                    FormatBytes(bytes));
  }
  if (given.empty()) return false;
  job.memory.text = std::move(given);
  step_.Touch(job);
  return PlanForLess(job, devices_.FreeDevices(devices_.KindOf(job), &job), absl::StrCat("no plan fits: ", refusal));
}

}  // namespace lynx::server
