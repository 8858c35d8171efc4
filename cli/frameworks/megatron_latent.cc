// See megatron_latent.h. Meanings and defaults are from the group "mla" of megatron/training/arguments.py and from
// megatron/core/transformer/multi_latent_attention.py.
#include "cli/frameworks/megatron_latent.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/real_text.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

constexpr int64_t kMaxCount = 1 << 20;  // far above the limits of a job, whose errors are more helpful

double YarnScale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

class LatentReader {
 public:
  LatentReader(const MegatronArguments& values, const std::string& place, ImportedRun& run)
      : v_(values), place_(place), run_(run), model_(run.job.model) {}

  absl::Status Run() {
    if (!v_.latent) {
      if (v_.kv_rank) Miss(absl::StrCat("--kv-lora-rank ", *v_.kv_rank, ": there is no --multi-latent-attention"));
      if (v_.rope_type.value_or("rope") != "rope") {
        Miss(absl::StrCat("--rope-type ", *v_.rope_type,
                          ": there is no --multi-latent-attention; the plan has no such scaling"));
      }
      return absl::OkStatus();
    }
    if (!v_.swiglu) return Error("--multi-latent-attention without --swiglu: latent attention is planned in gated layers");
    if (v_.grouped) return Error("--multi-latent-attention with --group-query-attention: Megatron-LM refuses both together");
    LYNX_RETURN_IF_ERROR(Heads());
    LYNX_RETURN_IF_ERROR(Rotary());
    Norms();
    const ParallelSpec& parallel = run_.job.parallel;
    if (parallel.tp > 1 && parallel.sequence_parallel == Choice::kOn) {
      Miss(
          "--multi-latent-attention with --sequence-parallel: the plan counts the latents of all tokens on each "
          "tensor-parallel "
          "rank; Megatron-LM makes those of a rank's own tokens, and gathers them");
    }
    if (model_.matmul_type != MatmulType::kModel) {
      Miss(absl::StrCat(NarrowFlag(v_), ": the products of models with latent attention are planned in 16 bits"));
      model_.matmul_type = MatmulType::kModel;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Error(const std::string& why) const { return absl::InvalidArgumentError(absl::StrCat(place_, ": ", why)); }
  void Miss(const std::string& text) { run_.not_taken.push_back(text); }

  absl::Status Read(const char* flag, const MegatronArguments::Count& value, int64_t otherwise, int32_t& out) const {
    const int64_t given = value.value_or(otherwise);
    if (value && (given < 1 || given > kMaxCount)) {
      return Error(absl::StrCat(flag, " is ", given, ": must be from 1 to ", kMaxCount));
    }
    out = static_cast<int32_t>(given);
    return absl::OkStatus();
  }

  // The defaults of the flags. Without --q-lora-rank, queries are made from the layer's input.
  absl::Status Heads() {
    int32_t plain = 0;
    LYNX_RETURN_IF_ERROR(Read("--q-lora-rank", v_.query_rank, 0, model_.latent.query_rank));
    LYNX_RETURN_IF_ERROR(Read("--kv-lora-rank", v_.kv_rank, 32, model_.latent.kv_rank));
    LYNX_RETURN_IF_ERROR(Read("--qk-head-dim", v_.plain_dims, 128, plain));
    LYNX_RETURN_IF_ERROR(Read("--qk-pos-emb-head-dim", v_.rotary_dims, 64, rotated_));
    LYNX_RETURN_IF_ERROR(Read("--v-head-dim", v_.value_dim, 128, model_.latent.value_dim));
    model_.head_dim = plain + rotated_;  // --kv-channels has no effect
    return absl::OkStatus();
  }

  // Positions are scaled by YaRN, unless --rope-type names another method. A YaRN factor of 1 changes nothing.
  absl::Status Rotary() {
    RotarySpec rotary{.theta = model_.rotary.theta, .dims = rotated_};
    const std::string type = v_.rope_type.value_or("yarn");
    if (type != "rope" && type != "yarn") return Error(absl::StrCat("--rope-type is '", type, "': expected rope or yarn"));
    if (type == "rope" && v_.rotary_percent && *v_.rotary_percent != 1) {
      Miss(absl::StrCat("--rotary-percent ", RealText(*v_.rotary_percent), ": planned with all of --qk-pos-emb-head-dim ",
                        rotated_, " rotated"));
    }
    const double factor = v_.yarn_factor.value_or(1), all = v_.mscale_all_dim.value_or(0);
    if (type == "yarn" && factor > 1) {
      constexpr int32_t kOriginal = 4096;
      rotary.scaling = RopeScaling::kYarn;
      rotary.factor = factor;
      rotary.original_seq = kOriginal;
      if (v_.mscale.value_or(1) != 1 || all != 0) {
        rotary.attention_factor = YarnScale(factor, v_.mscale.value_or(1)) / YarnScale(factor, all);
      }
      rotary.mscale_all_dim = all;
    }
    model_.rotary = rotary;
    return absl::OkStatus();
  }

  // With latent attention, --qk-layernorm adds norms of the latents.
  void Norms() {
    model_.qk_norm = false;
    if (!v_.qk_norm) Miss("no --qk-layernorm: latent attention is planned with norms of its latents");
    if (!model_.qkv_bias) return;
    Miss("--add-qkv-bias: latent attention is planned without biases");
    model_.qkv_bias = false;
  }

  const MegatronArguments& v_;
  const std::string& place_;
  ImportedRun& run_;
  ModelSpec& model_;
  int32_t rotated_ = 0;  // the number of elements of a head that are rotated
};

}  // namespace

absl::Status ReadMegatronLatent(const MegatronArguments& values, const std::string& place, ImportedRun& run) {
  return LatentReader(values, place, run).Run();
}

}  // namespace lynx::cli
