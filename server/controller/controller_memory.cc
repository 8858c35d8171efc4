// Jobs that run out of memory: they are planned again with a lower memory limit instead of being restarted with the plan that
// did not fit. See controller.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/controller/controller.h"
#include "server/controller/reason_text.h"
#include "server/health/memory_limits.h"

namespace lynx {
namespace {

constexpr char kTrigger[] = "out_of_memory";

}  // namespace

// Empty: the node's agent has not reported the device's model.
std::string Controller::ModelOf(const DeviceRef& where, DeviceKind kind) const {
  const auto node = nodes_.find(where.node);
  if (node == nodes_.end()) return "";
  for (const Device& device : node->second.agent.devices) {
    if (device.index == where.device && device.kind == kind) return device.model;
  }
  return "";
}

// The memory limit for these devices, which are in the same node group; 0: no limit besides their own size.
Bytes Controller::MemoryLimitFor(const Job& job, size_t first, size_t end) const {
  Bytes limit;
  for (size_t i = first; i < end; ++i) {
    const Bytes own = MemoryLimitOf(job.record.memory_limits, ModelOf(job.reservation.devices[i], KindOf(job)));
    if (own > Bytes(0)) limit = limit == Bytes(0) ? own : std::min(limit, own);
  }
  return limit;
}

// True if the job's plan takes more than the job's memory limit on one of these devices (by rank).
bool Controller::IsTooLarge(const Job& job, const std::vector<DeviceRef>& placement) const {
  if (job.record.memory_limits.empty() || Makes(Mistake::kForgetMemory)) return false;
  for (size_t r = 0; r < placement.size(); ++r) {
    const Bytes limit = MemoryLimitOf(job.record.memory_limits, ModelOf(placement[r], KindOf(job)));
    const int32_t stage = CoordinatesOf(job.plan->layout, static_cast<int32_t>(r)).stage;
    if (limit > Bytes(0) && TakenByPlan(*job.plan, stage, KindOf(job)) > limit) return true;
  }
  return false;
}

// A rank of the generation that is over ran out of memory. From now on its device model counts as having less, if model and
// plan size are known.
void Controller::NoteMemoryEnds(Job& job, int32_t rank) {
  const DeviceRef& where = job.record.ranks[static_cast<size_t>(rank)].where;
  const std::string model = ModelOf(where, KindOf(job));
  const Bytes taken = TakenByPlan(*job.plan, CoordinatesOf(job.plan->layout, rank).stage, KindOf(job));
  if (model.empty() || taken == Bytes(0)) return;
  job.memory_taken[model] = taken;
  const MemoryLimit& limit = RunOutOfMemory(job.record.memory_limits, model, taken);
  job.memory_text =
      absl::StrCat("a device of model ", model, " counts as having ", FormatBytes(limit.limit), " for this job, ",
                   MemoryMarginPercent(limit.times), "% less than the ", FormatBytes(taken), " that the plan took there");
  Touch(job);
}

// For a job without devices, whose plan does not fit its devices any more. True: the job is now being planned for devices of
// `free`.
bool Controller::PlanForLessMemory(Job& job, const std::vector<NodeDevices>& free, const std::string& reason) {
  std::optional<Reservation> devices = Reserve(free, DemandOf(job));
  if (!devices.has_value()) return false;
  AddEvent(job, EventKind::kReplanForced,
           absl::StrCat(kTrigger, ": ", reason, job.memory_text.empty() ? "" : "; ", job.memory_text, "; plans for ",
                        CountText(static_cast<int32_t>(devices->devices.size()), KindOf(job)), " in place of ",
                        SummaryOf(*job.plan)));
  BeginPlanning(job, *std::move(devices));
  job.short_of_memory = true;
  return true;
}

// The text for the event when the smaller plan has come.
std::string Controller::LessMemoryText(const Job& job, const Plan& plan) const {
  return absl::StrCat(kTrigger, ": ", SummaryOf(plan), " replaces ", SummaryOf(*job.plan),
                      ", which did not fit; a change takes about ", FormatDuration(CostOfChange(job)));
}

// No plan fits the reduced memory limits, so tries limits between these and the plan that did not fit. True: the job is being
// planned for that.
bool Controller::PlanForMoreMemory(Job& job, const std::string& refusal) {
  std::string given;
  for (const auto& [model, bytes] : job.memory_taken) {
    if (!GiveBackMemory(job.record.memory_limits, model, bytes)) continue;
    absl::StrAppend(&given, given.empty() ? "" : ", ", "a device of model ", model, " counts as having ",
                    FormatBytes(MemoryLimitOf(job.record.memory_limits, model)), " again, the plan that did not fit took ",
                    FormatBytes(bytes));
  }
  if (given.empty()) return false;
  job.memory_text = std::move(given);
  Touch(job);
  return PlanForLessMemory(job, FreeDevices(KindOf(job), &job), absl::StrCat("no plan fits: ", refusal));
}

// No plan fits, so no restart helps.
void Controller::FailForMemory(Job& job, const std::string& reason) {
  std::string limits;
  for (const MemoryLimit& limit : job.record.memory_limits) {
    absl::StrAppend(&limits, limits.empty() ? "" : ", ", limit.times, limit.times == 1 ? " time" : " times",
                    " on devices of model ", limit.device_model, ", which count as having ", FormatBytes(limit.limit));
  }
  EndPlanning(job);
  EndJob(job, JobState::kFailed, EventKind::kFailed,
         absl::StrCat("ran out of memory ", limits, ", and no plan fits that: ", reason,
                      "; free memory on these nodes, or give the job more ranks, a smaller train.microBatch or model.seq"));
}

}  // namespace lynx
