// export_reference MODEL DIR: writes what the PyTorch reference needs to train the reference job of a model, gpt or
// llama: its initial weights as a checkpoint of step 0, the tokens of every step, and all settings.
//
//   DIR/step-00000000/   the checkpoint; one shard, for a single rank holds the whole model
//   DIR/tokens.i32       int32, (steps, global_batch, 2, seq): inputs and targets
//   DIR/settings.txt     NAME VALUE a line
#include <cstdio>
#include <fstream>

#include "common/status.h"
#include "tests/reference/reference_job.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/engine/lr_schedule.h"

namespace lynx {
namespace {

void WriteSettings(const TinyJob& job, const std::string& path) {
  std::ofstream file(path);
  file.precision(17);
  const ModelSpec& model = job.model;
  const TrainSpec& train = job.train;
  const OptimizerSpec& optimizer = train.optimizer;
  file << "family " << ModelFamilyName(model.family) << "\nkey_heads " << model.key_heads() << "\nlayers " << model.layers << "\nhidden " << model.hidden << "\nheads " << model.heads << "\nffn "
       << model.ffn << "\nseq " << model.seq << "\nvocab " << model.vocab << "\nsteps " << train.steps
       << "\nglobal_batch " << train.global_batch << "\nlr " << optimizer.lr << "\nbeta1 " << optimizer.beta1
       << "\nbeta2 " << optimizer.beta2 << "\neps " << optimizer.eps << "\nweight_decay " << optimizer.weight_decay
       << "\nclip_norm " << optimizer.clip_norm << "\nwarmup_steps " << train.warmup_steps << "\nmin_lr "
       << train.min_lr << "\n";
}

absl::Status WriteTokens(const TinyJob& job, const Dataset& dataset, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  std::vector<int32_t> tokens(2 * job.model.seq);
  for (int64_t i = 0; i < job.train.steps * job.train.global_batch; ++i) {
    LYNX_RETURN_IF_ERROR(dataset.Read(i, tokens.data(), tokens.data() + job.model.seq));
    file.write(reinterpret_cast<const char*>(tokens.data()),
               static_cast<std::streamsize>(tokens.size() * sizeof(int32_t)));
  }
  return absl::OkStatus();
}

absl::Status Export(TinyModel model, const std::string& directory) {
  TinyJob job = ReferenceJob(model);
  job.Lower({1, 1, 1}, RecomputeMode::kNone);
  return OnRanks(job, [&](TinyRank& rank) -> absl::Status {
    const CheckpointIdentity identity{.job = JobId("reference"),
                                      .generation = Generation(1),
                                      .step = 0,
                                      .seed = job.train.seed,
                                      .model = job.model,
                                      .layout = job.layout};
    LYNX_RETURN_IF_ERROR(WriteShard(directory, identity, rank.context(), 0, *rank.state).status());
    LYNX_RETURN_IF_ERROR(PublishCheckpoint(directory, identity).status());
    WriteSettings(job, directory + "/settings.txt");
    return WriteTokens(job, *rank.dataset, directory + "/tokens.i32");
  })[0];
}

}  // namespace
}  // namespace lynx

int main(int argc, char** argv) {
  const std::string model = argc == 3 ? argv[1] : "";
  if (model != "gpt" && model != "llama") {
    std::fprintf(stderr, "usage: export_reference gpt|llama DIR\n");
    return 2;
  }
  const absl::Status status = lynx::Export(model == "gpt" ? lynx::TinyModel::kGpt : lynx::TinyModel::kLlama, argv[2]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
