// Measured op times as a cluster file has them: a shape as "microBatch=1 seq=2048 ...", the times of its ops as
// "qkv=10,20,5 ..." (forward, input gradient, weight gradient; in nanoseconds). What has its default is left out. Pure;
// thread-safe.
#ifndef LYNX_CLI_SPEC_MEASURED_TEXT_H_
#define LYNX_CLI_SPEC_MEASURED_TEXT_H_

#include <array>
#include <string>

#include "absl/status/statusor.h"
#include "planner/cost/hardware_profile.h"

namespace lynx::cli {

using TimesOfOps = std::array<OpTimes, kOpCount>;  // the index is the Op

// The parsers read what the writers wrote. InvalidArgument: "expected WHAT, found 'PART'"; no layer has the shape.
std::string ShapeText(const LayerShape& shape);
absl::StatusOr<LayerShape> ParseShape(const std::string& text);
std::string OpTimesText(const TimesOfOps& times);
absl::StatusOr<TimesOfOps> ParseOpTimes(const std::string& text);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_MEASURED_TEXT_H_
