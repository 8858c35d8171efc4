// See model_fields.h.
#include "cli/spec/model_fields.h"

#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/spec/job_field_kinds.h"
#include "planner/problem/model_families.h"

namespace lynx::cli {
namespace {

// The field model.preset or model.config. The values of the preset or config.json must be set before the model's other fields
// are read, wherever the line is in the file. So the reader of the file handles these two fields first, and this entry does
// nothing.
JobField ModelBaseField(const char* path, std::string meaning) {
  return {path, std::move(meaning), false, [](const std::string&, JobSpec&) { return absl::OkStatus(); },
          [](const JobSpec&) { return std::string(); }};
}

JobField PlanOnlyField() {
  return {
      "model.planOnly",
      "what the model has and the engine lacks, separated by blanks: such a model is planned and not trained (docs/models.md)",
      false,
      [](const std::string& text, JobSpec& spec) {
        spec.model.plan_only = 0;
        for (const std::string& name : std::vector<std::string>(absl::StrSplit(text, ' ', absl::SkipEmpty()))) {
          PlanOnlyFeature feature;
          if (!ParseEnum(name, feature)) return Expected("names of features that docs/models.md lists", name);
          spec.model.plan_only |= Bit(feature);
        }
        return absl::OkStatus();
      },
      [](const JobSpec& spec) {
        std::vector<std::string> names;
        for (PlanOnlyFeature feature : FeaturesOf(spec.model.plan_only)) names.push_back(EnumName(feature));
        return names.empty() ? "" : QuotedText(absl::StrJoin(names, " "));
      }};
}

std::vector<JobField> PlainFields() {
  auto model = [](JobSpec& s) -> ModelSpec& { return s.model; };
  return {
      ModelBaseField(kModelPreset, "a model that 'lynxctl models' lists; the other fields of the model take its values' place"),
      ModelBaseField(kModelConfig, "a Hugging Face config.json in place of a preset; relative to this file"),
      IntField("model.layers", "transformer layers", true, model, &ModelSpec::layers),
      IntField("model.hidden", "hidden size, a multiple of heads", true, model, &ModelSpec::hidden),
      IntField("model.heads", "attention heads", true, model, &ModelSpec::heads),
      IntField("model.ffn", "feed-forward size; auto: 4 x hidden for gpt, 8/3 x hidden rounded up to 256s for llama", false,
               model, &ModelSpec::ffn, "auto"),
      IntField("model.seq", "tokens per sample", true, model, &ModelSpec::seq),
      IntField("model.vocab", "vocabulary size; 256 for bytes", false, model, &ModelSpec::vocab),
      DoubleField("model.dropout", "dropout rate, 0 to below 1; 0 for llama",
                  [](JobSpec& s) -> double& { return s.model.dropout; }),
      EnumField("model.family", "architecture", "gpt or llama", [](JobSpec& s) -> ModelFamily& { return s.model.family; }),
      IntField("model.kvHeads", "key and value heads, a divisor of heads (grouped queries); auto: heads", false, model,
               &ModelSpec::kv_heads, "auto"),
      IntField("model.headDim", "elements of a head; auto: hidden / heads", false, model, &ModelSpec::head_dim, "auto"),
      EnumField("model.attention", "whether the scores are stored", "unfused or fused",
                [](JobSpec& s) -> AttentionKernel& { return s.model.attention; }),
      EnumField("model.dtype", "of weights in use, activations and communication", "float32 or bfloat16",
                [](JobSpec& s) -> DataType& { return s.model.dtype; }),
      EnumField("model.matmulType", "of the layers' linears; in 8 or 4 bits they can be planned only",
                "model, float8, mxfp8 or nvfp4", [](JobSpec& s) -> MatmulType& { return s.model.matmul_type; }),
      EnumField("model.gradientDtype",
                "of the sums of weight gradients over microbatches and replicas; in bfloat16 they can be planned only",
                "float32 or bfloat16", [](JobSpec& s) -> DataType& { return s.model.gradient_dtype; }),
      EnumField("model.dropoutMasks", "stored: as frameworks that keep a byte per element", "regenerated or stored",
                [](JobSpec& s) -> DropoutMasks& { return s.model.dropout_masks; }),
      BoolField("model.tiedEmbeddings", "the output projection is the token embedding",
                [](JobSpec& s) -> bool& { return s.model.tied_embeddings; }),
      BoolField("model.qkvBias", "biases of the query, key and value projections of llama, as in Qwen2",
                [](JobSpec& s) -> bool& { return s.model.qkv_bias; }),
      BoolField("model.qkNorm", "norms of each head of queries and keys of llama, as in Qwen3",
                [](JobSpec& s) -> bool& { return s.model.qk_norm; }),
      BoolField("model.qkNormWhole", "these norms are over all queries and over all keys of a token, as in OLMoE",
                [](JobSpec& s) -> bool& { return s.model.qk_norm_whole; }),
      DoubleField("model.normEpsilon", "epsilon of every norm", [](JobSpec& s) -> double& { return s.model.norm_epsilon; }),
      IntField("model.window",
               "positions that one attends to, as in Mistral v0.1; longer sequences can be planned only; none: all", false,
               model, &ModelSpec::window, "none"),
      PlanOnlyField(),
  };
}

std::vector<JobField> RotaryFields() {
  auto rotary = [](JobSpec& s) -> RotarySpec& { return s.model.rotary; };
  using D = JobSpec&;
  return {
      DoubleField("model.rope.theta", "base of llama's rotary positions", [](D s) -> double& { return s.model.rotary.theta; }),
      IntField("model.rope.dims", "elements of a head that turn; all: the whole head", false, rotary, &RotarySpec::dims, "all"),
      EnumField("model.rope.scaling", "for sequences longer than those of the first training",
                "none, linear, dynamic, llama3 or yarn", [](D s) -> RopeScaling& { return s.model.rotary.scaling; }),
      DoubleField("model.rope.factor", "of the scaling, at least 1", [](D s) -> double& { return s.model.rotary.factor; }),
      IntField("model.rope.originalSeq", "positions before scaling: of dynamic, llama3 and yarn", false, rotary,
               &RotarySpec::original_seq, "none"),
      DoubleField("model.rope.lowFreqFactor", "of llama3", [](D s) -> double& { return s.model.rotary.low_freq_factor; }),
      DoubleField("model.rope.highFreqFactor", "of llama3", [](D s) -> double& { return s.model.rotary.high_freq_factor; }),
      DoubleField("model.rope.betaFast", "of yarn", [](D s) -> double& { return s.model.rotary.beta_fast; }),
      DoubleField("model.rope.betaSlow", "of yarn", [](D s) -> double& { return s.model.rotary.beta_slow; }),
      DoubleField("model.rope.attentionFactor", "of yarn; 0: 0.1 ln(factor) + 1",
                  [](D s) -> double& { return s.model.rotary.attention_factor; }),
      DoubleField("model.rope.mscaleAllDim",
                  "of yarn with latent attention (DeepSeek): scores are multiplied by (0.1 mscaleAllDim ln(factor) + 1)^2; 0: "
                  "by 1",
                  [](D s) -> double& { return s.model.rotary.mscale_all_dim; }),
  };
}

std::vector<JobField> MoeFields() {
  auto moe = [](JobSpec& s) -> MoeSpec& { return s.model.moe; };
  using D = JobSpec&;
  return {
      IntField("model.moe.experts",
               "experts in place of each layer's feed-forward block, from 2 on, of llama; none: no experts", false, moe,
               &MoeSpec::experts, "none"),
      IntField("model.moe.topK", "experts for each token", false, moe, &MoeSpec::top_k),
      IntField("model.moe.ffn", "feed-forward size of one expert; auto: model.ffn", false, moe, &MoeSpec::ffn, "auto"),
      BoolField("model.moe.normalized", "the weights of a token's experts are divided by their sum, as in Mixtral and Qwen3",
                [](D s) -> bool& { return s.model.moe.normalized; }),
      DoubleField("model.moe.capacity",
                  "room for the rows of an expert, as a multiple of the even share; rows beyond it are dropped, unless "
                  "model.moe.dropless; 0: no limit, which can be planned only",
                  [](D s) -> double& { return s.model.moe.capacity; }),
      BoolField("model.moe.dropless",
                "with a capacity: rows beyond it are not dropped but go through rounds, which take more time, not more memory",
                [](D s) -> bool& { return s.model.moe.dropless; }),
      DoubleField("model.moe.skew",
                  "rows of the fullest rank that the planner plans for, as a multiple of the even share, at least 1",
                  [](D s) -> double& { return s.model.moe.skew; }),
      DoubleField("model.moe.auxLoss", "factor of the loss that balances the experts",
                  [](D s) -> double& { return s.model.moe.aux_loss; }),
      DoubleField("model.moe.zLoss", "factor of the loss that keeps the router's scores small",
                  [](D s) -> double& { return s.model.moe.z_loss; }),
      EnumField("model.moe.scores", "what the router's products become, over all experts or each alone", "softmax or sigmoid",
                [](D s) -> RouterScores& { return s.model.moe.scores; }),
      DoubleField("model.moe.weightScale", "factor of the weights of a token's experts",
                  [](D s) -> double& { return s.model.moe.weight_scale; }),
      BoolField("model.moe.routerBias",
                "with scores sigmoid: each expert has a bias, which only counts where experts are chosen",
                [](D s) -> bool& { return s.model.moe.router_bias; }),
      DoubleField(
          "model.moe.biasRate",
          "by how much an expert's bias changes after each step, against its load (DeepSeek-V3: 0.001); 0: the biases stay",
          [](D s) -> double& { return s.model.moe.bias_rate; }),
      IntField("model.moe.sharedFfn",
               "width of the feed-forward block that every token passes beside its experts (the sum, if there are several); 0: "
               "none",
               false, moe, &MoeSpec::shared_ffn),
      BoolField("model.moe.sharedGate",
                "with model.moe.sharedFfn: a gate multiplies what this block gives a token, as in Qwen2-MoE",
                [](D s) -> bool& { return s.model.moe.shared_gate; }),
      IntField("model.moe.denseLayers",
               "number of first layers without experts, whose feed-forward block has the size model.ffn", false, moe,
               &MoeSpec::dense_layers),
  };
}

std::vector<JobField> LatentFields() {
  auto latent = [](JobSpec& s) -> LatentSpec& { return s.model.latent; };
  return {
      IntField("model.latent.kvRank",
               "numbers of each token from which keys and values are made (latent attention, DeepSeek); none: ordinary "
               "attention",
               false, latent, &LatentSpec::kv_rank, "none"),
      IntField("model.latent.queryRank",
               "numbers of each token from which queries are made; none: they are made from the "
               "layer's input",
               false, latent, &LatentSpec::query_rank, "none"),
      IntField("model.latent.valueDim",
               "elements of a head of values; a head of queries and keys has model.headDim, of which "
               "model.rope.dims are rotated",
               false, latent, &LatentSpec::value_dim, "none"),
  };
}

}  // namespace

std::vector<JobField> ModelFields() {
  std::vector<JobField> all = PlainFields();
  for (const std::vector<JobField>& more : {RotaryFields(), MoeFields(), LatentFields()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace lynx::cli
