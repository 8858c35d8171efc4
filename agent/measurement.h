// Measures a node's devices and links with processes of lynx-rank. Each device has a process of its own, pinned to the
// device's cores. These processes run at the same time, so that the times are those of a busy node. A link is measured by one
// process. Times do not include waiting for a core that devices share. Calls block; one thread at a time per directory.
#ifndef LYNX_AGENT_MEASUREMENT_H_
#define LYNX_AGENT_MEASUREMENT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/probe.h"
#include "node/wake.h"
#include "worker/contract/measurement.h"

namespace lynx::agent {

struct MeasurementOptions {
  std::string rank_binary;
  std::string directory;  // the folder for the request files of the processes; it must exist
  std::string address;    // the node's numeric address; the measured link runs over it
  int64_t pacing_bytes_per_second = 0;
  bool encrypt = false;         // measure the link with encrypted connections
  double budget_seconds = 20;   // soft limit; the processes keep to it themselves
  Nanos limit{60'000'000'000};  // the processes are killed after this time
};

// Combines the results of several devices: the longest of each time and the lowest of each rate. This is the node's speed with
// every device busy. A shape that one of the results lacks is left out. `results`: at least one.
MeasureResult Slowest(const std::vector<MeasureResult>& results);

// Measures the op times of `shapes` (may be empty) and the general rates. If one process fails, the whole measurement
// fails: DeadlineExceeded if it was killed at the limit, Cancelled after `cancel`; other errors name the binary and the
// device. A shape that was not measured within the budget is missing from the result.
absl::StatusOr<MeasureResult> MeasureDevices(const MeasurementOptions& options, const std::vector<NodeDevice>& devices,
                                             const std::vector<LayerShape>& shapes, const WakeEvent& cancel);

// Measures a link between two ranks of this node: on the first two devices, or both on the only device.
absl::StatusOr<LinkResult> MeasureLink(const MeasurementOptions& options, const std::vector<NodeDevice>& devices,
                                       const WakeEvent& cancel);

// Measures the links between this node's GPUs; there must be two or more.
absl::StatusOr<GpuLinksResult> MeasureGpuLinks(const MeasurementOptions& options, const std::vector<NodeDevice>& devices,
                                               const WakeEvent& cancel);

}  // namespace lynx::agent

#endif  // LYNX_AGENT_MEASUREMENT_H_
