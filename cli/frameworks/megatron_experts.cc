// See megatron_experts.h. Meanings and defaults are from megatron/core/transformer/transformer_config.py, from
// megatron/core/transformer/moe/ (router.py, moe_utils.py) and from validate_args of megatron/training/arguments.py.
#include "cli/frameworks/megatron_experts.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/real_text.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

constexpr int64_t kMaxCount = 1 << 20;  // far above the limits of a job, whose errors are more helpful

// The layers that --moe-layer-freq gives experts (1) and those to which it gives none (0): "1", or lists such as
// "([0]*3+[1]*58)" or "[0,1,1]". Empty if the text is neither, or says more than kMaxCount layers.
std::vector<bool> LayersWithExperts(std::string text, int32_t layers) {
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == ' ' || c == '(' || c == ')'; }), text.end());
  if (text == "1") return std::vector<bool>(static_cast<size_t>(std::clamp<int64_t>(layers, 0, kMaxCount)), true);
  std::vector<bool> all;
  for (const absl::string_view term : absl::StrSplit(text, '+')) {
    const size_t close = term.find(']');
    if (close == absl::string_view::npos || !absl::StartsWith(term, "[")) return {};
    int64_t times = 1;
    const absl::string_view rest = term.substr(close + 1);
    if (!rest.empty() && (!absl::StartsWith(rest, "*") || !absl::SimpleAtoi(rest.substr(1), &times))) return {};
    std::vector<bool> items;
    for (const absl::string_view item : absl::StrSplit(term.substr(1, close - 1), ',')) {
      if (item != "0" && item != "1") return {};
      items.push_back(item == "1");
    }
    const int64_t before = static_cast<int64_t>(all.size());
    if (times < 0 || times > kMaxCount || before + static_cast<int64_t>(items.size()) * times > kMaxCount) return {};
    for (int64_t i = 0; i < times; ++i) all.insert(all.end(), items.begin(), items.end());
  }
  return all;
}

class ExpertReader {
 public:
  ExpertReader(const MegatronArguments& values, const std::string& place, ImportedRun& run)
      : v_(values), place_(place), run_(run), model_(run.job.model), moe_(run.job.model.moe), parallel_(run.job.parallel) {}

  absl::Status Run() {
    if (v_.experts.value_or(0) == 0) {
      if (v_.ep.value_or(1) > 1) Miss(absl::StrCat("--expert-model-parallel-size ", *v_.ep, ": there is no --num-experts"));
      if (v_.shared_ffn) {
        Miss(absl::StrCat("--moe-shared-expert-intermediate-size ", *v_.shared_ffn, ": there is no --num-experts"));
      }
      return absl::OkStatus();
    }
    LYNX_RETURN_IF_ERROR(Layers());
    LYNX_RETURN_IF_ERROR(Router());
    LYNX_RETURN_IF_ERROR(Losses());
    Capacity();
    LYNX_RETURN_IF_ERROR(Ranks());
    Kernels();
    return absl::OkStatus();
  }

 private:
  absl::Status Error(const std::string& why) const { return absl::InvalidArgumentError(absl::StrCat(place_, ": ", why)); }
  void Miss(const std::string& text) { run_.not_taken.push_back(text); }

  absl::Status Fits(const char* flag, const MegatronArguments::Count& value, int64_t least, int32_t& out) const {
    if (!value) return absl::OkStatus();
    if (*value < least || *value > kMaxCount) {
      return Error(absl::StrCat(flag, " is ", *value, ": must be from ", least, " to ", kMaxCount));
    }
    out = static_cast<int32_t>(*value);
    return absl::OkStatus();
  }

  absl::Status Layers() {
    if (!v_.swiglu) {
      return Error(absl::StrCat("--num-experts ", *v_.experts, " without --swiglu: experts are planned as SwiGLU blocks"));
    }
    if (v_.layers_with_experts) LYNX_RETURN_IF_ERROR(DenseLayers(*v_.layers_with_experts));
    LYNX_RETURN_IF_ERROR(Fits("--num-experts", v_.experts, 2, moe_.experts));
    LYNX_RETURN_IF_ERROR(Fits("--moe-shared-expert-intermediate-size", v_.shared_ffn, 1, moe_.shared_ffn));
    moe_.shared_gate = v_.shared_gate && v_.shared_ffn;
    if (v_.shared_ffn && parallel_.tp > 1) {
      Miss(absl::StrCat("--moe-shared-expert-intermediate-size ", *v_.shared_ffn,
                        ": planned with whole weights on each of the ", parallel_.tp,
                        " tensor-parallel ranks, among which Megatron-LM shards them"));
    }
    return Fits("--moe-ffn-hidden-size", v_.expert_ffn, 1, moe_.ffn);
  }

  absl::Status DenseLayers(const std::string& text) {
    const std::vector<bool> with = LayersWithExperts(text, model_.layers);
    const auto first = std::find(with.begin(), with.end(), true);
    if (first == with.end() || std::find(first, with.end(), false) != with.end()) {
      return Error(absl::StrCat("--moe-layer-freq ", text,
                                ": layers without experts between those that have them, or after them, are not planned"));
    }
    if (with.size() != static_cast<size_t>(model_.layers)) {
      return Error(absl::StrCat("--moe-layer-freq ", text, " says ", with.size(), " layers, and --num-layers ", model_.layers));
    }
    moe_.dense_layers = static_cast<int32_t>(first - with.begin());
    return absl::OkStatus();
  }

  absl::Status Router() {
    moe_.top_k = 2;
    LYNX_RETURN_IF_ERROR(Fits("--moe-router-topk", v_.top_k, 1, moe_.top_k));
    moe_.normalized = !v_.pre_softmax;
    moe_.weight_scale = v_.weight_scale.value_or(1);
    const std::string score = v_.score_function.value_or("softmax");
    const bool sigmoid = score == "sigmoid";
    if (sigmoid) {
      moe_.scores = RouterScores::kSigmoid;
      moe_.normalized = moe_.top_k > 1;
    } else if (score != "softmax") {
      model_.plan_only |= Bit(PlanOnlyFeature::kOtherRouting);
      moe_.normalized = true;
      Miss(absl::StrCat("--moe-router-score-function ", score, ": experts are planned as weighted by a softmax"));
    }
    if (!v_.expert_bias) return absl::OkStatus();
    if (!sigmoid) return Error("--moe-router-enable-expert-bias needs --moe-router-score-function sigmoid, as in Megatron-LM");
    moe_.router_bias = true;
    constexpr double kMegatronRate = 1e-3;
    moe_.bias_rate = v_.bias_rate.value_or(kMegatronRate);
    return absl::OkStatus();
  }

  absl::Status Losses() {
    moe_.z_loss = std::max(0.0, v_.z_loss.value_or(0));
    std::vector<std::string> kinds = v_.balancing;
    if (kinds.empty()) kinds = {"aux_loss"};
    for (size_t i = 0; i < kinds.size(); ++i) {
      double factor = 0;
      if (i < v_.aux_loss.size() && (!absl::SimpleAtod(v_.aux_loss[i], &factor) || !(factor >= 0 && factor <= 1e6))) {
        return Error(absl::StrCat("--moe-aux-loss-coeff is '", v_.aux_loss[i], "': expected a number from 0 to 1e6"));
      }
      if (kinds[i] == "none") continue;
      if (kinds[i] == "aux_loss") {
        moe_.aux_loss = factor;
      } else if (kinds[i] == "seq_aux_loss" || kinds[i] == "global_aux_loss") {
        if (factor == 0) continue;
        Miss(absl::StrCat("--moe-router-load-balancing-type ", kinds[i], " with factor ", RealText(factor),
                          ": a job's balancing loss takes its means over the tokens of a microbatch; the job has none"));
      } else {
        model_.plan_only |= Bit(PlanOnlyFeature::kOtherRouting);
        Miss(absl::StrCat("--moe-router-load-balancing-type ", kinds[i],
                          ": experts are planned as chosen by the softmax of the router's scores alone"));
      }
    }
    return absl::OkStatus();
  }

  void Capacity() {
    if (!v_.capacity || *v_.capacity < 0) {  // Megatron-LM drops no rows then
      run_.assumed.push_back(
          "model.moe.skew 1: all experts get as many rows; --set model.moe.skew=F plans for F times as many on the fullest "
          "rank");
      return;
    }
    moe_.capacity = std::min(*v_.capacity, static_cast<double>(moe_.experts));
    if (!v_.pads_experts) {
      Miss(
          "--moe-expert-capacity-factor without --moe-pad-expert-input-to-capacity: the plan counts the room of each expert "
          "whole, as if its rows were padded");
    }
    const std::string policy = v_.drop_policy.value_or("probs");
    if (policy != "position") {
      Miss(absl::StrCat("--moe-token-drop-policy ", policy, v_.drop_policy ? "" : ", Megatron-LM's default",
                        ": a job drops the last rows of an expert, whatever their weights"));
    }
  }

  // An expert that is sharded over T ranks takes as much memory as T times as many ranks with whole experts.
  absl::Status Ranks() {
    if (parallel_.tp > 1 && parallel_.sequence_parallel != Choice::kOn) {
      return Error(absl::StrCat("--num-experts with --tensor-model-parallel-size ", parallel_.tp,
                                " needs --sequence-parallel, as in Megatron-LM"));
    }
    int32_t ep = 1, shards = parallel_.tp;
    LYNX_RETURN_IF_ERROR(Fits("--expert-model-parallel-size", v_.ep, 1, ep));
    LYNX_RETURN_IF_ERROR(Fits("--expert-tensor-parallel-size", v_.expert_tp, 1, shards));
    const int64_t ranks = int64_t{ep} * shards, of_stage = int64_t{parallel_.tp} * parallel_.cp * parallel_.dp;
    if (of_stage % ranks != 0) {
      return Error(absl::StrCat("experts on --expert-model-parallel-size ", ep, " * --expert-tensor-parallel-size ", shards,
                                " ranks: this must divide the ", of_stage, " ranks of a stage (tp * cp * dp)"));
    }
    if (shards > 1) {
      const std::string what =
          absl::StrCat("--expert-tensor-parallel-size ", shards, v_.expert_tp ? "" : ", which is that of tp");
      if (moe_.experts % ranks != 0) {
        return Error(absl::StrCat(what, ": experts are planned whole, and ", ranks, " ranks do not share ", moe_.experts,
                                  " of them evenly; give --expert-tensor-parallel-size 1"));
      }
      Miss(absl::StrCat(what, ": planned with whole experts on ", ranks, " ranks (parallel.ep), which hold as many weights"));
    }
    parallel_.ep = static_cast<int32_t>(ranks);
    return absl::OkStatus();
  }

  void Kernels() {
    const std::string dispatcher = v_.dispatcher.value_or("allgather");
    if (dispatcher != "alltoall" && parallel_.ep > 1) {
      Miss(absl::StrCat("--moe-token-dispatcher-type ", dispatcher, v_.dispatcher ? "" : ", Megatron-LM's default",
                        ": the plan counts all-to-alls among the ranks that share experts"));
    }
    if (!v_.grouped_products && moe_.experts > parallel_.ep) {
      Miss("no --moe-grouped-gemm: the plan counts the products of a rank's experts as one kernel, not one after another");
    }
    if (model_.matmul_type != MatmulType::kModel && (moe_.shared_ffn > 0 || moe_.dense_layers > 0)) {
      Miss(absl::StrCat(NarrowFlag(v_),
                        ": the products of models with shared experts, or with first layers without experts, are planned in "
                        "16 bits"));
      model_.matmul_type = MatmulType::kModel;
    }
    if (parallel_.zero_group != 0) {
      Miss("--num-distributed-optimizer-instances: models with experts are planned with states sharded over all replicas");
      parallel_.zero_group = 0;
    }
  }

  const MegatronArguments& v_;
  const std::string& place_;
  ImportedRun& run_;
  ModelSpec& model_;
  MoeSpec& moe_;
  ParallelSpec& parallel_;
};

}  // namespace

absl::Status ReadMegatronExperts(const MegatronArguments& values, const std::string& place, ImportedRun& run) {
  return ExpertReader(values, place, run).Run();
}

}  // namespace lynx::cli
