// TinyCluster runs all ranks of a tiny job as threads of one process. Each rank has its own backend, states and engine. The
// ranks are connected through loopback. Test support.
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

// One model of each kind that the engine trains, with dropout if the family has it. The models with tied embeddings have fused
// attention. From kGroupedGpt on, each model belongs to a family of planner/problem/model_families.h, and its sizes and factors
// make every feature of the family matter. These families are: GPT with grouped queries; GPT with one key and value head
// (gpt_bigcode); llama3 scaling; a head size of its own with linear scaling, as in Mistral Nemo; biases with yarn scaling;
// norms of queries and keys; partly rotated heads. From kMixtral on they have experts, with room for all rows; the first layer
// of kGlm4Moe has none, and its routers have sigmoids and biases. In kQwen2Moe and kGlm4Moe, every token passes a block in
// addition to its experts; that of kQwen2Moe has a gate. kOlmoe has norms over all queries and over all keys, so its heads stay
// on one rank. The last three have latent attention: kLatent without experts, kDeepseekV2 with queries from the layer's input
// (as in DeepSeek-V2-Lite), kDeepseekV3 with the routers of DeepSeek-V3, but without groups of experts.
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
  kMixtral,
  kQwen3Moe,
  kQwen2Moe,
  kGlm4Moe,
  kOlmoe,
  kLatent,
  kDeepseekV2,
  kDeepseekV3,
};
const char* TinyModelName(TinyModel model);  // "gpt", "llama-tied", "qwen2"
inline constexpr int kTinyModelCount = static_cast<int>(TinyModel::kDeepseekV3) + 1;
ModelSpec SpecOf(TinyModel model);
// A model with experts. It has enough key heads for up to four tensor-parallel ranks, and enough experts for expert groups of
// up to eight ranks. Nothing is dropped, and there are no losses of the router, so all layouts train the same model.
ModelSpec TinyMoe(DataType dtype = DataType::kFloat32, TinyModel model = TinyModel::kMixtral);

struct TinyJob {
  ModelSpec model = SpecOf(TinyModel::kGpt);
  TrainSpec train{.steps = 50,
                  .global_batch = 8,
                  .micro_batch = 1,
                  .optimizer = {.lr = 1e-2},
                  .warmup_steps = 5,
                  .min_lr = 1e-3,
                  .seed = 7};
  std::vector<StageProgram> stages;  // set by Lower; a test may change them
  ParallelLayout layout;
  bool experts = false;                        // connects the groups for experts, as for a model with experts
  int64_t link_bytes_per_second = 50'000'000;  // the link speed that Weave assumes, if the layout has a weave mode
  DeadBuffers dead_buffers = DeadBuffers::kPoison;
  int64_t packed_numbers = EngineConfig().packed_numbers;
  std::function<std::unique_ptr<Backend>()> make_backend;  // makes each rank's backend; null: the CPU's
  // Makes a rank's communicator between devices, if `make_backend` is set. `host` is the result of ConnectTcp. Null: a
  // StagedCommunicator.
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(int32_t rank, Communicator& host, Backend& backend)>
      make_communicator;
  std::function<absl::StatusOr<std::unique_ptr<Dataset>>()> open_dataset;  // opens each rank's data; null: TextFile()

  // Sets `layout` and `stages`: each stage gets an equal share of the layers, and programs are lowered from the policies that
  // `policy_of` returns for the slices.
  void Lower(const ParallelLayout& layout, const std::function<StagePolicy(const StageContext&, const StageSlice&)>& policy_of);
  void Lower(const ParallelLayout& layout, RecomputeMode mode);
};

// One rank, as the body that runs on its thread sees it.
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

// Runs `body` on every rank. Returns for each rank its first error, in the set-up or in `body`. A rank that fails aborts the
// communication of the others.
std::vector<absl::Status> OnRanks(const TinyJob& job, const std::function<absl::Status(TinyRank&)>& body);

// Complete parameters by name, row-major.
using Parameters = std::map<std::string, std::vector<float>>;
// Copies the pieces that this rank has into the complete parameters: its pieces of the gradients (not of the loads of experts),
// or the fp32 weights that it updates.
void CollectGradients(ModelState& state, Parameters& parameters);
void CollectWeights(ModelState& state, Parameters& parameters);

// Returns the address of a parameter's first element in the fp32 weights of a state that is not sharded.
float* WeightOf(ModelState& state, int32_t layer, Parameter parameter);

struct TinyRun {
  std::vector<std::vector<StepReport>> reports;  // reports[rank][step]
  Parameters weights;                            // the weights after the last step
  std::vector<double> losses() const;            // the losses that rank 0 reported; the index is the step
};
// Trains the steps [0, steps). Expects that every rank succeeds with the same losses and uses its arena to the last byte.
TinyRun Train(const TinyJob& job, int64_t steps);

// A combination of a model and a layout.
struct TinySetting {
  TinyModel model = TinyModel::kGpt;
  ParallelLayout layout;
  DataType dtype = DataType::kFloat32;
};
ModelSpec SpecOf(const TinySetting& setting);
// Returns up to four models for each layout: GPT; Llama; GPT or Llama with a tied embedding and fused attention; and a model of
// another family. The third and the fourth change from layout to layout. A model is left out if the tensor-parallel degree does
// not divide its number of key heads.
std::vector<TinySetting> ModelsIn(const std::vector<ParallelLayout>& layouts);
// Returns every model in each layout that it can have: the tensor-parallel degree divides the number of key heads, and models
// with experts have tensor parallelism only together with sequence parallelism.
std::vector<TinySetting> AllModelsIn(const std::vector<ParallelLayout>& layouts);
// Returns the settings of ModelsIn(in_float), and those of ModelsIn(in_bfloat16) with the type bfloat16.
std::vector<TinySetting> ModelsIn(const std::vector<ParallelLayout>& in_float, const std::vector<ParallelLayout>& in_bfloat16);
// Returns the setting as a test's name: "llamatiedtp2pp2dp1interleaved", "gpttp2pp1dp1bfloat16".
std::string TestName(const TinySetting& setting);
// Returns the layout as a test's name: "tp2pp2dp1interleaved".
std::string TestName(const ParallelLayout& layout);

// Returns a temporary folder of this process. It is removed when the process ends.
const std::string& TemporaryFolder();
// Returns the path of a data file of 20,000 bytes. Each byte is from 0 to 59, so it is a token of every vocabulary in the
// tests. Most bytes follow from the byte before, so that a model can learn them. The content is the same in every run.
const std::string& TextFile();

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_ENGINE_TINY_CLUSTER_H_
