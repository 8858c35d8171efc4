// TinyCluster: all ranks of a tiny job as threads of one process. Each has its own backend, states and engine; they are
// connected through loopback. Test support.
#ifndef LYNX_TESTS_WORKER_ENGINE_TINY_CLUSTER_H_
#define LYNX_TESTS_WORKER_ENGINE_TINY_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/program/memory_model.h"
#include "planner/recompute/recompute_policy.h"
#include "worker/engine/engine.h"

namespace lynx::worker {

// The program that a stage runs, with its context and arena.
struct StageProgram {
  StageContext context;
  Program program;
  Bytes arena;
};

// One model of each kind that the engine trains, with dropout if the family has it; the tied ones have fused attention.
// From kGroupedGpt on they are families of planner/problem/model_families.h, with sizes and factors such that every
// part of them matters: GPT with grouped queries, and with one key and value head (gpt_bigcode); llama3 scaling; a head
// size of its own and linear scaling, as in Mistral Nemo; biases and yarn scaling; norms of queries and keys; partly
// rotated heads.
enum class TinyModel : uint8_t {
  kGpt,
  kLlama,
  kTiedGpt,
  kTiedLlama,
  kGroupedGpt,
  kMultiQueryGpt,
  kLlama3,
  kMistral,
  kQwen2,
  kQwen3,
  kPhi3,
};
const char* TinyModelName(TinyModel model);  // "gpt", "llama-tied", "qwen2"
inline constexpr int kTinyModelCount = static_cast<int>(TinyModel::kPhi3) + 1;
ModelSpec SpecOf(TinyModel model);

struct TinyJob {
  ModelSpec model = SpecOf(TinyModel::kGpt);
  TrainSpec train{.steps = 50,
                  .global_batch = 8,
                  .micro_batch = 1,
                  .optimizer = {.lr = 1e-2},
                  .warmup_steps = 5,
                  .min_lr = 1e-3,
                  .seed = 7};
  std::vector<StageProgram> stages;  // see Lower; may be edited
  ParallelLayout layout;
  int64_t link_bytes_per_second = 50'000'000;  // for which programs are woven, if the layout says so
  DeadBuffers dead_buffers = DeadBuffers::kPoison;
  std::function<std::unique_ptr<Backend>()> make_backend;  // makes each rank's backend; null: the CPU's
  // Makes the communicator of ranks that have such a backend, on top of what ConnectTcp gave. Null: a
  // StagedCommunicator.
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(int32_t rank, Communicator& host, Backend& backend)>
      make_communicator;
  std::function<absl::StatusOr<std::unique_ptr<Dataset>>()> open_dataset;  // opens each rank's data; null: TextFile()

  // Sets `layout` and `stages`: equal shares of the layers, and programs lowered from the policies that `policy_of`
  // gives for the slices.
  void Lower(const ParallelLayout& layout, const std::function<StagePolicy(const StageContext&, const StageSlice&)>& policy_of);
  void Lower(const ParallelLayout& layout, RecomputeMode mode);
};

// One rank, as the body on its thread sees it.
struct TinyRank {
  int32_t rank = 0;
  RankCoordinates coordinates;
  const TinyJob* job = nullptr;
  Communicator* communicator = nullptr;
  ModelState* state = nullptr;
  const Dataset* dataset = nullptr;
  Engine* engine = nullptr;

  const StageContext& context() const { return job->stages[coordinates.stage].context; }
};

// Runs `body` on every rank. Returns each rank's first error in body or set-up, by rank. A rank that fails aborts the
// communication of the others.
std::vector<absl::Status> OnRanks(const TinyJob& job, const std::function<absl::Status(TinyRank&)>& body);

// Complete parameters by name, row-major.
using Parameters = std::map<std::string, std::vector<float>>;
// Copies this rank's pieces into the complete parameters: pieces of the gradients, or of the fp32 weights that it
// updates.
void CollectGradients(ModelState& state, Parameters& parameters);
void CollectWeights(ModelState& state, Parameters& parameters);

// The beginning of a parameter in the fp32 weights of a state that is not sharded.
float* WeightOf(ModelState& state, int32_t layer, Parameter parameter);

struct TinyRun {
  std::vector<std::vector<StepReport>> reports;  // by rank and step
  Parameters weights;                            // after the last step
  std::vector<double> losses() const;            // of rank 0
};
// Trains steps [0, steps). Expects every rank to succeed with the same losses, and to use its arena to the last byte.
TinyRun Train(const TinyJob& job, int64_t steps);

// A combination of a model and a layout.
struct TinySetting {
  TinyModel model = TinyModel::kGpt;
  ParallelLayout layout;
  DataType dtype = DataType::kFloat32;
};
ModelSpec SpecOf(const TinySetting& setting);
// For each layout: GPT, Llama, a tied one of these with fused attention, and one other family, if the layout divides
// them. The last two change from layout to layout.
std::vector<TinySetting> ModelsIn(const std::vector<ParallelLayout>& layouts);
// Every model in each layout that divides it.
std::vector<TinySetting> AllModelsIn(const std::vector<ParallelLayout>& layouts);
// The settings of ModelsIn(in_float), and those of ModelsIn(in_bfloat16) with that type.
std::vector<TinySetting> ModelsIn(const std::vector<ParallelLayout>& in_float, const std::vector<ParallelLayout>& in_bfloat16);
// The setting as a test's name: "llamatiedtp2pp2dp1interleaved", "gpttp2pp1dp1bfloat16".
std::string TestName(const TinySetting& setting);
// The layout as a test's name: "tp2pp2dp1interleaved".
std::string TestName(const ParallelLayout& layout);

// A temporary folder of this process; it is removed when the process ends.
const std::string& TemporaryFolder();
// A file with a few thousand words of text: letters, digits and spaces, all bytes below 67; the same in every run.
const std::string& TextFile();

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_ENGINE_TINY_CLUSTER_H_
