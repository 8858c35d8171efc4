// The canonical text of a plan, and the checks of a plan from another process.
#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/digest.h"
#include "common/status.h"
#include "planner/plan/plan.h"
#include "planner/problem/batch_split.h"
#include "planner/program/validate.h"
#include "planner/program/validate_context.h"

namespace lynx {
namespace {

// The text contains the decimal number, for people, and the bits, for the exact value. Both are the same on every platform.
std::string ExactText(double value) {
  return absl::StrCat(value, " (bits ", absl::StrFormat("%016x", std::bit_cast<uint64_t>(value)), ")");
}

void AppendStage(const LayerGraph& graph, const StagePlan& stage, int index, std::string* text) {
  absl::StrAppend(text, "stage ", index, "\n");
  for (const SlicePlan& slice : stage.slices) {
    if (stage.slices.size() > 1) absl::StrAppend(text, "slice ", slice.stage, " ");
    absl::StrAppend(text, "layers ", slice.first_layer, " to ", slice.end_layer, "\npolicy ",
                    StagePolicyText(graph, slice.policy, slice.first_layer), "\n");
  }
  absl::StrAppend(text, "bytes arena ", stage.arena.value, " live_peak ", stage.live_peak.value, " weights ",
                  stage.states.weights.value, " gradients ", stage.states.gradients.value, " optimizer ",
                  stage.states.optimizer.value);
  if (stage.host.value > 0) absl::StrAppend(text, " host ", stage.host.value);
  absl::StrAppend(text, "\nnanos forward ", stage.forward.value, " backward ", stage.backward.value, " weight ",
                  stage.weight.value, " optimizer ", stage.optimizer.value);
  absl::StrAppend(text, " recompute_hidden ", stage.recompute_hidden.value, " recompute_exposed ",
                  stage.recompute_exposed.value, " communication_exposed ", stage.communication_exposed.value, " stall ",
                  stage.stall.value);
  if (stage.core_wait.value > 0) absl::StrAppend(text, " core_wait ", stage.core_wait.value);
  absl::StrAppend(text, "\n");
  if (stage.proof) {
    absl::StrAppend(text, "proof ", ProofStatusName(stage.proof->status), ", nanos exposed ", stage.proof->exposed.value,
                    " bound ", stage.proof->bound.value, "\n");
  }
  absl::StrAppend(text, "program ", stage.program.size(), "\n", ProgramText(stage.program));
}

// Checks that each rank has the virtual stages that the layout's pipeline gives it. Checks that the slices of each copy of the
// model contain every layer exactly once, in order.
absl::Status CheckSlices(const Plan& plan) {
  const PipelineShape pipeline = PipelineOf(plan.layout);
  for (int32_t rank = 0; rank < pipeline.ranks; ++rank) {
    const std::vector<SlicePlan>& slices = plan.stages[static_cast<size_t>(rank)].slices;
    if (static_cast<int64_t>(slices.size()) != pipeline.chunks) {
      return absl::FailedPreconditionError(absl::StrCat("plan: stage ", rank, " has ", slices.size(), " slices, ",
                                                        LayoutText(plan.layout), " puts ", pipeline.chunks, " on each"));
    }
    for (int32_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
      const int32_t stage = slices[static_cast<size_t>(chunk)].stage;
      if (stage == pipeline.StageOn(rank, chunk)) continue;
      return absl::FailedPreconditionError(absl::StrCat("plan: stage ", rank, " has virtual stage ", stage, " as slice ", chunk,
                                                        ", but ", LayoutText(plan.layout), " has ",
                                                        pipeline.StageOn(rank, chunk), " there"));
    }
  }
  int32_t next = 0;
  for (int32_t stage = 0; stage < pipeline.stages(); ++stage) {
    if (pipeline.Previous(stage) == kNoStage) next = 0;
    const SlicePlan& slice =
        plan.stages[static_cast<size_t>(pipeline.RankOf(stage))].slices[static_cast<size_t>(pipeline.ChunkOf(stage))];
    if (slice.first_layer != next || slice.end_layer <= next) {
      return absl::FailedPreconditionError(absl::StrCat("plan: a stage has layers ", slice.first_layer, " to ", slice.end_layer,
                                                        ", but layer ", next, " comes next"));
    }
    if (static_cast<int64_t>(slice.policy.layers.size()) != slice.layers()) {
      return absl::FailedPreconditionError(absl::StrCat("plan: policies for ", slice.policy.layers.size(),
                                                        " layers in a stage that has layers ", slice.first_layer, " to ",
                                                        slice.end_layer));
    }
    next = slice.end_layer;
    if (pipeline.Next(stage) == kNoStage && next != plan.model.layers) {
      return absl::FailedPreconditionError(absl::StrCat("plan: stages cover ", next, " of ", plan.model.layers, " layers"));
    }
  }
  return absl::OkStatus();
}

// Checks the numbers of the model and the layout, and the sizes of lists. The later checks divide by these numbers and use
// these lists.
absl::Status CheckShape(const Plan& plan) {
  const ModelSpec& m = plan.model;
  const ParallelLayout& l = plan.layout;
  const bool sizes = m.layers >= 1 && m.hidden >= 1 && m.heads >= 1 && m.ffn >= 1 && m.seq >= 1 && m.vocab >= 1 && l.tp >= 1 &&
                     l.pp >= 1 && l.dp >= 1 && l.cp >= 1 && l.ep >= 1 && l.virtual_stages >= 1 &&
                     l.virtual_stages <= kMaxPipelineChunks && plan.micro_batch >= 1 && plan.microbatches >= 1;
  if (!sizes || m.head_dim < 0 || (m.head_dim == 0 && m.hidden % m.heads != 0) || m.heads % l.tp != 0 ||
      (m.HasDenseBlock() && m.ffn % l.tp != 0)) {
    return absl::FailedPreconditionError(absl::StrCat("plan: the model does not divide into ", LayoutText(l)));
  }
  LYNX_RETURN_IF_ERROR(Annotate(CheckExpertGroups(m, l), "plan"));
  const int64_t places = int64_t{plan.micro_batch} * plan.microbatches * l.dp, samples = places - plan.empty_places;
  const bool some = samples >= 1 && samples <= std::numeric_limits<int32_t>::max() && plan.empty_places >= 0;
  if (!some || BatchSplit{plan.samples(), l.dp, plan.micro_batch}.microbatches() != plan.microbatches) {
    return absl::FailedPreconditionError(absl::StrCat("plan: ", samples, " samples do not make up ", plan.microbatches,
                                                      " microbatches of ", plan.micro_batch, " on each of ", l.dp,
                                                      " replicas"));
  }
  if (static_cast<int64_t>(plan.stages.size()) != l.pp) {
    return absl::FailedPreconditionError(absl::StrCat("plan: ", plan.stages.size(), " stages in a layout with pp ", l.pp));
  }
  return CheckSlices(plan);
}

// Validates the programs of all ranks: first each program alone, then all together.
absl::Status CheckPrograms(const Plan& plan) {
  std::vector<Program> programs;
  std::vector<StageContext> contexts;
  for (int32_t stage = 0; stage < plan.layout.pp; ++stage) {
    programs.push_back(plan.stages[stage].program);
    contexts.push_back(plan.ContextOf(stage));
  }
  return ValidatePrograms(programs, contexts);
}

absl::Status CheckMemory(const Plan& plan, int32_t index) {
  const StagePlan& stage = plan.stages[index];
  const StageContext context = plan.ContextOf(index);
  LYNX_ASSIGN_OR_RETURN(const MemoryPlan memory, PlanMemory(stage.program, context, stage.arena));
  if (memory.arena != stage.arena || memory.live_peak != stage.live_peak) {
    return absl::FailedPreconditionError(absl::StrCat("plan: stage ", index, " states an arena of ", stage.arena.value,
                                                      " bytes (peak ", stage.live_peak.value, "), its program needs ",
                                                      memory.arena.value, " (peak ", memory.live_peak.value, ")"));
  }
  if (memory.host_peak != stage.host) {
    return absl::FailedPreconditionError(absl::StrCat("plan: stage ", index, " states ", stage.host.value,
                                                      " bytes of host memory, its program sends ", memory.host_peak.value,
                                                      " there"));
  }
  const StateBytes states = StatesOf(context);
  if (states.weights != stage.states.weights || states.gradients != stage.states.gradients ||
      states.optimizer != stage.states.optimizer) {
    return absl::FailedPreconditionError(absl::StrCat("plan: stage ", index, " states ", stage.states.total().value,
                                                      " bytes of model states, its layers have ", states.total().value));
  }
  if (plan.activation_limit.value > 0 && stage.arena > plan.activation_limit) {
    return absl::FailedPreconditionError(absl::StrCat("plan: the arena of stage ", index, " has ", stage.arena.value,
                                                      " bytes, more than the limit of ", plan.activation_limit.value));
  }
  return absl::OkStatus();
}

}  // namespace

StageContext Plan::ContextOf(int32_t pipeline_rank) const {
  StageContext context{.model = model,
                       .layout = layout,
                       .micro_batch = micro_batch,
                       .microbatches = program_microbatches > 0 ? program_microbatches : microbatches,
                       .pipeline_rank = pipeline_rank,
                       .slices = {}};
  for (const SlicePlan& slice : stages[static_cast<size_t>(pipeline_rank)].slices) {
    context.slices.push_back(SliceOf(layout, slice.stage, slice.first_layer, slice.end_layer));
  }
  return context;
}

std::vector<const SlicePlan*> SlicesInOrder(const Plan& plan) {
  const PipelineShape pipeline = PipelineOf(plan.layout);
  std::vector<const SlicePlan*> slices;
  for (int32_t stage = 0; stage < pipeline.pieces(); ++stage) {
    slices.push_back(
        &plan.stages[static_cast<size_t>(pipeline.RankOf(stage))].slices[static_cast<size_t>(pipeline.ChunkOf(stage))]);
  }
  return slices;
}

// Lists only features that differ from the defaults. So the text and the digest of a plan without such features never change.
std::string FeaturesText(const ModelSpec& m) {
  const ModelSpec plain;
  const RotarySpec& r = m.rotary;
  std::string text;
  if (m.head_dim != 0) absl::StrAppend(&text, " head_dim ", m.head_dim);
  if (m.qkv_bias) absl::StrAppend(&text, " qkv_bias 1");
  if (m.qk_norm) absl::StrAppend(&text, " qk_norm 1");
  if (m.qk_norm_whole) absl::StrAppend(&text, " qk_norm_whole 1");
  if (m.norm_epsilon != plain.norm_epsilon) absl::StrAppend(&text, " norm_epsilon ", ExactText(m.norm_epsilon));
  if (m.window != 0) absl::StrAppend(&text, " window ", m.window);
  if (m.plan_only != 0) absl::StrAppend(&text, " plan_only ", m.plan_only);
  if (m.matmul_type != plain.matmul_type) absl::StrAppend(&text, " matmul_type ", EnumName(m.matmul_type));
  if (m.gradient_dtype != plain.gradient_dtype) absl::StrAppend(&text, " gradient_dtype ", EnumName(m.gradient_dtype));
  if (const MoeSpec& moe = m.moe; moe.any()) {
    absl::StrAppend(&text, " experts ", moe.experts, " top_k ", moe.top_k, " expert_ffn ", m.expert_ffn(), " normalized ",
                    moe.normalized ? 1 : 0);
    for (const double value : {moe.capacity, moe.skew, moe.aux_loss, moe.z_loss}) absl::StrAppend(&text, " ", ExactText(value));
    if (moe.shared_ffn != 0) absl::StrAppend(&text, " shared_ffn ", moe.shared_ffn);
    if (moe.shared_gate) absl::StrAppend(&text, " shared_gate 1");
    if (moe.dense_layers != 0) absl::StrAppend(&text, " dense_layers ", moe.dense_layers);
    if (moe.dropless) absl::StrAppend(&text, " dropless 1");
    if (moe.scores != RouterScores::kSoftmax) absl::StrAppend(&text, " scores ", EnumName(moe.scores));
    if (moe.weight_scale != 1) absl::StrAppend(&text, " weight_scale ", ExactText(moe.weight_scale));
    if (moe.router_bias) absl::StrAppend(&text, " bias_rate ", ExactText(moe.bias_rate));
  }
  if (const LatentSpec& latent = m.latent; latent.any()) {
    absl::StrAppend(&text, " latent ", latent.query_rank, " ", latent.kv_rank, " ", latent.value_dim);
  }
  if (r == plain.rotary) return text;
  absl::StrAppend(&text, " rope ", ExactText(r.theta), " dims ", r.dims, " scaling ", EnumName(r.scaling), " ",
                  ExactText(r.factor), " ", r.original_seq);
  for (const double value : {r.low_freq_factor, r.high_freq_factor, r.beta_fast, r.beta_slow, r.attention_factor}) {
    absl::StrAppend(&text, " ", ExactText(value));
  }
  if (r.mscale_all_dim != 0) absl::StrAppend(&text, " mscale_all_dim ", ExactText(r.mscale_all_dim));
  return text;
}

std::string NodeRunsText(const std::vector<NodeRun>& runs) {
  return absl::StrJoin(runs, ", ",
                       [](std::string* out, const NodeRun& run) { absl::StrAppend(out, run.group, " x ", run.nodes); });
}

std::string PlanText(const Plan& plan) {
  const ModelSpec& m = plan.model;
  std::string text = "lynx plan 1\n";
  absl::StrAppend(&text, "model layers ", m.layers, " hidden ", m.hidden, " heads ", m.heads, " ffn ", m.ffn, " seq ", m.seq);
  absl::StrAppend(&text, " vocab ", m.vocab, " dropout ", ExactText(m.dropout), " family ", EnumName(m.family), " kv_heads ",
                  m.key_heads(), " attention ", EnumName(m.attention));
  absl::StrAppend(&text, " dtype ", EnumName(m.dtype), " masks ", EnumName(m.dropout_masks), " tied ",
                  m.tied_embeddings ? 1 : 0, FeaturesText(m), "\n");
  absl::StrAppend(&text, "layout ", LayoutText(plan.layout), " micro_batch ", plan.micro_batch, " microbatches ",
                  plan.microbatches, "\n");
  absl::StrAppend(&text, "recompute ", EnumName(plan.mode), " activation_limit ", plan.activation_limit.value, "\n");
  absl::StrAppend(&text, "step ", plan.step.value, " nanos, profile ", plan.measured_profile ? "measured" : "not measured",
                  "\n");
  if (plan.empty_places > 0) absl::StrAppend(&text, "empty places ", plan.empty_places, "\n");
  if (plan.program_microbatches > 0) absl::StrAppend(&text, "programs of ", plan.program_microbatches, " microbatches\n");
  if (!plan.nodes.empty()) absl::StrAppend(&text, "nodes ", NodeRunsText(plan.nodes), "\n");
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    AppendStage(plan.ContextOf(static_cast<int32_t>(i)).graph(), plan.stages[i], static_cast<int>(i), &text);
  }
  return text;
}

absl::StatusOr<Plan> FinishedPlan(Plan plan) {
  if (const absl::Status valid = CheckPrograms(plan); !valid.ok()) {
    return absl::InternalError(absl::StrCat("the planner made an invalid plan, ", LayoutText(plan.layout), ": ",
                                            valid.message(), "; this is a mistake in Lynx: report it with the job file"));
  }
  plan.digest = Sha256Hex(PlanText(plan));
  return plan;
}

absl::Status CheckPlan(const Plan& plan) {
  LYNX_RETURN_IF_ERROR(CheckShape(plan));
  if (const std::string digest = Sha256Hex(PlanText(plan)); digest != plan.digest) {
    return absl::FailedPreconditionError(absl::StrCat("plan: its digest is ", digest, ", but it states ", plan.digest));
  }
  LYNX_RETURN_IF_ERROR(CheckPrograms(plan));
  for (int32_t stage = 0; stage < plan.layout.pp; ++stage) LYNX_RETURN_IF_ERROR(CheckMemory(plan, stage));
  return absl::OkStatus();
}

}  // namespace lynx
