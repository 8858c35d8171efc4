// checkpoint: works on checkpoints offline. Shows them, verifies them, and exchanges weights with other programs.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/output/exit_code.h"
#include "cli/output/render.h"
#include "cli/output/waiting_line.h"
#include "cli/spec/model_config.h"
#include "cli/verbs/commands.h"
#include "cli/verbs/told_files.h"
#include "common/status.h"
#include "common/utf8.h"
#include "planner/problem/layout.h"
#include "worker/checkpoint/hugging_face.h"
#include "worker/checkpoint/offline.h"

namespace lynx::cli {
namespace {

using Json = nlohmann::ordered_json;
using worker::CheckpointIdentity;
using worker::CheckpointSummary;
using worker::DataFingerprint;
using worker::ExportToHuggingFace;
using worker::FindCheckpoints;
using worker::FingerprintText;
using worker::FoundCheckpoints;
using worker::ImportFromHuggingFace;
using worker::NonFiniteWeights;
using worker::ReadHuggingFaceConfig;
using worker::ShardRecord;
using worker::TensorsOf;
using worker::TensorSummary;
using worker::VerifyCheckpoint;

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

std::string NameOf(const CheckpointSummary& checkpoint) { return std::filesystem::path(checkpoint.path).filename().string(); }

bool NamesOne(const FoundCheckpoints& found, const std::string& path) {
  return found.checkpoints.size() == 1 && Absolute(path + "/").starts_with(found.checkpoints[0].path + "/");
}

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("(", absl::StrJoin(shape, ", "), ")"); }

std::string ModelText(const ModelSpec& m) {
  return absl::StrCat(EnumName(m.family), ", ", m.layers, " layers, hidden ", m.hidden, ", ", m.heads, " heads",
                      m.key_heads() == m.heads ? "" : absl::StrCat(" (", m.key_heads(), " of keys and values)"), ", ffn ",
                      m.ffn, ", seq ", m.seq, ", vocab ", m.vocab, m.tied_embeddings ? ", tied embeddings" : "",
                      ModelFeaturesText(m));
}

std::string DataText(const DataFingerprint& data) { return data.bytes == Bytes(0) ? "none" : FingerprintText(data); }

std::string OnePage(const CheckpointSummary& checkpoint, const std::vector<TensorSummary>& tensors) {
  const CheckpointIdentity& id = checkpoint.identity;
  std::string page =
      absl::StrCat("checkpoint  ", checkpoint.path, "\njob         ", id.job.value, ", generation ", id.generation.value,
                   "\nstep        ", id.step, "\nmodel       ", ModelText(id.model), "\nlayout      ", LayoutText(id.layout),
                   "\nseed        ", id.seed, "\ndata        ", DataText(id.data), "\nsize        ",
                   FormatBytes(checkpoint.bytes), " in ", checkpoint.files.size(), " files\n\n");
  std::vector<std::vector<std::string>> rows = {{"FILE", "BYTES", "SHA-256"}};
  for (const ShardRecord& file : checkpoint.files) {
    rows.push_back({file.file, absl::StrCat(file.bytes.value), file.sha256});
  }
  absl::StrAppend(&page, TableText(rows), "\n");
  rows = {{"TENSOR", "SHAPE", "SHARDS"}};
  for (const TensorSummary& tensor : tensors) {
    rows.push_back({tensor.name, ShapeText(tensor.shape), absl::StrCat(tensor.shards)});
  }
  return page + TableText(rows);
}

std::string ListPage(const FoundCheckpoints& found) {
  std::vector<std::vector<std::string>> rows = {{"CHECKPOINT", "JOB", "LAYOUT", "FILES", "SIZE"}};
  for (const CheckpointSummary& checkpoint : found.checkpoints) {
    rows.push_back({NameOf(checkpoint), checkpoint.identity.job.value, LayoutText(checkpoint.identity.layout),
                    absl::StrCat(checkpoint.files.size()), FormatBytes(checkpoint.bytes)});
  }
  return TableText(rows);
}

Json JsonOf(const CheckpointSummary& checkpoint) {
  const CheckpointIdentity& id = checkpoint.identity;
  const ModelSpec& m = id.model;
  Json files = Json::array();
  for (const ShardRecord& file : checkpoint.files) {
    files.push_back({{"file", file.file}, {"bytes", file.bytes.value}, {"sha256", file.sha256}});
  }
  return {{"path", checkpoint.path},
          {"job", id.job.value},
          {"generation", id.generation.value},
          {"step", id.step},
          {"seed", id.seed},
          {"layout", LayoutText(id.layout)},
          {"model",
           {{"family", EnumName(m.family)},
            {"layers", m.layers},
            {"hidden", m.hidden},
            {"heads", m.heads},
            {"kvHeads", m.key_heads()},
            {"ffn", m.ffn},
            {"seq", m.seq},
            {"vocab", m.vocab},
            {"tiedEmbeddings", m.tied_embeddings},
            {"headDim", m.head_size()},
            {"qkvBias", m.qkv_bias},
            {"qkNorm", m.qk_norm},
            {"qkNormWhole", m.qk_norm_whole},
            {"normEpsilon", m.norm_epsilon},
            {"window", m.window},
            {"moe",
             {{"experts", m.moe.experts},
              {"topK", m.moe.top_k},
              {"ffn", m.moe.any() ? m.expert_ffn() : 0},
              {"normalized", m.moe.normalized},
              {"capacity", m.moe.capacity},
              {"dropless", m.moe.dropless},
              {"skew", m.moe.skew},
              {"auxLoss", m.moe.aux_loss},
              {"zLoss", m.moe.z_loss},
              {"sharedFfn", m.moe.shared_ffn},
              {"sharedGate", m.moe.shared_gate},
              {"denseLayers", m.moe.dense_layers},
              {"scores", EnumName(m.moe.scores)},
              {"weightScale", m.moe.weight_scale},
              {"routerBias", m.moe.router_bias},
              {"biasRate", m.moe.bias_rate}}},
            {"rope",
             {{"theta", m.rotary.theta},
              {"dims", m.rotary.dims},
              {"scaling", EnumName(m.rotary.scaling)},
              {"factor", m.rotary.factor},
              {"originalSeq", m.rotary.original_seq},
              {"lowFreqFactor", m.rotary.low_freq_factor},
              {"highFreqFactor", m.rotary.high_freq_factor},
              {"betaFast", m.rotary.beta_fast},
              {"betaSlow", m.rotary.beta_slow},
              {"attentionFactor", m.rotary.attention_factor},
              {"mscaleAllDim", m.rotary.mscale_all_dim}}},
            {"latent", {{"queryRank", m.latent.query_rank}, {"kvRank", m.latent.kv_rank}, {"valueDim", m.latent.value_dim}}}}},
          {"data", DataText(id.data)},
          {"bytes", checkpoint.bytes.value},
          {"files", files}};
}

std::string Text(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

absl::StatusOr<FoundCheckpoints> Find(const std::string& path) { return FindCheckpoints(Absolute(path)); }

// Reports every unreadable checkpoint on standard error. Returns the exit code for them.
int TellDamaged(const FoundCheckpoints& found) {
  for (const std::string& damaged : found.damaged) std::fprintf(stderr, "lynxctl: %s\n", damaged.c_str());
  return found.damaged.empty() ? kExitOk : kExitRefused;
}

// The checkpoint at the path, or the newest checkpoint if the path is a directory of checkpoints.
absl::StatusOr<CheckpointSummary> FindOne(const std::string& path) {
  LYNX_ASSIGN_OR_RETURN(FoundCheckpoints found, Find(path));
  if (found.checkpoints.empty()) return absl::DataLossError(absl::StrJoin(found.damaged, "; "));
  return std::move(found.checkpoints.front());
}

absl::Status CheckFormat(const std::string& format) {
  if (format == "hf") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--format ", format, ": expected hf"));
}

absl::StatusOr<ModelOfWeights> ReadModelOf(const std::string& folder, int32_t seq) {
  LYNX_ASSIGN_OR_RETURN(const std::string text, ReadHuggingFaceConfig(folder));
  LYNX_ASSIGN_OR_RETURN(ModelOfWeights read, ParseModelConfigOfWeights(text, absl::StrCat(folder, "/config.json")));
  ModelSpec& model = read.model;
  // Dynamic scaling is for sequences that are longer than the length in config.json.
  const double stretch = model.rotary.scaling == RopeScaling::kDynamic ? model.rotary.factor : 1;
  if (seq > model.seq * stretch) {
    return absl::InvalidArgumentError(
        absl::StrCat("--seq ", seq, ": the model was made for at most ", model.seq * stretch, " tokens"));
  }
  if (seq > 0) model.seq = seq;
  return read;
}

}  // namespace

int InspectCheckpoint(const GlobalOptions& global, const std::string& path) {
  const auto found = Find(path);
  if (!found.ok()) return Fail(found.status());
  const bool one = NamesOne(*found, path);
  std::vector<TensorSummary> tensors;
  if (one) {
    auto read = TensorsOf(found->checkpoints[0]);
    if (!read.ok()) return Fail(read.status());
    tensors = *std::move(read);
  }
  Json list = Json::array();
  for (const CheckpointSummary& checkpoint : found->checkpoints) list.push_back(JsonOf(checkpoint));
  for (const TensorSummary& tensor : tensors) {
    list[0]["tensors"].push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"shards", tensor.shards}});
  }
  const std::string page = found->checkpoints.empty() ? "" : one ? OnePage(found->checkpoints[0], tensors) : ListPage(*found);
  const int shown = ShowJson(global.output, Text({{"checkpoints", list}, {"damaged", found->damaged}}), page);
  return std::max(shown, TellDamaged(*found));
}

int VerifyCheckpoints(const GlobalOptions& global, const std::string& path) {
  const auto found = Find(path);
  if (!found.ok()) return Fail(found.status());
  int code = kExitOk;
  std::string page;
  Json list = Json::array();
  // What is wrong is printed afterwards, because the waiting line is on standard error, too.
  const auto all_wrong = WithWaitingLine("verifying", [&](const auto& tell) {
    ToldFiles files(tell);
    std::vector<std::vector<std::string>> each;
    for (const CheckpointSummary& checkpoint : found->checkpoints) each.push_back(VerifyCheckpoint(checkpoint, files));
    return each;
  });
  for (size_t i = 0; i < all_wrong.size(); ++i) {
    const CheckpointSummary& checkpoint = found->checkpoints[i];
    const std::vector<std::string>& wrong = all_wrong[i];
    if (!wrong.empty()) code = kExitRefused;
    list.push_back({{"path", checkpoint.path}, {"whole", wrong.empty()}, {"wrong", wrong}});
    absl::StrAppend(&page, checkpoint.path, "  ", wrong.empty() ? "whole" : "damaged", "\n");
    for (const std::string& reason : wrong) std::fprintf(stderr, "lynxctl: %s\n", reason.c_str());
  }
  const int shown = ShowJson(global.output, Text({{"checkpoints", list}, {"damaged", found->damaged}}), page);
  return std::max({shown, code, TellDamaged(*found)});
}

int ExportCheckpoint(const CheckpointExportOptions& options) {
  if (const absl::Status known = CheckFormat(options.format); !known.ok()) return Fail(known);
  const auto checkpoint = FindOne(options.path);
  if (!checkpoint.ok()) return Fail(checkpoint.status());
  const auto bytes = WithWaitingLine("exporting", [&](const auto& tell) {
    ToldFiles files(tell);
    return ExportToHuggingFace(*checkpoint, Absolute(options.out), files);
  });
  if (!bytes.ok()) return Fail(bytes.status());
  std::printf("step %lld of job %s, %s of weights: %s\n", static_cast<long long>(checkpoint->identity.step),
              checkpoint->identity.job.value.c_str(), FormatBytes(*bytes).c_str(), options.out.c_str());
  return kExitOk;
}

int ImportCheckpoint(const CheckpointImportOptions& options) {
  if (const absl::Status known = CheckFormat(options.format); !known.ok()) return Fail(known);
  const std::string folder = Absolute(options.path);
  const auto model = ReadModelOf(folder, options.seq);
  if (!model.ok()) return Fail(model.status());
  const NonFiniteWeights non_finite = options.allow_non_finite ? NonFiniteWeights::kTake : NonFiniteWeights::kRefuse;
  const auto imported = WithWaitingLine("importing", [&](const auto& tell) {
    ToldFiles files(tell);
    return ImportFromHuggingFace(folder, model->model, *model->family, Absolute(options.out), non_finite, files);
  });
  if (!imported.ok()) return Fail(imported.status());
  for (const std::string& note : imported->notes) {
    std::fprintf(stderr, "lynxctl: note: %s\n", VisibleText(note).c_str());
  }
  std::printf("%s\n", imported->checkpoint.path.c_str());
  return kExitOk;
}

}  // namespace lynx::cli
