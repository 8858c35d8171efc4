// What an agent asks a rank process to measure, and the answers: the speed of a device and of its links.
//
//   lynx-rank --measure FILE        FILE holds a MeasureRequest; prints one MeasureResult as JSON on stdout
//   lynx-rank --measure-link FILE   FILE holds a LinkRequest; prints one LinkResult as JSON on stdout
//   lynx-rank --measure-gpu-links FILE   FILE holds a GpuLinksRequest; prints one GpuLinksResult as JSON on stdout
//
// The process ends with exit code 0 and prints exactly one JSON object on stdout. Or it ends with exit code 1 and prints one
// sentence on stderr. A process measures one device. To measure all devices of a node while all are busy, start one process for
// each device at the same time, and take the slowest result. Times are wall-clock times, with one exception: on one core of a
// CPU they are the processor time of the process. So devices that share the core can be measured at the same time.
//
// The JSON has the fields of the structs. Times end in `_ns`. Ops have the names that they have in the layer graph.
//
//   MeasureRequest {"shapes": [SHAPE...], "device_kind": "cpu", "device_uuid": "", "cores": [0], "repetitions": 5,
//                   "budget_seconds": 20.0}
//   SHAPE          {"micro_batch": 1, "seq": 128, "hidden": 256, "heads": 4, "ffn": 1024, "vocab": 256, "tp": 2,
//                   "dropout": true, "family": "gpt", "kv_heads": 0, "attention": "unfused",
//                   "dtype": "float32", "sequence_parallel": false, "head_dim": 0, "qkv_bias": false, "qk_norm": false,
//                   "qk_norm_whole": false, "rotary_dims": 0, "experts": 0, "top_k": 0, "expert_ffn": 0, "ep": 1,
//                   "capacity_permille": 0, "skew_permille": 1000, "dropless": false, "shared_ffn": 0,
//                   "shared_gate": false, "query_rank": 0, "kv_rank": 0, "value_dim": 0}
//   MeasureResult  {"device_kind": "cpu: ...", "flops_per_second": 1, "bfloat16_flops_per_second": 1,
//                   "memory_bytes_per_second": 1, "op_overhead_ns": 1,
//                   "host": {"latency_ns": 1, "to_host_bytes_per_second": 1, "from_host_bytes_per_second": 1,
//                            "both_bytes_per_second": 1, "op_slowdown_permille": 1000},
//                   "measured": [{"shape": SHAPE, "optimizer_per_mega_parameter_ns": 1,
//                                 "ops": {"qkv": {"forward_ns": 1, "backward_ns": 1, "weight_ns": 1}, ...}}]}
//   LinkRequest    {"host": "127.0.0.1", "cores": [[0], [1]], "repetitions": 5, "budget_seconds": 10.0,
//                   "pacing_bytes_per_second": 0, "encrypt": false}
//   LinkResult     {"latency_ns": 1, "bytes_per_second": 1, "overlap_slowdown_permille": 1000,
//                   "communication_compute_permille": 0}
//   GpuLinksRequest {"host": "127.0.0.1", "device_uuids": ["GPU-..."], "cores": [[0], [1]], "blocks": [2],
//                    "repetitions": 5, "budget_seconds": 10.0}
//   GpuLinksResult {"latency_ns": 1, "bytes_per_second": 1, "inner_links": [{"devices": 2, "latency_ns": 1,
//                   "bytes_per_second": 1}], "overlap_slowdown_permille": 1000, "communication_compute_permille": 0,
//                   "nccl_bytes": 1, "route_bytes": 1}
//
// Plain data and pure functions; thread-safe.
#ifndef LYNX_WORKER_CONTRACT_MEASUREMENT_H_
#define LYNX_WORKER_CONTRACT_MEASUREMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/cost/hardware_profile.h"
#include "planner/problem/layer_graph.h"

namespace lynx {

struct MeasureRequest {
  std::vector<LayerShape> shapes;  // may be empty; then only the generic rates are measured
  DeviceKind device_kind = DeviceKind::kCpu;
  std::string device_uuid;  // the UUID of a GPU; empty for a CPU
  // The cores of one rank. The process is pinned to them and uses one BLAS thread for each core. Empty: it is not pinned.
  std::vector<int32_t> cores;
  // Runs of each op after one run to warm up; the median is used. On a CPU, ops run in passes over n layers, and such a pass
  // counts as n runs; there are at least two passes. Must be in 1..1000.
  int32_t repetitions = 5;
  // A soft limit, > 0. After this time no further shape is begun. If one shape takes too long, it gets fewer repetitions. The
  // result lacks the shapes that were not measured.
  double budget_seconds = 20;
  bool operator==(const MeasureRequest&) const = default;
};

struct MeasureResult {
  std::string device_kind;
  std::vector<ShapeTimes> measured;
  int64_t flops_per_second = 0;
  int64_t bfloat16_flops_per_second = 0;
  int64_t memory_bytes_per_second = 0;
  Nanos op_overhead;
  HostLink host;
  bool operator==(const MeasureResult&) const = default;
};

// Asks to measure the link between two ranks. They are threads of one process and communicate over `host`.
struct LinkRequest {
  std::string host = "127.0.0.1";           // a numeric address of this machine
  std::vector<std::vector<int32_t>> cores;  // the cores of each of the two ranks; empty = not pinned
  int32_t repetitions = 5;                  // for each size of a transfer
  double budget_seconds = 10;               // a soft limit; > 0
  int64_t pacing_bytes_per_second = 0;      // see CommunicatorOptions; 0 = no limit
  bool encrypt = false;                     // see CommunicatorOptions
  bool operator==(const LinkRequest&) const = default;
};

struct LinkResult {
  LinkCost link;                               // fitted to all-reduces of several sizes
  int32_t overlap_slowdown_permille = 1000;    // has the meaning of the field in HardwareProfile
  int32_t communication_compute_permille = 0;  // has the meaning of the field in HardwareProfile
  bool operator==(const LinkResult&) const = default;
};

// Asks to measure the links between the GPUs of a node. Each GPU has a rank, which is a thread of one process. The ranks
// transfer data by NCCL.
struct GpuLinksRequest {
  std::string host = "127.0.0.1";           // a numeric address of this machine, over which the ranks connect
  std::vector<std::string> device_uuids;    // 2 or more
  std::vector<std::vector<int32_t>> cores;  // the cores for each GPU's rank; empty = not pinned
  // Sizes of blocks of neighbouring GPUs with faster links between them. Ascending; each size divides the next and the number
  // of GPUs.
  std::vector<int32_t> blocks;
  int32_t repetitions = 5;     // for each size of a transfer
  double budget_seconds = 10;  // a soft limit; > 0
  bool operator==(const GpuLinksRequest&) const = default;
};

struct GpuLinksResult {
  LinkCost link;                       // fitted to transfers of all kinds and several sizes, in which all GPUs take part
  std::vector<LinkLevel> inner_links;  // the links within the blocks, measured while all blocks are busy
  // Have the meaning of the fields in HardwareProfile. Measured while an all-reduce and matrix products run at the same time.
  int32_t overlap_slowdown_permille = 1000, communication_compute_permille = 0;
  Bytes nccl_memory, route_memory;  // on each GPU: what NCCL uses once, and what each route adds
  bool operator==(const GpuLinksResult&) const = default;
};

// The Parse functions return InvalidArgument with the name of the wrong field.
std::string MeasureRequestText(const MeasureRequest& request);
absl::StatusOr<MeasureRequest> ParseMeasureRequest(const std::string& text);
std::string MeasureResultText(const MeasureResult& result);
absl::StatusOr<MeasureResult> ParseMeasureResult(const std::string& text);
std::string LinkRequestText(const LinkRequest& request);
absl::StatusOr<LinkRequest> ParseLinkRequest(const std::string& text);
std::string LinkResultText(const LinkResult& result);
absl::StatusOr<LinkResult> ParseLinkResult(const std::string& text);
std::string GpuLinksRequestText(const GpuLinksRequest& request);
absl::StatusOr<GpuLinksRequest> ParseGpuLinksRequest(const std::string& text);
std::string GpuLinksResultText(const GpuLinksResult& result);
absl::StatusOr<GpuLinksResult> ParseGpuLinksResult(const std::string& text);

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_MEASUREMENT_H_
