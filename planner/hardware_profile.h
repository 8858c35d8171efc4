// HardwareProfile: what is known of the speed of one kind of device and its links, measured by agents or stated.
// Plain data; thread-safe.
#ifndef LYNX_PLANNER_HARDWARE_PROFILE_H_
#define LYNX_PLANNER_HARDWARE_PROFILE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/units.h"
#include "planner/layer_graph.h"

namespace lynx {

struct OpTimes {
  Nanos forward;
  Nanos backward;  // input gradient
  Nanos weight;    // weight gradient; 0 where the op has no weight pass
  bool operator==(const OpTimes&) const = default;
};

// Measured times of every op for one shape, medians over repetitions with all devices of the node busy.
struct ShapeTimes {
  LayerShape shape;
  std::array<OpTimes, kOpCount> ops;  // indexed by Op
  Nanos optimizer_per_mega_parameter; // AdamW update with clipping, per 2^20 parameters
  bool operator==(const ShapeTimes&) const = default;
};

// A transfer of n bytes from one rank to another takes latency + n / bytes_per_second.
struct LinkCost {
  Nanos latency;
  int64_t bytes_per_second = 0;  // > 0
  bool operator==(const LinkCost&) const = default;
};

struct HardwareProfile {
  std::string device_kind;  // "cpu: AMD EPYC ..."; free text
  std::vector<ShapeTimes> measured;
  // For shapes that were not measured: a roofline.
  int64_t flops_per_second = 0;         // fp32 GEMM rate of one device with all devices busy, > 0
  int64_t memory_bytes_per_second = 0;  // > 0
  Nanos op_overhead;                    // fixed cost of one op
  LinkCost intra_node;
  LinkCost inter_node;
  // How much longer an op takes while a collective runs beside it, in thousandths: 1000 = not at all. >= 1000.
  int32_t overlap_slowdown_permille = 1000;
  // Share of a transfer's time that the compute core itself spends on it (a CPU rank's communication thread shares
  // its core), in thousandths: 0 = none. hidden <= window * (1000 - this) / 1000.
  int32_t communication_compute_permille = 0;

  bool operator==(const HardwareProfile&) const = default;
};

// No op or transfer counts as longer (about three hours), so that sums of times fit into 64 bits.
inline constexpr Nanos kLongestTime{10'000'000'000'000};

// InvalidArgument with the numbers unless rates and bandwidths are positive, times lie within 0 and kLongestTime, the
// slowdown within 1000 and 100000 permille, and the share of communication within 0 and 1000.
absl::Status CheckProfile(const HardwareProfile& profile);

// A conservative stated profile for a machine of which nothing is known (one CPU core, loopback). For offline
// planning without a profile, and the fallback when no agent could measure.
HardwareProfile StatedCpuProfile();

}  // namespace lynx

#endif  // LYNX_PLANNER_HARDWARE_PROFILE_H_
