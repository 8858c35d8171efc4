// HardwareProfile holds what is known about the speed of one kind of device and its links. Agents measure these values, or a
// person states them. If the time of an op was not measured, the cost model computes it from the rates in the profile
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
  Nanos weight;    // weight gradient; 0 if the op has no weight pass
  bool operator==(const OpTimes&) const = default;
};

// Measured times of every op for one shape. Each time is the median of several repetitions while all devices of the node are
// busy. The time for which a rank waits because other threads use its core is not included.
struct ShapeTimes {
  LayerShape shape;
  std::array<OpTimes, kOpCount> ops;   // the index is the Op
  Nanos optimizer_per_mega_parameter;  // time of the AdamW update with clipping, per 2^20 parameters
  bool operator==(const ShapeTimes&) const = default;
};

// A transfer of n bytes from one rank to another takes latency + n / bytes_per_second. The rate is the one that a ring
// collective or a message reaches in practice (NCCL's bus bandwidth), not the link's nominal rate.
struct LinkCost {
  Nanos latency;
  int64_t bytes_per_second = 0;  // above 0
  bool operator==(const LinkCost&) const = default;
};

// A fast link between some devices of a node (a switch, a bridged pair). Ranks are divided into blocks of `devices` consecutive
// ranks; ranks inside the same block reach each other over `link`.
struct LinkLevel {
  int32_t devices = 0;  // at least 2
  LinkCost link;
  bool operator==(const LinkLevel&) const = default;
};

// Copies between a device and the pinned memory of its host. They run at the same time as compute and communication. A rate of
// 0 means that the device cannot offload.
struct HostLink {
  Nanos latency;
  int64_t to_host_bytes_per_second = 0;
  int64_t from_host_bytes_per_second = 0;
  int64_t both_bytes_per_second = 0;  // rate of both directions together, while copies run in both
  // Factor, in thousandths, by which an op takes longer while a copy runs at the same time; at least 1000.
  int32_t op_slowdown_permille = 1000;
  bool operator==(const HostLink&) const = default;
};

// Classes of ops. Ops of the same class and size reach the same share of a peak rate. Each class measures size in its own way.
enum class OpClass : uint8_t {
  kGemm,               // share of the peak FLOP/s; size: FLOPs of the product
  kAttention,          // fused attention, forward; share of the peak FLOP/s; size: tokens of the sequence
  kAttentionBackward,  // the backward pass of fused attention; share and size as for kAttention
  // The kernels of unfused attention: all kernels between the linears qkv and proj. Share of the memory's rate; size: bytes
  // moved.
  kScores,
  kMemory,  // all other ops; share of the memory's rate; size: bytes moved
};
inline constexpr int kOpClassCount = static_cast<int>(OpClass::kMemory) + 1;

struct EfficiencyPoint {
  int64_t size = 0;      // above 0
  int32_t permille = 0;  // 1..1000
  bool operator==(const EfficiencyPoint&) const = default;
};
// Points sorted by size, without repeats, at most kMaxEfficiencyPoints. The efficiency is linear in log(size) between the
// points and constant outside them. An empty curve means 1000 for every size.
using EfficiencyCurve = std::vector<EfficiencyPoint>;
inline constexpr size_t kMaxEfficiencyPoints = 64;
// Returns the efficiency in thousandths. `size` below 1 is treated as 1. The function uses only integer arithmetic, so every
// machine gets the same result.
int32_t EfficiencyAt(const EfficiencyCurve& curve, int64_t size);

// A GPU computes a matrix product in tiles of rows x columns of the result. A compute unit (streaming multiprocessor) computes
// one tile at a time, so the last wave of tiles may leave units idle ("tile and wave quantization": NVIDIA, Matrix
// Multiplication Background User's Guide, DU-09799, chapter 3). If all fields are 0, the device has no such effect. Rows and
// columns of a tile may be exchanged.
struct GemmTiles {
  int32_t units = 0;
  int32_t rows = 0;
  int32_t columns = 0;
  bool operator==(const GemmTiles&) const = default;
};

struct HardwareProfile {
  std::string device_kind;  // "cpu: AMD EPYC ..."; free text
  std::vector<ShapeTimes> measured;
  // The values of a roofline, for shapes that were not measured.
  int64_t flops_per_second = 0;                           // rate of 32-bit matrix products on one device while all devices are
                                                          // busy; above 0
  int64_t bfloat16_flops_per_second = 0;                  // rate of 16-bit matrix products; 0 = the 32-bit rate
  int64_t float8_flops_per_second = 0;                    // rate of products of 8-bit operands; 0 = the device has none
  int64_t float4_flops_per_second = 0;                    // the same for 4-bit operands
  int64_t memory_bytes_per_second = 0;                    // above 0
  std::array<EfficiencyCurve, kOpClassCount> efficiency;  // the index is the OpClass; shares of the rates above
  GemmTiles gemm_tiles;
  Nanos op_overhead;  // fixed cost of one op
  // Links from the closest to the farthest: inner_links, then the link inside a node, then the link between nodes. Each inner
  // link's `devices` is a larger multiple of the one before, and divides the number of a node's devices.
  std::vector<LinkLevel> inner_links;  // at most kMaxLinkLevels; usually empty
  LinkCost intra_node;
  LinkCost inter_node;  // latency and rate for one device of a node
  // Number of network adapters of a node; at least 1. A ring between nodes that has n members in each node uses n adapters, but
  // at most this many. Each adapter has the rate of inter_node. 1 also stands for an unknown number.
  int32_t adapters = 1;
  // Nodes that are joined by switches of their own (a pod), over which each of them has the rate of inter_node; consecutive
  // nodes fill a pod. 0: all nodes. Out of a pod, the switches have room for pod_nodes * 1000 / oversubscription_permille of
  // its nodes at that rate.
  int32_t pod_nodes = 0;
  int32_t oversubscription_permille = 1000;  // 1000..100000; above 1000 only with pod_nodes
  HostLink host;
  // Factor, in thousandths, by which an op takes longer while a collective runs at the same time; at least 1000 (no slowdown).
  int32_t overlap_slowdown_permille = 1000;
  // Share of a transfer's time, in thousandths, that the compute core itself spends on the transfer. (The communication thread
  // of a CPU rank shares the rank's core.) A window hides at most window * (1000 - this value) / 1000 of compute.
  int32_t communication_compute_permille = 0;

  // The rate of narrow products of this type; 0 = unknown, or the device has none.
  int64_t NarrowFlopsPerSecond(MatmulType type) const {
    return type == MatmulType::kNvfp4 ? float4_flops_per_second : float8_flops_per_second;
  }
  // For narrow products, see NarrowFlopsPerSecond.
  int64_t FlopsPerSecond(DataType type) const {
    return type == DataType::kBfloat16 && bfloat16_flops_per_second > 0 ? bfloat16_flops_per_second : flops_per_second;
  }
  bool operator==(const HardwareProfile&) const = default;
};
inline constexpr size_t kMaxLinkLevels = 4;
inline constexpr int32_t kMaxAdapters = 1 << 20;
inline constexpr int32_t kMaxPodNodes = 1 << 20;

// Upper limit for the time of one op or transfer (about three hours), so that sums of times fit into 64 bits.
inline constexpr Nanos kMaxTime{10'000'000'000'000};

// Returns OK if all of this holds: rates and bandwidths are positive (or 0 where 0 has a meaning), times are between 0 and
// kMaxTime, slowdowns are between 1000 and 100000 permille, shares are within their bounds, and curves and link levels are
// sorted and bounded. Otherwise returns InvalidArgument with the numbers.
absl::Status CheckProfile(const HardwareProfile& profile);

// Makes all compute times `factor` (above 0) times as long: measured times, and times computed from rates.
void SlowCompute(HardwareProfile& profile, double factor);

// A cautious profile, with stated values, for an unknown machine (one CPU core, loopback). It is used for offline planning
// without a profile, and if no agent could measure.
HardwareProfile StatedCpuProfile();

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_HARDWARE_PROFILE_H_
