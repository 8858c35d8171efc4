// JobSpec: what a person asks for, as a value. The job file, the protocol and the store all convert to and from
// this one type; defaults live here and nowhere else. Zero in a field documented "0 = auto" leaves the choice to
// the planner. Plain data; thread-safe as such.
#ifndef LYNX_PLANNER_JOB_SPEC_H_
#define LYNX_PLANNER_JOB_SPEC_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/units.h"

namespace lynx {

// A decoder-only GPT: LayerNorm, causal attention, GELU, learned positions, untied output embedding.
struct ModelSpec {
  int32_t layers = 0;   // transformer layers, 1..1000
  int32_t hidden = 0;   // h, a multiple of heads
  int32_t heads = 0;    // a
  int32_t ffn = 0;      // f; 0 = 4h (filled in by Normalize)
  int32_t seq = 0;      // s, tokens per sample
  int32_t vocab = 256;  // v; 256 for bytes
  double dropout = 0.1; // in [0, 1); one rate for embedding, attention and residual dropout

  bool operator==(const ModelSpec&) const = default;
};

enum class DataKind : uint8_t { kText, kMegatron };

struct DataSpec {
  DataKind kind = DataKind::kText;
  // kText: a file, one token per byte. kMegatron: the common prefix of PATH.bin and PATH.idx.
  // Absolute after the CLI has resolved it against the job file's folder.
  std::string path;

  bool operator==(const DataSpec&) const = default;
};

enum class LrSchedule : uint8_t { kConstant, kLinear, kCosine };

struct OptimizerSpec {  // AdamW
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // matrices only; never biases, norms
  double clip_norm = 1.0;     // global gradient norm; 0 = no clipping

  bool operator==(const OptimizerSpec&) const = default;
};

struct TrainSpec {
  int64_t steps = 0;
  int32_t global_batch = 0;  // samples per optimizer step over all replicas
  int32_t micro_batch = 0;   // samples per microbatch; 0 = auto
  OptimizerSpec optimizer;
  LrSchedule schedule = LrSchedule::kCosine;
  int64_t warmup_steps = 0;
  double min_lr = 0;         // where linear and cosine end
  uint64_t seed = 1234;

  bool operator==(const TrainSpec&) const = default;
};

struct ResourceSpec {
  int32_t min_ranks = 1;
  int32_t max_ranks = 1;
  // Limit for one rank's activation arena. 0 = whatever the device has left beside the model states.
  Bytes activation_memory_per_rank;

  bool operator==(const ResourceSpec&) const = default;
};

struct ParallelSpec {  // 0 = auto
  int32_t tp = 0;
  int32_t pp = 0;
  int32_t dp = 0;

  bool operator==(const ParallelSpec&) const = default;
};

// kAuto: HEU. kNone: store everything. kFull: keep each layer's input only and recompute the rest on the critical
// path, repeating the attention block's all-reduce. kFullKeepCollectives: as kFull, but the result of the collective
// is kept, so none is repeated. kSelective: recompute the attention core (softmax, context) only.
enum class RecomputeMode : uint8_t { kAuto, kNone, kFull, kFullKeepCollectives, kSelective };

struct CheckpointSpec {
  std::string directory;     // "" = below the server's data directory
  int64_t every_steps = 0;   // 0 = only at the end
  int32_t keep = 2;          // newest checkpoints kept; >= 1

  bool operator==(const CheckpointSpec&) const = default;
};

struct JobSpec {
  std::string name;  // [a-z0-9-]{1,48}
  ModelSpec model;
  DataSpec data;
  TrainSpec train;
  ResourceSpec resources;
  ParallelSpec parallel;
  RecomputeMode recompute = RecomputeMode::kAuto;
  CheckpointSpec checkpoint;
  int32_t max_restarts = 3;  // automatic restarts after a lost rank or node

  bool operator==(const JobSpec&) const = default;
};

// Fills what follows from other fields (ffn). Idempotent.
void Normalize(JobSpec& spec);

// InvalidArgument with the field's job-file path ("train.globalBatch"), its value and what would be right, for
// anything that no planner could satisfy: ranges, divisibility of hidden by heads, heads/ffn by a pinned tp, layers by
// a pinned pp (pp <= layers), global_batch by dp and micro_batch, ranks against tp*pp*dp. The spec must be normalized.
absl::Status ValidateJobSpec(const JobSpec& spec);

const char* RecomputeModeName(RecomputeMode mode);  // "auto", "none", "full", "full-keep-collectives", "selective"
bool ParseRecomputeMode(const std::string& name, RecomputeMode& mode);
const char* LrScheduleName(LrSchedule schedule);    // "constant", "linear", "cosine"
bool ParseLrSchedule(const std::string& name, LrSchedule& schedule);
const char* DataKindName(DataKind kind);            // "text", "megatron"
bool ParseDataKind(const std::string& name, DataKind& kind);

}  // namespace lynx

#endif  // LYNX_PLANNER_JOB_SPEC_H_
