#include "tests/worker/engine/tiny_cluster.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "absl/strings/ascii.h"
#include "common/check.h"
#include "common/rng.h"
#include "common/status.h"
#include "planner/cost/cost_model.h"
#include "planner/lower/lower.h"
#include "planner/lower/weave.h"
#include "planner/problem/batch_split.h"
#include "planner/stages/partition.h"
#include "worker/backend/host_view.h"
#include "worker/collectives/peer_proof.h"
#include "worker/engine/staged_communicator.h"

namespace lynx::worker {
namespace {

constexpr int kTextBytes = 20'000;
constexpr int kAlphabet = 60;  // below every vocabulary that the tests use

struct Folder {
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lynx-engine-test-XXXXXX").string();
    LYNX_CHECK(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

// Makes a file of text with some structure, so that losses decrease: each byte depends on the previous one.
std::string MakeTextFile() {
  const std::string path = TemporaryFolder() + "/text";
  std::string text;
  uint64_t previous = 0;
  for (uint64_t i = 0; i < kTextBytes; ++i) {
    const uint64_t draw = Mix64(i);
    previous = draw % 3 != 0 ? (previous * 7 + 3) % kAlphabet : (draw >> 32) % kAlphabet;
    text.push_back(static_cast<char>(previous));
  }
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenText(const TinyJob& job) {
  return OpenDataset({.kind = DataKind::kText, .path = TextFile()}, job.model.seq, job.model.vocab, job.train.seed);
}

// Copies the values of a slot into the whole parameter.
void Collect(const ParameterSlot& slot, float* device_values, Backend& backend, Parameters& parameters) {
  HostView view = HostView::Fetch({device_values, static_cast<size_t>(slot.count)}, backend).value();
  const float* const values = view.floats().data();
  std::vector<float>& whole = parameters[slot.name];
  whole.resize(slot.global_rows * slot.global_columns);
  for (const ParameterPiece& piece : slot.pieces) {
    for (int64_t row = 0; row < piece.rows; ++row) {
      std::copy_n(values + piece.offset + row * piece.columns, piece.columns,
                  &whole[(piece.row + row) * slot.global_columns + piece.column]);
    }
  }
}

absl::Status RunRank(const TinyJob& job, const CommunicatorOptions& options,
                     const std::function<absl::Status(TinyRank&)>& body) {
  TinyRank rank{.rank = options.rank, .coordinates = CoordinatesOf(job.layout, options.rank), .job = &job};
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> connected, ConnectTcp(options));
  const std::unique_ptr<Backend> backend = job.make_backend ? job.make_backend() : MakeCpuBackend(1);
  std::unique_ptr<Communicator> between_devices;
  if (job.make_communicator) {
    LYNX_ASSIGN_OR_RETURN(between_devices, job.make_communicator(options.rank, *connected, *backend));
  } else if (!backend->host_addressable()) {
    between_devices = std::make_unique<StagedCommunicator>(job.layout, options.rank, *connected, *backend);
  }
  Communicator* const communicator = between_devices != nullptr ? between_devices.get() : connected.get();
  const auto run = [&]() -> absl::Status {
    const StageProgram& stage = job.stages[rank.coordinates.stage];
    LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset, job.open_dataset ? job.open_dataset() : OpenText(job));
    LYNX_ASSIGN_OR_RETURN(ModelState state,
                          ModelState::Create(stage.context, rank.coordinates.tp,
                                             MembersOf(job.layout, rank.rank, Group::kData).index, job.train.seed, *backend));
    LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create({.context = stage.context,
                                                                                .rank = rank.rank,
                                                                                .program = stage.program,
                                                                                .arena = stage.arena,
                                                                                .train = job.train,
                                                                                .dead_buffers = job.dead_buffers,
                                                                                .packed_numbers = job.packed_numbers},
                                                                               *backend, *communicator, state, *dataset));
    LYNX_RETURN_IF_ERROR(engine->GatherWeights());
    rank.communicator = communicator;
    rank.state = &state;
    rank.dataset = dataset.get();
    rank.engine = engine.get();
    return body(rank);
  };
  const absl::Status status = run();
  if (!status.ok()) communicator->Abort(status);
  return status;
}

}  // namespace

const char* TinyModelName(TinyModel model) {
  constexpr const char* kNames[] = {"gpt",        "llama",     "gpt-tied", "llama-tied", "grouped-gpt", "multi-query-gpt",
                                    "llama3",     "mistral",   "qwen2",    "qwen3",      "phi3",        "mixtral",
                                    "qwen3-moe",  "qwen2-moe", "glm4-moe", "olmoe",      "latent",      "deepseek-v2",
                                    "deepseek-v3"};
  return kNames[static_cast<size_t>(model)];
}

ModelSpec SpecOf(TinyModel model) {
  ModelSpec spec{.layers = 4, .hidden = 16, .heads = 4, .ffn = 32, .seq = 8, .vocab = 67, .dropout = 0.1};
  if (model == TinyModel::kLlama || model == TinyModel::kTiedLlama || model >= TinyModel::kLlama3) {
    spec.dropout = 0;
    spec.family = ModelFamily::kLlama;
    spec.kv_heads = 2;
  }
  if (model >= TinyModel::kGroupedGpt) {
    spec.attention = AttentionKernel::kFused;
    spec.norm_epsilon = 1e-3;
  }
  if (model == TinyModel::kGroupedGpt) spec.kv_heads = 2;
  if (model == TinyModel::kMultiQueryGpt) spec.kv_heads = 1;
  if (model == TinyModel::kLlama3) {
    spec.rotary = {.theta = 50, .scaling = RopeScaling::kLlama3, .factor = 8, .original_seq = 64};
    spec.tied_embeddings = true;
  }
  if (model == TinyModel::kMistral) {
    spec.head_dim = 6;
    spec.window = 16;
    spec.rotary = {.theta = 100, .scaling = RopeScaling::kLinear, .factor = 2};
  }
  if (model == TinyModel::kQwen2) {
    spec.qkv_bias = true;
    spec.rotary = {.theta = 100, .scaling = RopeScaling::kYarn, .factor = 4, .original_seq = 32};
  }
  if (model == TinyModel::kQwen3) {
    spec.qk_norm = true;
    spec.head_dim = 6;
    spec.tied_embeddings = true;
    spec.rotary = {.theta = 1000, .scaling = RopeScaling::kDynamic, .factor = 2, .original_seq = 4};
  }
  if (model == TinyModel::kPhi3) spec.rotary = {.theta = 100, .dims = 2};
  if (model == TinyModel::kMixtral) spec.moe = {.experts = 4, .top_k = 2, .ffn = 20, .capacity = 2};
  if (model == TinyModel::kQwen3Moe) {
    spec.qk_norm = true;
    spec.head_dim = 6;
    spec.moe = {.experts = 6, .top_k = 3, .ffn = 12, .normalized = false, .capacity = 2};
  }
  if (model == TinyModel::kQwen2Moe) {
    spec.qkv_bias = true;
    spec.moe = {.experts = 6, .top_k = 2, .ffn = 12, .normalized = false, .capacity = 3, .shared_ffn = 20, .shared_gate = true};
  }
  if (model == TinyModel::kGlm4Moe) {
    spec.qkv_bias = spec.qk_norm = true;
    spec.head_dim = 16;
    spec.rotary = {.theta = 100, .dims = 4};
    spec.moe = {.experts = 6, .top_k = 3, .ffn = 12, .capacity = 2, .dense_layers = 1};
    spec.moe.shared_ffn = 24;  // two shared experts
    spec.moe.scores = RouterScores::kSigmoid;
    spec.moe.weight_scale = 2.5;
    spec.moe.router_bias = true;
    spec.moe.bias_rate = 0.003;
  }
  if (model == TinyModel::kOlmoe) {
    spec.qk_norm = spec.qk_norm_whole = true;
    spec.kv_heads = spec.heads;
    spec.moe = {.experts = 6, .top_k = 3, .ffn = 12, .normalized = false, .capacity = 2};
  }
  if (model >= TinyModel::kLatent) {
    spec.kv_heads = 0;
    spec.head_dim = 6;
    spec.rotary = {.theta = 100, .dims = 4, .scaling = RopeScaling::kYarn, .factor = 4, .original_seq = 32};
    spec.rotary.mscale_all_dim = 0.8;
    spec.latent = {.query_rank = 10, .kv_rank = 12, .value_dim = 5};
  }
  if (model == TinyModel::kDeepseekV2) {
    // With 6 experts and a rank of 12, two scores in the check of gradients are so close that its step changes the choice. The
    // weights of this router are not divided by their sum, so the loss jumps there, and no difference says its slope.
    spec.latent = {.kv_rank = 8, .value_dim = 5};
    spec.rotary.attention_factor = 1;
    spec.moe = {.experts = 4, .top_k = 2, .ffn = 12, .normalized = false, .capacity = 2, .shared_ffn = 24, .dense_layers = 1};
  }
  if (model == TinyModel::kDeepseekV3) {
    spec.rotary.attention_factor = 1;
    spec.moe = {.experts = 6, .top_k = 3, .ffn = 12, .capacity = 2, .shared_ffn = 12, .dense_layers = 1};
    spec.moe.scores = RouterScores::kSigmoid;
    spec.moe.weight_scale = 2.5;
    spec.moe.router_bias = true;
    spec.moe.bias_rate = 0.003;
  }
  if (model == TinyModel::kTiedGpt || model == TinyModel::kTiedLlama) {
    spec.tied_embeddings = true;
    spec.attention = AttentionKernel::kFused;
  }
  return spec;
}

ModelSpec TinyMoe(DataType dtype, TinyModel model) {
  ModelSpec spec = SpecOf(model);
  spec.dtype = dtype;
  spec.kv_heads = spec.heads;
  spec.moe.experts = 8;
  spec.moe.capacity = 4;
  return spec;
}

ModelSpec SpecOf(const TinySetting& setting) {
  ModelSpec spec = SpecOf(setting.model);
  spec.dtype = setting.dtype;
  return spec;
}

void TinyJob::Lower(const ParallelLayout& new_layout,
                    const std::function<StagePolicy(const StageContext&, const StageSlice&)>& policy_of) {
  layout = new_layout;
  stages.clear();
  for (const StageContext& context : PipelineContexts(
           model, layout, train.micro_batch, BatchSplit{train.global_batch, layout.dp, train.micro_batch}.microbatches(),
           EvenPartition(PipelineOf(layout).pieces(), model.layers))) {
    std::vector<StagePolicy> policies;
    for (const StageSlice& slice : context.slices) policies.push_back(policy_of(context, slice));
    Program program = LowerStage(context, policies);
    if (layout.weave != WeaveMode::kOff) {
      HardwareProfile profile = StatedCpuProfile();
      profile.intra_node.bytes_per_second = profile.inter_node.bytes_per_second = link_bytes_per_second;
      program = Weave(program, context, CostModel(profile, model, layout, train.micro_batch, layout.ranks())).program;
    }
    const absl::StatusOr<MemoryPlan> memory = PlanMemory(program, context);
    LYNX_CHECK(memory.ok());
    stages.push_back({context, std::move(program), memory->arena});
  }
}

void TinyJob::Lower(const ParallelLayout& new_layout, RecomputeMode mode) {
  Lower(new_layout, [&](const StageContext& context, const StageSlice& slice) {
    return NamedPolicy(context.graph(), mode, slice.layers());
  });
}

std::vector<absl::Status> OnRanks(const TinyJob& job, const std::function<absl::Status(TinyRank&)>& body) {
  const int32_t ranks = job.layout.ranks();
  TextFile();  // makes the file before threads read it
  std::vector<CommunicatorOptions> options(ranks);
  std::vector<PeerAddress> peers;
  for (CommunicatorOptions& one : options) {
    const ListeningSocket socket = ListenTcp("127.0.0.1").value();
    one.listen_fd = socket.fd;
    peers.push_back({"127.0.0.1", socket.port});
  }
  const std::string secret = NewConnectionSecret();
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    options[rank].job = JobId("tiny");
    options[rank].generation = Generation(1);
    options[rank].secret = secret;
    options[rank].layout = job.layout;
    options[rank].experts = job.experts || job.model.moe.any();
    options[rank].rank = rank;
    options[rank].peers = peers;
    threads.emplace_back([&, rank] { statuses[rank] = RunRank(job, options[rank], body); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

void CollectGradients(ModelState& state, Parameters& parameters) {
  for (const ParameterSlot& slot : state.slots()) {
    if (!slot.by_load) Collect(slot, &state.gradients()[slot.offset], state.backend(), parameters);
  }
}

void CollectWeights(ModelState& state, Parameters& parameters) {
  for (const ParameterSlot& slot : state.updated()) Collect(slot, state.UpdatedWeight(slot), state.backend(), parameters);
}

float* WeightOf(ModelState& state, int32_t layer, Parameter parameter) {
  LYNX_CHECK(!state.shares_updates());
  return &state.weights()[state.Slot(layer, parameter).offset];
}

std::vector<double> TinyRun::losses() const {
  std::vector<double> losses;
  for (const StepReport& report : reports[0]) losses.push_back(report.loss);
  return losses;
}

TinyRun Train(const TinyJob& job, int64_t steps) {
  TinyRun run;
  run.reports.resize(job.layout.ranks());
  std::mutex mutex;
  const std::vector<absl::Status> statuses = OnRanks(job, [&](TinyRank& rank) -> absl::Status {
    for (int64_t step = 0; step < steps; ++step) {
      LYNX_ASSIGN_OR_RETURN(const StepReport report, rank.engine->RunStep(step));
      run.reports[rank.rank].push_back(report);
      EXPECT_EQ(report.arena_peak, rank.engine->arena());
    }
    const std::lock_guard lock(mutex);
    // Replicas have the same weights, but may have other experts.
    if (rank.coordinates.dp == 0 || rank.state->shares_updates() || job.model.moe.any()) {
      CollectWeights(*rank.state, run.weights);
    }
    return absl::OkStatus();
  });
  for (int32_t rank = 0; rank < job.layout.ranks(); ++rank) {
    EXPECT_TRUE(statuses[rank].ok()) << "rank " << rank << ": " << statuses[rank];
    if (!statuses[rank].ok()) continue;
    for (int64_t step = 0; step < steps; ++step) {
      EXPECT_EQ(run.reports[rank][step].loss, run.reports[0][step].loss) << "rank " << rank << ", step " << step;
    }
  }
  return run;
}

std::vector<TinySetting> AllModelsIn(const std::vector<ParallelLayout>& layouts) {
  std::vector<TinySetting> settings;
  for (const ParallelLayout& layout : layouts) {
    for (int i = 0; i < kTinyModelCount; ++i) {
      const auto model = static_cast<TinyModel>(i);
      const ModelSpec spec = SpecOf(model);
      if (CheckEngineRuns(spec, layout).ok() && spec.key_heads() % layout.tp == 0) settings.push_back({model, layout});
    }
  }
  return settings;
}

std::vector<TinySetting> ModelsIn(const std::vector<ParallelLayout>& layouts) {
  std::vector<TinySetting> settings;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const TinyModel tied = i % 2 == 0 ? TinyModel::kTiedGpt : TinyModel::kTiedLlama;
    constexpr TinyModel kFamilies[] = {TinyModel::kQwen3, TinyModel::kGroupedGpt, TinyModel::kMistral,
                                       TinyModel::kQwen2, TinyModel::kLlama3,     TinyModel::kPhi3};
    for (const TinyModel model : {TinyModel::kGpt, TinyModel::kLlama, tied, kFamilies[i % std::size(kFamilies)]}) {
      if (SpecOf(model).key_heads() % layouts[i].tp == 0) settings.push_back({model, layouts[i]});
    }
  }
  return settings;
}

std::vector<TinySetting> ModelsIn(const std::vector<ParallelLayout>& in_float, const std::vector<ParallelLayout>& in_bfloat16) {
  std::vector<TinySetting> settings = ModelsIn(in_float);
  for (TinySetting setting : ModelsIn(in_bfloat16)) {
    setting.dtype = DataType::kBfloat16;
    settings.push_back(setting);
  }
  return settings;
}

std::string TestName(const TinySetting& setting) {
  std::string model = TinyModelName(setting.model);
  std::erase(model, '-');
  const std::string dtype = setting.dtype == DataType::kFloat32 ? "" : EnumName(setting.dtype);
  return model + TestName(setting.layout) + dtype;
}

std::string TestName(const ParallelLayout& layout) {
  std::string name = LayoutText(layout);
  std::erase_if(name, [](char c) { return !absl::ascii_isalnum(static_cast<unsigned char>(c)); });
  return name;
}

const std::string& TemporaryFolder() {
  static const Folder folder;
  return folder.path;
}

const std::string& TextFile() {
  static const std::string path = MakeTextFile();
  return path;
}

}  // namespace lynx::worker
