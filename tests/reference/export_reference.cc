// export_reference MODEL DIR [STEPS TP PP [EP]]: writes what another program needs to repeat the reference job of a model, such
// as gpt, llama-tied or qwen3 (tests/worker/engine/tiny_cluster.h). It writes the model's weights after STEPS steps (default:
// 0) on TP x PP ranks (default: one) as a checkpoint, the tokens of every step, and all settings. With EP there are EP
// replicas, which share the experts.
//
//   DIR/step-00000000/   the checkpoint; a shard for each rank
//   DIR/tokens.i32       int32, (steps, global_batch, 2, seq): inputs and targets
//   DIR/settings.txt     lines "NAME VALUE"
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "common/status.h"
#include "tests/reference/reference_job.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/checkpoint_index.h"
#include "worker/engine/lr_schedule.h"

namespace lynx {
namespace {

void WriteSettings(const worker::TinyJob& job, const std::string& path) {
  std::ofstream file(path);
  file.precision(17);
  const ModelSpec& model = job.model;
  const TrainSpec& train = job.train;
  const OptimizerSpec& optimizer = train.optimizer;
  const RotarySpec& rotary = model.rotary;
  file << "norm_epsilon " << model.norm_epsilon << "\nhead_size " << model.head_size() << "\nrope_theta " << rotary.theta
       << "\nrope_dims " << (rotary.dims == 0 ? model.head_size() : rotary.dims) << "\nrope_scaling "
       << EnumName(rotary.scaling) << "\nrope_factor " << rotary.factor << "\nrope_original_seq " << rotary.original_seq
       << "\nrope_low_freq_factor " << rotary.low_freq_factor << "\nrope_high_freq_factor " << rotary.high_freq_factor
       << "\nrope_beta_fast " << rotary.beta_fast << "\nrope_beta_slow " << rotary.beta_slow << "\ntied "
       << (model.tied_embeddings ? 1 : 0) << "\nqk_norm_whole " << (model.qk_norm_whole ? 1 : 0) << "\n";
  file << "family " << EnumName(model.family) << "\nkey_heads " << model.key_heads() << "\nlayers " << model.layers
       << "\nhidden " << model.hidden << "\nheads " << model.heads << "\nffn " << model.ffn << "\nseq " << model.seq
       << "\nvocab " << model.vocab << "\nsteps " << train.steps << "\nglobal_batch " << train.global_batch << "\nlr "
       << optimizer.lr << "\nbeta1 " << optimizer.beta1 << "\nbeta2 " << optimizer.beta2 << "\neps " << optimizer.eps
       << "\nweight_decay " << optimizer.weight_decay << "\nclip_norm " << optimizer.clip_norm << "\nwarmup_steps "
       << train.warmup_steps << "\nmin_lr " << train.min_lr << "\n";
  const LatentSpec& latent = model.latent;
  if (latent.any()) {
    file << "query_rank " << latent.query_rank << "\nkv_rank " << latent.kv_rank << "\nvalue_dim " << latent.value_dim
         << "\nmscale_all_dim " << rotary.mscale_all_dim << "\nrope_attention_factor " << rotary.attention_factor << "\n";
  }
  const MoeSpec& moe = model.moe;
  if (!moe.any()) return;
  file << "experts " << moe.experts << "\ntop_k " << moe.top_k << "\nnormalized " << (moe.normalized ? 1 : 0) << "\ncapacity "
       << moe.capacity << "\nscores " << EnumName(moe.scores) << "\nweight_scale " << moe.weight_scale << "\nbias_rate "
       << moe.bias_rate << "\naux_loss " << moe.aux_loss << "\nz_loss " << moe.z_loss << "\nmicro_batch " << train.micro_batch
       << "\n";
}

absl::Status WriteTokens(const worker::TinyJob& job, const worker::Dataset& dataset, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  std::vector<int32_t> tokens(2 * job.model.seq);
  for (int64_t i = 0; i < job.train.steps * job.train.global_batch; ++i) {
    LYNX_RETURN_IF_ERROR(dataset.Read(i, tokens.data(), tokens.data() + job.model.seq));
    file.write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(tokens.size() * sizeof(int32_t)));
  }
  return absl::OkStatus();
}

absl::Status Export(worker::TinyModel model, const std::string& directory, int64_t steps, const ParallelLayout& layout) {
  worker::TinyJob job = ReferenceJob(model);
  job.Lower(layout, RecomputeMode::kNone);
  const std::vector<absl::Status> statuses = OnRanks(job, [&](worker::TinyRank& rank) -> absl::Status {
    const worker::CheckpointIdentity identity{.job = JobId("reference"),
                                              .generation = Generation(1),
                                              .step = steps,
                                              .seed = job.train.seed,
                                              .model = job.model,
                                              .layout = job.layout};
    for (int64_t step = 0; step < steps; ++step) LYNX_RETURN_IF_ERROR(rank.engine->RunStep(step).status());
    if (rank.coordinates.dp < worker::WritingReplicas(job.layout)) {
      LYNX_RETURN_IF_ERROR(
          worker::WriteShard(directory, identity, rank.context(), rank.coordinates.tp, rank.coordinates.dp, *rank.state)
              .status());
    }
    LYNX_RETURN_IF_ERROR(rank.communicator->Barrier());
    if (rank.rank != 0) return absl::OkStatus();
    LYNX_RETURN_IF_ERROR(worker::PublishCheckpoint(directory, identity).status());
    WriteSettings(job, directory + "/settings.txt");
    return WriteTokens(job, *rank.dataset, directory + "/tokens.i32");
  });
  for (const absl::Status& status : statuses) LYNX_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

std::map<std::string, worker::TinyModel> Models() {
  std::map<std::string, worker::TinyModel> models;
  for (int i = 0; i < worker::kTinyModelCount; ++i)
    models[worker::TinyModelName(static_cast<worker::TinyModel>(i))] = static_cast<worker::TinyModel>(i);
  return models;
}

}  // namespace
}  // namespace lynx

int main(int argc, char** argv) {
  const std::map<std::string, lynx::worker::TinyModel> models = lynx::Models();
  const auto model = argc > 1 ? models.find(argv[1]) : models.end();
  if (model == models.end() || (argc != 3 && argc != 6 && argc != 7)) {
    std::fprintf(stderr, "usage: export_reference MODEL DIR [STEPS TP PP [EP]]\nmodels:");
    for (const auto& [name, unused] : models) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  lynx::ParallelLayout layout;
  if (argc >= 6) {
    layout.tp = std::atoi(argv[4]);
    layout.pp = std::atoi(argv[5]);
    if (argc == 7) layout.dp = layout.ep = std::atoi(argv[6]);
  }
  const absl::Status status = lynx::Export(model->second, argv[2], argc >= 6 ? std::atoll(argv[3]) : 0, layout);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
