// HardwareProfile holds what is known about the speed of one kind of device and its links; agents measure these values, or a
// person states them. The cost model computes the time of an op that was not measured from the rates here
// (planner/cost/cost_model.h). Plain data; thread-safe.
#ifndef LYNX_PLANNER_COST_HARDWARE_PROFILE_H_
#define LYNX_PLANNER_COST_HARDWARE_PROFILE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/units.h"
#include "planner/problem/layer_graph.h"

namespace lynx {

struct OpTimes {
  Nanos forward;
  Nanos backward;  // input gradient
  Nanos weight;    // weight gradient; 0 where the op has no weight pass
  bool operator==(const OpTimes&) const = default;
};

// Measured times of every op for one shape: medians over repetitions with all devices of the node busy. The time for which a
// rank waits because other threads use its core is not included.
struct ShapeTimes {
  LayerShape shape;
  std::array<OpTimes, kOpCount> ops;   // indexed by Op
  Nanos optimizer_per_mega_parameter;  // AdamW update with clipping, per 2^20 parameters
  bool operator==(const ShapeTimes&) const = default;
};

// A transfer of n bytes from one rank to another takes latency + n / bytes_per_second. The rate is the one that a ring
// collective or a message reaches in practice (NCCL's bus bandwidth), not the link's nominal rate.
struct LinkCost {
  Nanos latency;
  int64_t bytes_per_second = 0;  // > 0
  bool operator==(const LinkCost&) const = default;
};

// A link between devices that are closer to each other than the devices of a node: ranks inside the same aligned block of
// `devices` ranks (a switch, a bridged pair) reach each other over `link`.
struct LinkLevel {
  int32_t devices = 0;  // >= 2
  LinkCost link;
  bool operator==(const LinkLevel&) const = default;
};

// Copies between a device and its host's pinned memory. They run at the same time as compute and communication. A rate of 0
// means that the device cannot offload.
struct HostLink {
  Nanos latency;
  int64_t to_host_bytes_per_second = 0;
  int64_t from_host_bytes_per_second = 0;
  int64_t both_bytes_per_second = 0;  // both directions together, while both copy
  // Factor by which an op takes longer while a copy runs at the same time, in thousandths. >= 1000.
  int32_t op_slowdown_permille = 1000;
  bool operator==(const HostLink&) const = default;
};

// Classes of ops. Ops of one class and size reach the same share of a peak rate. Each class has its own measure of size.
enum class OpClass : uint8_t {
  kGemm,               // share of the peak FLOP/s; size: FLOPs of the product
  kAttention,          // fused attention, forward; share of the peak FLOP/s; size: tokens of the sequence
  kAttentionBackward,  // the backward pass of fused attention; share and size as for kAttention
  // The kernels of unfused attention: all between the qkv and the proj linear. Share of the memory's rate; size: bytes moved.
  kScores,
  kMemory,  // all other ops; share of the memory's rate; size: bytes moved
};
inline constexpr int kOpClassCount = static_cast<int>(OpClass::kMemory) + 1;

struct EfficiencyPoint {
  int64_t size = 0;      // > 0
  int32_t permille = 0;  // 1..1000
  bool operator==(const EfficiencyPoint&) const = default;
};
// Sorted by size, without repeats, at most kMaxEfficiencyPoints. Linear in log(size) between the points and constant
// outside them. Empty: 1000 everywhere.
using EfficiencyCurve = std::vector<EfficiencyPoint>;
inline constexpr size_t kMaxEfficiencyPoints = 64;
// The efficiency in thousandths; `size` below 1 counts as 1. Uses only integer arithmetic, so that every machine gets the
// same result.
int32_t EfficiencyAt(const EfficiencyCurve& curve, int64_t size);

// A GPU computes a product in tiles of rows x columns of its result. A compute unit (streaming multiprocessor) computes
// one tile at a time, so the last wave of tiles may leave units idle ("tile and wave quantization": NVIDIA, Matrix
// Multiplication Background User's Guide, DU-09799, chapter 3). All 0: no such effect. A tile may be used in either
// orientation.
struct GemmTiles {
  int32_t units = 0;
  int32_t rows = 0;
  int32_t columns = 0;
  bool operator==(const GemmTiles&) const = default;
};

struct HardwareProfile {
  std::string device_kind;  // "cpu: AMD EPYC ..."; free text
  std::vector<ShapeTimes> measured;
  // A roofline, for shapes that were not measured.
  int64_t flops_per_second = 0;                           // fp32 GEMM rate of one device with all devices busy, > 0
  int64_t bfloat16_flops_per_second = 0;                  // 16-bit GEMM rate; 0 = the fp32 rate
  int64_t memory_bytes_per_second = 0;                    // > 0
  std::array<EfficiencyCurve, kOpClassCount> efficiency;  // by OpClass; shares of the rates above
  GemmTiles gemm_tiles;
  Nanos op_overhead;  // fixed cost of one op
  // From the closest to the farthest: inner_links (`devices` ascending, each divides a node's devices), a node, all
  // nodes.
  std::vector<LinkLevel> inner_links;  // at most kMaxLinkLevels; usually empty
  LinkCost intra_node;
  LinkCost inter_node;
  HostLink host;
  // Factor by which an op takes longer while a collective runs at the same time, in thousandths: 1000 = not at all. >= 1000.
  int32_t overlap_slowdown_permille = 1000;
  // Share of a transfer's time that the compute core itself spends on it (a CPU rank's communication thread shares its core),
  // in thousandths. At most window * (1000 - this) / 1000 of compute is hidden in a window.
  int32_t communication_compute_permille = 0;

  int64_t FlopsPerSecond(DataType type) const {
    return type == DataType::kBfloat16 && bfloat16_flops_per_second > 0 ? bfloat16_flops_per_second : flops_per_second;
  }
  bool operator==(const HardwareProfile&) const = default;
};
inline constexpr size_t kMaxLinkLevels = 4;

// Upper limit for the time of one op or transfer (about three hours), so that sums of times fit into 64 bits.
inline constexpr Nanos kMaxTime{10'000'000'000'000};

// Returns InvalidArgument with the numbers unless rates and bandwidths are positive (or 0 where 0 has a meaning), times
// are between 0 and kMaxTime, slowdowns are between 1000 and 100000 permille, shares are within their bounds, and curves
// and link levels are sorted and bounded.
absl::Status CheckProfile(const HardwareProfile& profile);

// Makes all compute times, measured or computed from rates, `factor` (> 0) times as long.
void SlowCompute(HardwareProfile& profile, double factor);

// A conservative stated profile for an unknown machine (one CPU core, loopback). It is for offline planning without a
// profile, and the fallback if no agent could measure.
HardwareProfile StatedCpuProfile();

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_HARDWARE_PROFILE_H_
