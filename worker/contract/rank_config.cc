#include "worker/contract/rank_config.h"

#include "absl/strings/str_cat.h"
#include "common/connection_secret.h"
#include "common/limits.h"
#include "common/status.h"
#include "planner/problem/layout.h"
#include "planner/problem/layout_schedule.h"
#include "worker/contract/json_fields.h"
#include "worker/contract/rank_config_fields.h"

namespace lynx {
namespace {

constexpr const char* kWhat = "rank configuration";
// The version of the text. A daemon and a rank process with different versions are of different releases, and the rank refuses
// the text.
constexpr int32_t kFormat = 15;
constexpr size_t kMaxJobBytes = 63;
constexpr char kJobCharacters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

// The parts of a configuration that the JSON contains as text.
struct Texts {
  std::string program;
  std::string schedule;  // the schedule of context.layout; "" unless it is custom
};

template <class Fields>
void DescribeAll(Fields& fields, int32_t& format, RankConfig& config, Texts& texts) {
  fields.Field("format", format);
  Describe(fields, config);
  fields.Field("schedule_text", texts.schedule);
  fields.Field("program", texts.program);
}

// Checks the values that later checks rely on.
void CheckValues(JsonReader& fields, int32_t format, const RankConfig& config) {
  const ParallelLayout& layout = config.context.layout;
  if (format != kFormat) {
    fields.Fail("format", absl::StrCat("is ", format, "; this release reads ", kFormat));
  }
  // The job becomes a part of file names.
  const std::string& job = config.job.value;
  if (job.empty() || job.size() > kMaxJobBytes || job.find_first_not_of(kJobCharacters) != std::string::npos) {
    fields.Fail("job", absl::StrCat("is '", job, "'; 1 to ", kMaxJobBytes, " letters, digits, '.', '_' and '-'"));
  }
  if (config.generation.value < 1) {
    fields.Fail("generation", absl::StrCat("is ", config.generation.value, "; the first is 1"));
  }
  const auto size_ok = [](int32_t size) { return size >= 1 && size <= kMaxRanks; };
  if (!size_ok(layout.tp) || !size_ok(layout.pp) || !size_ok(layout.dp) || layout.cp != 1 || layout.virtual_stages < 1 ||
      layout.virtual_stages > kMaxPipelineChunks || int64_t{layout.tp} * layout.pp > kMaxRanks ||
      int64_t{layout.tp} * layout.pp * layout.dp > kMaxRanks) {
    fields.Fail("context.layout", absl::StrCat("is ", LayoutText(layout), "; its sizes must be at least 1 and give at most ",
                                               kMaxRanks, " ranks"));
    return;
  }
  if (layout.ep < 1 || RanksOfStage(layout) % layout.ep != 0) {
    fields.Fail("context.layout.ep", absl::StrCat("is ", layout.ep, "; it must divide the ", RanksOfStage(layout),
                                                  " ranks of a stage of ", LayoutText(layout)));
  }
  if (layout.rank_order == RankOrder::kAuto) fields.Fail("context.layout.rank_order", "is 'auto'; a plan has one order");
  if (config.rank < 0 || config.rank >= layout.ranks()) {
    fields.Fail("rank",
                absl::StrCat("is ", config.rank, "; the ranks of ", LayoutText(layout), " are 0..", layout.ranks() - 1));
    return;
  }
  if (static_cast<int64_t>(config.peers.size()) != layout.ranks()) {
    fields.Fail("peers", absl::StrCat("has ", config.peers.size(), " addresses; ", LayoutText(layout), " has ", layout.ranks(),
                                      " ranks"));
  }
  if (!IsConnectionSecret(config.connection_secret)) {
    fields.Fail("connection_secret", "is not 64 hexadecimal digits");  // the message must not contain the secret
  }
  if (config.context.pipeline_rank != CoordinatesOf(layout, config.rank).stage) {
    fields.Fail("context.pipeline_rank",
                absl::StrCat("is ", config.context.pipeline_rank, "; rank ", config.rank, " of ", LayoutText(layout),
                             " belongs to stage ", CoordinatesOf(layout, config.rank).stage));
  }
  if (config.arena.value < 0) fields.Fail("arena_bytes", absl::StrCat("is ", config.arena.value, ", below 0"));
  if (config.device.kind == DeviceKind::kAny) fields.Fail("device.kind", "is 'any'; a rank has one: 'cpu' or 'cuda'");
  if ((config.device.kind == DeviceKind::kCuda) == config.device.uuid.empty()) {
    fields.Fail("device.uuid", absl::StrCat("is '", config.device.uuid, "'; a GPU has one, a CPU has none"));
  }
  if (config.threads < 1) fields.Fail("threads", absl::StrCat("is ", config.threads, "; at least 1"));
  if (config.resume_step < -1) {
    fields.Fail("resume_step", absl::StrCat("is ", config.resume_step, "; a step, or -1 for none"));
  }
  if (config.last_checkpoint_patience < Nanos(0)) {
    fields.Fail("last_checkpoint_patience_ns", absl::StrCat("is ", config.last_checkpoint_patience.value, ", below 0"));
  }
  if (config.progress_limit < Nanos(0)) {
    fields.Fail("progress_limit_ns", absl::StrCat("is ", config.progress_limit.value, "; 0 for none"));
  }
  if (config.copies_limit < Bytes(0)) {
    fields.Fail("copies_limit_bytes", absl::StrCat("is ", config.copies_limit.value, "; 0 for none"));
  }
  if (config.pacing_bytes_per_second < 0) {
    fields.Fail("pacing_bytes_per_second", absl::StrCat("is ", config.pacing_bytes_per_second, "; 0 for none"));
  }
}

// Checks what latent attention relies on.
void CheckLatents(JsonReader& fields, const ModelSpec& model) {
  const LatentSpec& latent = model.latent;
  if (latent == LatentSpec()) return;
  if (latent.kv_rank < 1 || latent.query_rank < 0 || latent.value_dim < 1) {
    fields.Fail("context.model.latent",
                absl::StrCat("has ", latent.query_rank, " latents of queries, ", latent.kv_rank, " of keys and values, and ",
                             latent.value_dim, " elements of a head of values; at least 0, 1 and 1"));
    return;
  }
  const bool fused = model.family == ModelFamily::kLlama && model.attention == AttentionKernel::kFused;
  if (!fused || model.key_heads() != model.heads || model.qk_norm || model.qkv_bias) {
    fields.Fail("context.model.latent",
                "is for llama with fused attention and keys for every head, without norms of queries "
                "and keys and without biases");
  }
  if (model.rotary.dims < 2 || model.rotary.dims > model.head_size()) {
    fields.Fail("context.model.rotary.dims", absl::StrCat("is ", model.rotary.dims, "; with latent attention from 2 to the ",
                                                          model.head_size(), " elements of a head"));
  }
}

// Checks what the groups for experts rely on. The layout must be valid.
void CheckExperts(JsonReader& fields, const StageContext& context) {
  const MoeSpec& moe = context.model.moe;
  const ParallelLayout& layout = context.layout;
  if (!moe.any()) {
    if (moe.experts < 0) fields.Fail("context.model.moe.experts", absl::StrCat("is ", moe.experts, "; 0 for none"));
    if (layout.ep != 1) fields.Fail("context.layout.ep", absl::StrCat("is ", layout.ep, "; a model without experts has 1"));
    return;
  }
  if (moe.experts > kMaxExperts) {
    fields.Fail("context.model.moe.experts", absl::StrCat("is ", moe.experts, "; at most ", kMaxExperts));
  }
  if (moe.top_k < 1 || moe.top_k > moe.experts) {
    fields.Fail("context.model.moe.top_k", absl::StrCat("is ", moe.top_k, "; a token has 1 to ", moe.experts, " experts"));
  }
  if (moe.shared_ffn < 0 || (moe.shared_gate && moe.shared_ffn == 0)) {
    fields.Fail("context.model.moe.shared_ffn",
                absl::StrCat("is ", moe.shared_ffn, "; 0 for none, and above 0 for a block with a gate"));
  }
  if (moe.weight_scale <= 0 || (moe.router_bias && moe.scores != RouterScores::kSigmoid)) {
    fields.Fail("context.model.moe.scores", "does not go with the weights' factor or the biases of the router");
  }
  if (moe.dense_layers < 0 || moe.dense_layers >= context.model.layers) {
    fields.Fail("context.model.moe.dense_layers", absl::StrCat("is ", moe.dense_layers, "; from 0 to ",
                                                               context.model.layers - 1, ", so that a layer has experts"));
  }
  if (moe.experts % layout.ep != 0) {
    fields.Fail("context.layout.ep",
                absl::StrCat("is ", layout.ep, "; it must divide the ", moe.experts, " experts of the model"));
  }
  if (context.pipeline().bidirectional()) {
    fields.Fail("context.layout.schedule",
                absl::StrCat("is '", EnumName(layout.schedule), "'; the pipeline of a model with experts has one direction"));
  }
}

// Checks the slices. The layout must be valid.
void CheckSlices(JsonReader& fields, const StageContext& context) {
  const PipelineShape pipeline = context.pipeline();
  if (static_cast<int64_t>(context.slices.size()) != pipeline.chunks) {
    fields.Fail("context.slices", absl::StrCat("has ", context.slices.size(), " entries; ", LayoutText(context.layout),
                                               " puts ", pipeline.chunks, " on each pipeline rank"));
    return;
  }
  for (int32_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
    const int32_t stage = context.slices[static_cast<size_t>(chunk)].stage;
    const int32_t wanted = pipeline.StageOn(context.pipeline_rank, chunk);
    if (stage == wanted) continue;
    fields.Fail(absl::StrCat("context.slices[", chunk, "].stage").c_str(),
                absl::StrCat("is ", stage, "; pipeline rank ", context.pipeline_rank, " has virtual stage ", wanted, " there"));
    return;
  }
}

}  // namespace

std::string RankConfigText(const RankConfig& config) {
  RankConfig copy = config;
  int32_t format = kFormat;
  Texts texts{ProgramText(config.program), CustomScheduleText(config.context.layout)};
  JsonWriter writer;
  DescribeAll(writer, format, copy, texts);
  return writer.Indented();
}

absl::StatusOr<RankConfig> ParseRankConfig(const std::string& text) {
  RankConfig config;
  int32_t format = 0;
  Texts texts;
  JsonReader reader(text, kWhat);
  DescribeAll(reader, format, config, texts);
  if (reader.ok()) CheckValues(reader, format, config);
  if (reader.ok()) {
    const absl::Status custom = SetCustomSchedule(texts.schedule, config.context.layout);
    if (!custom.ok()) reader.Fail("schedule_text", std::string(custom.message()));
  }
  if (reader.ok()) CheckExperts(reader, config.context);
  if (reader.ok()) CheckLatents(reader, config.context.model);
  if (reader.ok()) CheckSlices(reader, config.context);
  if (reader.ok()) {
    for (StageSlice& slice : config.context.slices) {
      slice = SliceOf(config.context.layout, slice.stage, slice.first_layer, slice.end_layer);
    }
  }
  if (reader.ok()) {
    absl::StatusOr<Program> parsed = ParseProgram(texts.program);
    if (parsed.ok()) {
      config.program = *std::move(parsed);
    } else {
      reader.Fail("program", std::string(parsed.status().message()));
    }
  }
  LYNX_RETURN_IF_ERROR(reader.Finish());
  return config;
}

}  // namespace lynx
