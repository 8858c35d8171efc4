#include "worker/checkpoint/checkpoint_index.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/digest.h"
#include "common/limits.h"
#include "common/status.h"
#include "planner/problem/layout_schedule.h"
#include "planner/problem/model_families.h"
#include "planner/schedule/schedule.h"

namespace lynx::worker {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "lynx-checkpoint";
constexpr int64_t kVersion = 4;
// Like kVersion, but in layouts where several replicas write shards (WritingReplicas), not all of them do. Layouts with the
// same files as before have an index of kVersion, which older releases can read.
constexpr int64_t kVersionOfFewWriters = 5;
constexpr int64_t kVersionOfGpt = 3;  // old, only read: GPT models without tied embeddings or fused attention
// Old, only read: the same models, in layouts that set only tp, pp and dp and leave all other fields at their defaults.
constexpr int64_t kVersionOfPlainLayouts = 2;
constexpr int64_t kMaxElementCount = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max();
constexpr int64_t kNotANumber = std::numeric_limits<int64_t>::min();

// Returns the names of the files if `replicas` replicas write shards.
std::vector<std::string> FilesOf(const ParallelLayout& layout, int32_t replicas) {
  std::vector<std::string> files;
  for (int32_t stage = 0; stage < layout.pp; ++stage) {
    for (int32_t tp_rank = 0; tp_rank < layout.tp; ++tp_rank) {
      for (int32_t replica = 0; replica < replicas; ++replica) {
        files.push_back(ShardFile(layout, stage, tp_rank, replica));
      }
    }
  }
  return files;
}

// True if ZeRO divides the states among the replicas.
bool DividesStates(const ParallelLayout& layout) { return layout.zero != ZeroStage::kNone && GradientRanks(layout) > 1; }

// The number of replicas that wrote shards in releases before kVersionOfFewWriters.
int32_t FormerWritingReplicas(const ParallelLayout& layout) { return ReplicasWriteShards(layout) ? layout.dp : 1; }

int64_t VersionOf(const ParallelLayout& layout) {
  return WritingReplicas(layout) == FormerWritingReplicas(layout) ? kVersion : kVersionOfFewWriters;
}

// Writes only the features whose values are not the defaults. Older releases did not know the features, so the index of a model
// without them has the same text as in those releases.
void AddFeatures(const ModelSpec& m, json& model) {
  const ModelSpec plain;
  if (m.dtype != plain.dtype) model["dtype"] = EnumName(m.dtype);
  if (m.head_dim != 0) model["head_dim"] = m.head_dim;
  if (m.qkv_bias) model["qkv_bias"] = true;
  if (m.qk_norm) model["qk_norm"] = true;
  if (m.qk_norm_whole) model["qk_norm_whole"] = true;
  if (m.norm_epsilon != plain.norm_epsilon) model["norm_epsilon"] = m.norm_epsilon;
  if (m.window != 0) model["window"] = m.window;
  if (const MoeSpec& moe = m.moe; moe.any()) {
    model["moe"] = {{"experts", moe.experts},       {"top_k", moe.top_k},       {"ffn", m.expert_ffn()},
                    {"normalized", moe.normalized}, {"capacity", moe.capacity}, {"skew", moe.skew},
                    {"aux_loss", moe.aux_loss},     {"z_loss", moe.z_loss}};
    if (moe.dropless) model["moe"]["dropless"] = true;
    if (moe.dense_layers != 0) model["moe"]["dense_layers"] = moe.dense_layers;
    if (moe.shared_ffn != 0) model["moe"]["shared_ffn"] = moe.shared_ffn;
    if (moe.shared_gate) model["moe"]["shared_gate"] = true;
    if (moe.scores != RouterScores::kSoftmax) model["moe"]["scores"] = EnumName(moe.scores);
    if (moe.weight_scale != 1) model["moe"]["weight_scale"] = moe.weight_scale;
    if (moe.router_bias) model["moe"]["bias_rate"] = moe.bias_rate;
  }
  if (const LatentSpec& latent = m.latent; latent.any()) {
    model["latent"] = {{"query_rank", latent.query_rank}, {"kv_rank", latent.kv_rank}, {"value_dim", latent.value_dim}};
  }
  const RotarySpec& r = m.rotary;
  if (r == plain.rotary) return;
  model["rotary"] = {{"theta", r.theta},
                     {"dims", r.dims},
                     {"scaling", EnumName(r.scaling)},
                     {"factor", r.factor},
                     {"original_seq", r.original_seq},
                     {"low_freq_factor", r.low_freq_factor},
                     {"high_freq_factor", r.high_freq_factor},
                     {"beta_fast", r.beta_fast},
                     {"beta_slow", r.beta_slow},
                     {"attention_factor", r.attention_factor}};
  if (r.mscale_all_dim != 0) model["rotary"]["mscale_all_dim"] = r.mscale_all_dim;
}

json Canonical(const CheckpointIndex& index) {
  const CheckpointIdentity& id = index.identity;
  const ModelSpec& m = id.model;
  json files = json::array();
  for (const ShardRecord& file : index.files) {
    files.push_back({{"file", file.file}, {"bytes", file.bytes.value}, {"sha256", file.sha256}});
  }
  json canonical = {{"format", kFormat},
                    {"version", VersionOf(id.layout)},
                    {"job", id.job.value},
                    {"generation", id.generation.value},
                    {"step", id.step},
                    {"seed", id.seed},
                    {"model",
                     {{"layers", m.layers},
                      {"hidden", m.hidden},
                      {"heads", m.heads},
                      {"ffn", m.ffn},
                      {"seq", m.seq},
                      {"vocab", m.vocab},
                      {"dropout", m.dropout},
                      {"family", EnumName(m.family)},
                      {"kv_heads", m.kv_heads},
                      {"attention", EnumName(m.attention)},
                      {"tied_embeddings", m.tied_embeddings}}},
                    {"layout",
                     {{"tp", id.layout.tp},
                      {"pp", id.layout.pp},
                      {"dp", id.layout.dp},
                      {"virtual_stages", id.layout.virtual_stages},
                      {"schedule", EnumName(id.layout.schedule)},
                      {"schedule_text", CustomScheduleText(id.layout)},
                      {"sequence_parallel", id.layout.sequence_parallel},
                      {"zero", EnumName(id.layout.zero)}}},
                    {"data", {{"kind", EnumName(id.data.kind)}, {"bytes", id.data.bytes.value}, {"sha256", id.data.sha256}}},
                    {"files", files}};
  AddFeatures(m, canonical["model"]);
  // These fields are left out if they have their defaults. Then older releases, which do not know them, can read the index.
  if (id.layout.weave != WeaveMode::kOff) canonical["layout"]["weave"] = EnumName(id.layout.weave);
  if (id.layout.ep != 1) canonical["layout"]["ep"] = id.layout.ep;
  if (id.layout.rank_order != RankOrder::kTpPpDp) canonical["layout"]["rank_order"] = EnumName(id.layout.rank_order);
  return canonical;
}

std::string Dump(const json& value, int indent) { return value.dump(indent, ' ', false, json::error_handler_t::replace); }

// Reads fields of an index, and keeps the first error that occurs.
class Fields {
 public:
  template <class T>
  void Integer(const json& object, const char* name, int64_t least, int64_t most, T& out) {
    const json* value = Find(object, name);
    if (value == nullptr) return;
    const bool too_large = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(kMaxElementCount);
    const int64_t number = value->is_number_integer() && !too_large ? value->get<int64_t>() : kNotANumber;
    if (number == kNotANumber || number < least || number > most) {
      return Fail(absl::StrCat(name, " is ", Dump(*value, -1), ", not a number in [", least, ", ", most, "]"));
    }
    out = static_cast<T>(number);
  }
  void Seed(const json& object, const char* name, uint64_t& out) {
    const json* value = Find(object, name);
    if (value == nullptr) return;
    if (!value->is_number_unsigned()) return Fail(absl::StrCat(name, " is not an unsigned number"));
    out = value->get<uint64_t>();
  }
  void Rate(const json& object, const char* name, double& out) {
    const json* value = Find(object, name);
    if (value == nullptr) return;
    if (!value->is_number()) return Fail(absl::StrCat(name, " is not a number"));
    out = value->get<double>();
  }
  void Flag(const json& object, const char* name, bool& out) {
    const json* value = Find(object, name);
    if (value == nullptr) return;
    if (!value->is_boolean()) return Fail(absl::StrCat(name, " is neither true nor false"));
    out = value->get<bool>();
  }
  void Text(const json& object, const char* name, std::string& out) {
    const json* value = Find(object, name);
    if (value == nullptr) return;
    if (!value->is_string()) return Fail(absl::StrCat(name, " is not a string"));
    out = value->get<std::string>();
  }
  const json* Find(const json& object, const char* name) {
    if (object.is_object()) {
      if (const auto at = object.find(name); at != object.end()) return &*at;
    }
    Fail(absl::StrCat(name, " is missing"));
    return nullptr;
  }
  void Fail(const std::string& what) {
    if (status_.ok()) status_ = absl::DataLossError("damaged: " + what);
  }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

void DecodeRotary(const json& rotary, Fields& fields, RotarySpec& out) {
  fields.Rate(rotary, "theta", out.theta);
  fields.Integer(rotary, "dims", 0, kMaxExtent, out.dims);
  std::string scaling;
  fields.Text(rotary, "scaling", scaling);
  if (!ParseEnum(scaling, out.scaling)) fields.Fail(absl::StrCat("model.rotary.scaling is ", scaling));
  fields.Rate(rotary, "factor", out.factor);
  fields.Integer(rotary, "original_seq", 0, kMaxExtent, out.original_seq);
  fields.Rate(rotary, "low_freq_factor", out.low_freq_factor);
  fields.Rate(rotary, "high_freq_factor", out.high_freq_factor);
  fields.Rate(rotary, "beta_fast", out.beta_fast);
  fields.Rate(rotary, "beta_slow", out.beta_slow);
  fields.Rate(rotary, "attention_factor", out.attention_factor);
  if (rotary.contains("mscale_all_dim")) fields.Rate(rotary, "mscale_all_dim", out.mscale_all_dim);
}

void DecodeMoe(const json& moe, Fields& fields, ModelSpec& model) {
  MoeSpec& out = model.moe;
  fields.Integer(moe, "experts", 2, kMaxExperts, out.experts);
  fields.Integer(moe, "top_k", 1, out.experts, out.top_k);
  fields.Integer(moe, "ffn", 1, kMaxExtent, out.ffn);
  if (out.ffn == model.ffn) out.ffn = 0;  // as Normalize sets it
  fields.Flag(moe, "normalized", out.normalized);
  fields.Rate(moe, "capacity", out.capacity);
  fields.Rate(moe, "skew", out.skew);
  fields.Rate(moe, "aux_loss", out.aux_loss);
  fields.Rate(moe, "z_loss", out.z_loss);
  if (moe.contains("dropless")) fields.Flag(moe, "dropless", out.dropless);
  if (moe.contains("shared_ffn")) fields.Integer(moe, "shared_ffn", 1, kMaxExtent, out.shared_ffn);
  if (moe.contains("shared_gate")) fields.Flag(moe, "shared_gate", out.shared_gate);
  if (moe.contains("scores")) {
    std::string scores;
    fields.Text(moe, "scores", scores);
    if (!ParseEnum(scores, out.scores)) fields.Fail(absl::StrCat("model.moe.scores is ", scores));
  }
  if (moe.contains("weight_scale")) fields.Rate(moe, "weight_scale", out.weight_scale);
  out.router_bias = moe.contains("bias_rate");
  if (out.router_bias) fields.Rate(moe, "bias_rate", out.bias_rate);
  if (moe.contains("dense_layers")) fields.Integer(moe, "dense_layers", 1, model.layers - 1, out.dense_layers);
}

void DecodeLatent(const json& latent, Fields& fields, ModelSpec& model) {
  LatentSpec& out = model.latent;
  fields.Integer(latent, "query_rank", 0, kMaxExtent, out.query_rank);
  fields.Integer(latent, "kv_rank", 1, kMaxExtent, out.kv_rank);
  fields.Integer(latent, "value_dim", 1, kMaxExtent, out.value_dim);
  if (model.rotary.dims < 2 || model.rotary.dims > model.head_size()) {
    fields.Fail(absl::StrCat("model.rotary.dims is ", model.rotary.dims, "; with model.latent it is from 2 to the ",
                             model.head_size(), " elements of a head"));
  }
  if (model.key_heads() != model.heads) fields.Fail("model.kv_heads: with model.latent, every head has its own keys");
}

// Reads the features. A missing field gets the value that all models had in the first version of the format (see AddFeatures).
void DecodeFeatures(const json& model, Fields& fields, ModelSpec& out) {
  if (!model.is_object()) return;
  if (model.contains("dtype")) {
    std::string dtype;
    fields.Text(model, "dtype", dtype);
    if (!ParseEnum(dtype, out.dtype)) fields.Fail(absl::StrCat("model.dtype is ", dtype));
  }
  if (model.contains("head_dim")) fields.Integer(model, "head_dim", 1, kMaxExtent, out.head_dim);
  if (model.contains("qkv_bias")) fields.Flag(model, "qkv_bias", out.qkv_bias);
  if (model.contains("qk_norm")) fields.Flag(model, "qk_norm", out.qk_norm);
  if (model.contains("qk_norm_whole")) fields.Flag(model, "qk_norm_whole", out.qk_norm_whole);
  if (model.contains("norm_epsilon")) fields.Rate(model, "norm_epsilon", out.norm_epsilon);
  if (model.contains("window")) fields.Integer(model, "window", 1, kMaxExtent, out.window);
  if (model.contains("rotary")) DecodeRotary(model["rotary"], fields, out.rotary);
  if (model.contains("moe")) DecodeMoe(model["moe"], fields, out);
  if (model.contains("latent") && fields.status().ok()) DecodeLatent(model["latent"], fields, out);
}

void DecodeModel(const json& model, int64_t version, Fields& fields, ModelSpec& out) {
  fields.Integer(model, "layers", 1, kMaxExtent, out.layers);
  fields.Integer(model, "hidden", 1, kMaxExtent, out.hidden);
  fields.Integer(model, "heads", 1, kMaxExtent, out.heads);
  fields.Integer(model, "ffn", 1, kMaxExtent, out.ffn);
  fields.Integer(model, "seq", 1, kMaxExtent, out.seq);
  fields.Integer(model, "vocab", 1, kMaxExtent, out.vocab);
  fields.Rate(model, "dropout", out.dropout);
  if (version < kVersion) return;
  fields.Integer(model, "kv_heads", 0, kMaxExtent, out.kv_heads);
  fields.Flag(model, "tied_embeddings", out.tied_embeddings);
  DecodeFeatures(model, fields, out);
  std::string family, attention;
  fields.Text(model, "family", family);
  fields.Text(model, "attention", attention);
  if (!ParseEnum(family, out.family)) fields.Fail(absl::StrCat("model.family is ", family));
  if (!ParseEnum(attention, out.attention)) fields.Fail(absl::StrCat("model.attention is ", attention));
  if (out.moe.any() && out.family != ModelFamily::kLlama) fields.Fail("model.moe: only llama has experts");
  if (out.latent.any() && out.family != ModelFamily::kLlama) fields.Fail("model.latent: only llama has latent attention");
}

void DecodeLayout(const json& layout, int64_t version, Fields& fields, ParallelLayout& out) {
  fields.Integer(layout, "tp", 1, kMaxRanks, out.tp);
  fields.Integer(layout, "pp", 1, kMaxRanks, out.pp);
  fields.Integer(layout, "dp", 1, kMaxRanks, out.dp);
  // A damaged layout could require a huge number of files, so the number of ranks is limited. The product of these three
  // numbers does not overflow.
  if (int64_t{out.tp} * out.pp * out.dp > kMaxRanks) {
    fields.Fail(absl::StrCat(LayoutText(out), " is more than ", kMaxRanks, " ranks"));
  }
  if (version == kVersionOfPlainLayouts) return;
  fields.Integer(layout, "virtual_stages", 1, kMaxPipelineChunks, out.virtual_stages);
  fields.Flag(layout, "sequence_parallel", out.sequence_parallel);
  std::string schedule, zero;
  fields.Text(layout, "schedule", schedule);
  fields.Text(layout, "zero", zero);
  if (!ParseEnum(schedule, out.schedule) || out.schedule == ScheduleKind::kAuto) {
    fields.Fail(absl::StrCat("layout.schedule is ", schedule));
  }
  if (!ParseEnum(zero, out.zero) || out.zero == ZeroStage::kAuto) {
    fields.Fail(absl::StrCat("layout.zero is ", zero));
  }
  if (layout.contains("weave")) {
    std::string weave;
    fields.Text(layout, "weave", weave);
    if (!ParseEnum(weave, out.weave) || out.weave == WeaveMode::kAuto) fields.Fail(absl::StrCat("layout.weave is ", weave));
  }
  if (layout.contains("ep")) {
    fields.Integer(layout, "ep", 2, kMaxRanks, out.ep);
    if (fields.status().ok() && RanksOfStage(out) % out.ep != 0)
      fields.Fail(absl::StrCat("layout.ep ", out.ep, " does not divide tp * dp"));
  }
  if (layout.contains("rank_order")) {
    std::string order;
    fields.Text(layout, "rank_order", order);
    if (!ParseEnum(order, out.rank_order) || out.rank_order == RankOrder::kAuto) {
      fields.Fail(absl::StrCat("layout.rank_order is ", order));
    }
  }
  std::string text;
  if (out.schedule == ScheduleKind::kCustom) fields.Text(layout, "schedule_text", text);
  if (absl::Status custom = SetCustomSchedule(text, out); fields.status().ok() && !custom.ok()) {
    fields.Fail(absl::StrCat("layout.schedule_text: ", std::string(custom.message())));
  }
}

void DecodeIdentity(const json& root, int64_t version, Fields& fields, CheckpointIdentity& id) {
  fields.Text(root, "job", id.job.value);
  fields.Integer(root, "generation", 0, kMaxElementCount, id.generation.value);
  fields.Integer(root, "step", 0, kMaxElementCount, id.step);
  fields.Seed(root, "seed", id.seed);
  if (const json* model = fields.Find(root, "model")) DecodeModel(*model, version, fields, id.model);
  if (const json* layout = fields.Find(root, "layout")) DecodeLayout(*layout, version, fields, id.layout);
  if (const json* data = fields.Find(root, "data")) {
    std::string kind;
    fields.Text(*data, "kind", kind);
    fields.Integer(*data, "bytes", 0, kMaxElementCount, id.data.bytes.value);
    fields.Text(*data, "sha256", id.data.sha256);
    if (!ParseEnum(kind, id.data.kind)) fields.Fail(absl::StrCat("data.kind is ", kind));
  }
}

void DecodeFiles(const json& root, int64_t version, IndexKind kind, Fields& fields, CheckpointIndex& index) {
  const json* files = fields.Find(root, "files");
  if (files == nullptr || !files->is_array()) return fields.Fail("files is not an array");
  for (const json& file : *files) {
    ShardRecord& record = index.files.emplace_back();
    fields.Text(file, "file", record.file);
    fields.Integer(file, "bytes", 0, kMaxElementCount, record.bytes.value);
    fields.Text(file, "sha256", record.sha256);
  }
  // The names must be those that follow from the layout. So a name in the index cannot lead to another folder.
  const ParallelLayout& layout = index.identity.layout;
  const std::vector<std::string> expected =
      FilesOf(layout, version < kVersionOfFewWriters ? FormerWritingReplicas(layout) : WritingReplicas(layout));
  if (kind == IndexKind::kOneShard) {
    const bool known =
        index.files.size() == 1 && std::find(expected.begin(), expected.end(), index.files.front().file) != expected.end();
    return known ? void() : fields.Fail(absl::StrCat("not one shard of ", LayoutText(layout)));
  }
  if (index.files.size() != expected.size()) {
    return fields.Fail(absl::StrCat(index.files.size(), " files for ", LayoutText(layout)));
  }
  for (size_t i = 0; i < index.files.size(); ++i) {
    if (index.files[i].file != expected[i]) fields.Fail(absl::StrCat("file ", i, " is not ", expected[i]));
  }
}

template <class T>
void Compare(const char* name, const T& checkpoint, const T& here, std::vector<std::string>& differences) {
  if (checkpoint == here) return;
  differences.push_back(absl::StrCat(name, " is ", checkpoint, " in the checkpoint, ", here, " here"));
}

// Compares the features that do not change the shapes of the weights. The weights were trained with these features: with other
// features, the same weights compute something else.
void CompareFunctions(const ModelSpec& was, const ModelSpec& is, std::vector<std::string>& differences) {
  Compare("model.normEpsilon", was.norm_epsilon, is.norm_epsilon, differences);
  Compare("model.window", was.window, is.window, differences);
  const RotarySpec &from = was.rotary, &to = is.rotary;
  Compare("model.rope.theta", from.theta, to.theta, differences);
  Compare("model.rope.dims", from.dims, to.dims, differences);
  Compare<std::string>("model.rope.scaling", EnumName(from.scaling), EnumName(to.scaling), differences);
  Compare("model.rope.factor", from.factor, to.factor, differences);
  Compare("model.rope.originalSeq", from.original_seq, to.original_seq, differences);
  Compare("model.rope.lowFreqFactor", from.low_freq_factor, to.low_freq_factor, differences);
  Compare("model.rope.highFreqFactor", from.high_freq_factor, to.high_freq_factor, differences);
  Compare("model.rope.betaFast", from.beta_fast, to.beta_fast, differences);
  Compare("model.rope.betaSlow", from.beta_slow, to.beta_slow, differences);
  Compare("model.rope.attentionFactor", from.attention_factor, to.attention_factor, differences);
  Compare("model.rope.mscaleAllDim", from.mscale_all_dim, to.mscale_all_dim, differences);
  Compare("model.moe.topK", was.moe.top_k, is.moe.top_k, differences);
  Compare("model.moe.normalized", was.moe.normalized, is.moe.normalized, differences);
  Compare<std::string>("model.moe.scores", EnumName(was.moe.scores), EnumName(is.moe.scores), differences);
  Compare("model.moe.weightScale", was.moe.weight_scale, is.moe.weight_scale, differences);
  Compare("model.moe.routerBias", was.moe.router_bias, is.moe.router_bias, differences);
}

// Compares the fields of the model that determine the shapes and the meaning of its weights.
void CompareWeights(const ModelSpec& was, const ModelSpec& is, std::vector<std::string>& differences) {
  Compare("model.layers", was.layers, is.layers, differences);
  Compare("model.hidden", was.hidden, is.hidden, differences);
  Compare("model.heads", was.heads, is.heads, differences);
  Compare("model.vocab", was.vocab, is.vocab, differences);
  Compare<std::string>("model.family", EnumName(was.family), EnumName(is.family), differences);
  Compare("model.kvHeads", was.key_heads(), is.key_heads(), differences);
  Compare("model.tiedEmbeddings", was.tied_embeddings, is.tied_embeddings, differences);
  Compare("model.headDim", was.head_size(), is.head_size(), differences);
  Compare("model.qkvBias", was.qkv_bias, is.qkv_bias, differences);
  Compare("model.qkNorm", was.qk_norm, is.qk_norm, differences);
  Compare("model.qkNormWhole", was.qk_norm_whole, is.qk_norm_whole, differences);
  Compare("model.latent.queryRank", was.latent.query_rank, is.latent.query_rank, differences);
  Compare("model.latent.kvRank", was.latent.kv_rank, is.latent.kv_rank, differences);
  Compare("model.latent.valueDim", was.latent.value_dim, is.latent.value_dim, differences);
  Compare("model.moe.experts", was.moe.experts, is.moe.experts, differences);
  Compare("model.moe.denseLayers", was.moe.dense_layers, is.moe.dense_layers, differences);
  Compare("model.moe.sharedFfn", was.moe.shared_ffn, is.moe.shared_ffn, differences);
  Compare("model.moe.sharedGate", was.moe.shared_gate, is.moe.shared_gate, differences);
  const bool experts = was.moe.any() && is.moe.any();
  if (experts) Compare("model.moe.ffn", was.expert_ffn(), is.expert_ffn(), differences);
  // If every layer has experts, model.ffn is no size of a weight, unless it is the width of an expert.
  if (!experts || (was.HasDenseBlock() && is.HasDenseBlock())) Compare("model.ffn", was.ffn, is.ffn, differences);
  CompareFunctions(was, is, differences);
  // The learned positions have one row for each token of a sequence.
  if (was.family == ModelFamily::kGpt) Compare("model.seq", was.seq, is.seq, differences);
}

// Compares the fields that determine the samples of each step, except model.seq.
void CompareSamples(const CheckpointIdentity& checkpoint, const CheckpointIdentity& here,
                    std::vector<std::string>& differences) {
  Compare("the seed", checkpoint.seed, here.seed, differences);
  if (checkpoint.data == here.data) return;
  Compare("the data", FingerprintText(checkpoint.data), FingerprintText(here.data), differences);
}

}  // namespace

bool ReplicasWriteShards(const ParallelLayout& layout) {
  // If expert groups lie inside replicas, each replica has all experts, and which experts a rank has depends only on its number
  // in the tensor-parallel group.
  return DividesStates(layout) || layout.tp % layout.ep != 0;
}

std::string ShardFile(const ParallelLayout& layout, int32_t stage, int32_t tp_rank, int32_t replica) {
  const std::string part = ReplicasWriteShards(layout) ? absl::StrFormat("-%04d", replica) : "";
  return absl::StrFormat("shard-%04d-%04d%s.safetensors", stage, tp_rank, part);
}

int32_t WritingReplicas(const ParallelLayout& layout) {
  if (DividesStates(layout)) return layout.dp;
  // The ranks of a stage are numbered replica by replica. So after this many replicas, expert groups begin at tensor number 0
  // again.
  return layout.ep / std::gcd(layout.tp, layout.ep);
}

std::vector<std::string> ShardFiles(const ParallelLayout& layout) { return FilesOf(layout, WritingReplicas(layout)); }

std::string EncodeIndex(const CheckpointIndex& index) {
  json root = Canonical(index);
  root["digest"] = Sha256Hex(Dump(Canonical(index), -1));
  return Dump(root, 2) + "\n";
}

absl::StatusOr<CheckpointIndex> DecodeIndex(const std::string& text, IndexKind kind) {
  json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  Fields fields;
  if (!root.is_object()) return absl::DataLossError("damaged: not a JSON object");
  std::string format, digest;
  int64_t version = 0;
  fields.Text(root, "format", format);
  fields.Text(root, "digest", digest);
  fields.Integer(root, "version", 1, kMaxElementCount, version);
  LYNX_RETURN_IF_ERROR(fields.status());
  if (format != kFormat) return absl::DataLossError(absl::StrCat("damaged: format is ", format, ", not ", kFormat));
  root.erase("digest");
  if (Sha256Hex(Dump(root, -1)) != digest) return absl::DataLossError("damaged: its digest does not match its content");
  if (version < kVersionOfPlainLayouts || version > kVersionOfFewWriters) {
    return absl::FailedPreconditionError(absl::StrCat("has format version ", version, "; this program knows versions ",
                                                      kVersionOfPlainLayouts, " to ", kVersionOfFewWriters, " only"));
  }
  CheckpointIndex index;
  DecodeIdentity(root, version, fields, index.identity);
  LYNX_RETURN_IF_ERROR(fields.status());
  DecodeFiles(root, version, kind, fields, index);
  LYNX_RETURN_IF_ERROR(fields.status());
  return index;
}

std::string RunDifferenceText(const CheckpointIdentity& checkpoint, const CheckpointIdentity& here) {
  std::vector<std::string> differences;
  Compare("the job", checkpoint.job.value, here.job.value, differences);
  CompareSamples(checkpoint, here, differences);
  const ModelSpec& was = checkpoint.model;
  const ModelSpec& is = here.model;
  CompareWeights(was, is, differences);
  if (was.family != ModelFamily::kGpt) Compare("model.seq", was.seq, is.seq, differences);
  Compare("model.dropout", was.dropout, is.dropout, differences);
  Compare<std::string>("model.attention", EnumName(was.attention), EnumName(is.attention), differences);
  Compare<std::string>("model.dtype", EnumName(was.dtype), EnumName(is.dtype), differences);
  if (!was.HasDenseBlock() || !is.HasDenseBlock()) Compare("model.ffn", was.ffn, is.ffn, differences);
  Compare("model.moe.capacity", was.moe.capacity, is.moe.capacity, differences);
  const auto truth = [](bool value) { return std::string(value ? "true" : "false"); };
  Compare("model.moe.dropless", truth(was.moe.dropless), truth(is.moe.dropless), differences);
  Compare("model.moe.skew", was.moe.skew, is.moe.skew, differences);
  Compare("model.moe.auxLoss", was.moe.aux_loss, is.moe.aux_loss, differences);
  Compare("model.moe.zLoss", was.moe.z_loss, is.moe.z_loss, differences);
  Compare("model.moe.biasRate", was.moe.bias_rate, is.moe.bias_rate, differences);
  // The index has no field for parts that are left out, because the weights and the training are the same without them.
  ModelSpec trained_before = was, trained = is;
  trained_before.plan_only &= ~kLeftOutFeatures;
  trained.plan_only &= ~kLeftOutFeatures;
  const bool other_model = !(trained_before == trained) && differences.empty();
  if (other_model) differences.push_back("the model differs in what the checkpoint's index has no field for");
  return absl::StrJoin(differences, "; ");
}

std::string StartDifferenceText(const CheckpointIdentity& checkpoint, const CheckpointIdentity& here, bool continues) {
  std::vector<std::string> differences;
  CompareWeights(checkpoint.model, here.model, differences);
  if (continues) {
    CompareSamples(checkpoint, here, differences);
    if (here.model.family != ModelFamily::kGpt) {
      Compare("model.seq", checkpoint.model.seq, here.model.seq, differences);
    }
  }
  return absl::StrJoin(differences, "; ");
}

}  // namespace lynx::worker
