// Measurements of a node's devices and links, by `lynx-rank --measure` processes: one per device, all at once, each
// pinned to its device's cores, so that times are those with the whole node busy, but for waiting for a core that
// devices share. Blocking; one thread at a time per directory.
#ifndef LYNX_AGENT_MEASUREMENT_H_
#define LYNX_AGENT_MEASUREMENT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/probe.h"
#include "node/wake.h"
#include "worker/rank/measure/measure.h"

namespace lynx {

struct MeasurementOptions {
  std::string rank_binary;
  std::string directory;  // for request files and the cache; exists
  std::string address;    // numeric, of this node: the measured link runs over it
  int64_t pacing_bytes_per_second = 0;
  double budget_seconds = 20;   // soft limit that the processes keep themselves
  Nanos limit{60'000'000'000};  // after which they are killed
};

// The slowest of each time, and the lowest of each rate: what the node does with every device busy. A shape that one
// of them is missing is left out. `results`: at least one.
MeasureResult Slowest(const std::vector<MeasureResult>& results);

// Op times of `shapes` (may be empty) and the general rates. An error of any process is an error of the whole:
// DeadlineExceeded when killed at the limit, Cancelled after `cancel`, others name the binary and the device. A shape
// that was not measured within the budget is missing from the result.
absl::StatusOr<MeasureResult> MeasureDevices(const MeasurementOptions& options, const std::vector<NodeDevice>& devices,
                                             const std::vector<LayerShape>& shapes, const WakeEvent& cancel);

// A link between two ranks of this node: of the first two devices, or both on the only one.
absl::StatusOr<LinkResult> MeasureLink(const MeasurementOptions& options, const std::vector<NodeDevice>& devices,
                                       const WakeEvent& cancel);

// The links between this node's GPUs, of which there are two or more.
absl::StatusOr<GpuLinksResult> MeasureGpuLinks(const MeasurementOptions& options, const std::vector<NodeDevice>& devices,
                                               const WakeEvent& cancel);

}  // namespace lynx

#endif  // LYNX_AGENT_MEASUREMENT_H_
