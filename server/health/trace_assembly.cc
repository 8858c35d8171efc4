// See trace_assembly.h.
#include "server/health/trace_assembly.h"

#include <utility>

#include "planner/report/step_trace.h"

namespace lynx::server {
namespace {

bool Whole(const TraceReport& trace) { return trace.times.size() == static_cast<size_t>(trace.actions) * kTimesPerAction; }

}  // namespace

std::optional<std::vector<std::vector<int64_t>>> TraceAssembly::Add(size_t stage, const TraceReport& part) {
  std::map<size_t, TraceReport>& step = steps_[part.step];
  if (part.first == 0) {
    step[stage] = part;
  } else if (const auto before = step.find(stage);
             before != step.end() && before->second.actions == part.actions &&
             before->second.times.size() == static_cast<size_t>(part.first) * kTimesPerAction) {
    before->second.times.insert(before->second.times.end(), part.times.begin(), part.times.end());
  } else {
    step.erase(stage);
  }
  size_t whole = 0;
  for (const auto& [number, trace] : step) whole += Whole(trace) ? 1 : 0;
  if (whole < stages_) {
    if (steps_.size() > kPending) steps_.erase(steps_.begin());
    return std::nullopt;
  }
  std::vector<std::vector<int64_t>> stages;
  for (auto& [number, trace] : step) stages.push_back(std::move(trace.times));
  steps_.erase(steps_.begin(), steps_.upper_bound(part.step));
  return stages;
}

}  // namespace lynx::server
