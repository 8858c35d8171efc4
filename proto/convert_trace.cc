#include "proto/convert_trace.h"

#include "common/status.h"
#include "planner/report/step_trace.h"
#include "proto/bounds.h"

namespace lynx {
namespace {

constexpr int64_t kMaxActions = 1 << 24;

}  // namespace

absl::Status CheckTracePart(const std::string& path, const v1::TraceReport& message) {
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "step"), message.step(), 0, kMaxWireSteps));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "actions"), message.actions(), 1, kMaxActions));
  const auto times = static_cast<size_t>(message.times_size());
  LYNX_RETURN_IF_ERROR(
      CheckSize(FieldPath(path, "times"), times, kTimesPerAction, kTimesPerAction * kTraceActionsPerPart, "entries"));
  if (times % kTimesPerAction != 0) {
    return BadField(FieldPath(path, "times"), absl::StrCat(times, " entries"),
                    absl::StrCat("must have ", kTimesPerAction, " for each action"));
  }
  const auto actions = static_cast<int64_t>(times / kTimesPerAction);
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "first"), message.first(), 0, message.actions() - actions));
  for (int i = 0; i < message.times_size(); ++i) {
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "times", i), message.times(i), 0, kMaxWireNanos));
  }
  return absl::OkStatus();
}

}  // namespace lynx
