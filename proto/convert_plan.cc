// Converts plans. See convert.h.
#include <limits>

#include "common/digest.h"
#include "common/status.h"
#include "planner/problem/batch_split.h"
#include "planner/recompute/recompute_policy.h"
#include "proto/bounds.h"
#include "proto/convert.h"

namespace lynx {
namespace {

absl::StatusOr<LayerPolicy> LayerPolicyFromProto(const v1::LayerPolicy& message, size_t count, const std::string& path) {
  LayerPolicy policy{};
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "placements"), message.placements().size(), count, count, "entries"));
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = message.placements(static_cast<int>(i));
    if (!ParseEnum(name, policy[i])) {
      return BadField(FieldPath(path, "placements", static_cast<int64_t>(i)), absl::StrCat("\"", name.substr(0, 64), "\""),
                      "no placement has this name");
    }
  }
  return policy;
}

// Number of tensors of a layer that have a placement.
size_t PlacementsOf(const ModelSpec& model, const ParallelLayout& layout) {
  return LayerGraph::Of(ShapeOf(model, layout, 1)).recomputable().size();
}

v1::SlicePlan SliceToProto(const SlicePlan& slice, size_t placements) {
  v1::SlicePlan message;
  message.set_stage(slice.stage);
  message.set_first_layer(slice.first_layer);
  message.set_end_layer(slice.end_layer);
  for (size_t l = 0; l < slice.policy.layers.size(); ++l) {
    v1::LayerPolicy& to = *message.add_policy();
    for (size_t i = 0; i < placements; ++i) to.add_placements(std::string(EnumName(slice.policy.layers[l][i])));
    to.set_input_recomputed(slice.policy.InputRecomputed(l));
  }
  return message;
}

v1::StagePlan StageToProto(const StagePlan& stage, size_t placements, PlanPrograms programs) {
  v1::StagePlan message;
  for (const SlicePlan& slice : stage.slices) *message.add_slices() = SliceToProto(slice, placements);
  if (programs == PlanPrograms::kIncluded) message.set_program(ProgramText(stage.program));
  message.set_arena_bytes(stage.arena.value);
  message.set_live_peak_bytes(stage.live_peak.value);
  message.set_weight_bytes(stage.states.weights.value);
  message.set_gradient_bytes(stage.states.gradients.value);
  message.set_optimizer_bytes(stage.states.optimizer.value);
  message.set_forward_ns(stage.forward.value);
  message.set_backward_ns(stage.backward.value);
  message.set_weight_ns(stage.weight.value);
  message.set_optimizer_ns(stage.optimizer.value);
  message.set_recompute_hidden_ns(stage.recompute_hidden.value);
  message.set_recompute_exposed_ns(stage.recompute_exposed.value);
  message.set_communication_exposed_ns(stage.communication_exposed.value);
  message.set_stall_ns(stage.stall.value);
  message.set_core_wait_ns(stage.core_wait.value);
  message.set_host_bytes(stage.host.value);
  if (stage.proof) {
    message.mutable_proof()->set_status(static_cast<v1::ProofStatus>(static_cast<int>(stage.proof->status) + 1));
    message.mutable_proof()->set_exposed_ns(stage.proof->exposed.value);
    message.mutable_proof()->set_bound_ns(stage.proof->bound.value);
  }
  return message;
}

absl::Status ReadBytes(const std::string& parent, const char* field, int64_t value, Bytes& to) {
  to = Bytes(value);
  return CheckRange(FieldPath(parent, field), value, 0, kMaxWireBytes);
}

absl::Status ReadNanos(const std::string& parent, const char* field, int64_t value, Nanos& to) {
  to = Nanos(value);
  return CheckRange(FieldPath(parent, field), value, 0, kMaxWireNanos);
}

absl::Status ReadStageFigures(const v1::StagePlan& m, const std::string& path, StagePlan& stage) {
  LYNX_RETURN_IF_ERROR(ReadBytes(path, "arena_bytes", m.arena_bytes(), stage.arena));
  LYNX_RETURN_IF_ERROR(ReadBytes(path, "live_peak_bytes", m.live_peak_bytes(), stage.live_peak));
  LYNX_RETURN_IF_ERROR(ReadBytes(path, "weight_bytes", m.weight_bytes(), stage.states.weights));
  LYNX_RETURN_IF_ERROR(ReadBytes(path, "gradient_bytes", m.gradient_bytes(), stage.states.gradients));
  LYNX_RETURN_IF_ERROR(ReadBytes(path, "optimizer_bytes", m.optimizer_bytes(), stage.states.optimizer));
  LYNX_RETURN_IF_ERROR(ReadBytes(path, "host_bytes", m.host_bytes(), stage.host));
  LYNX_RETURN_IF_ERROR(ReadNanos(path, "forward_ns", m.forward_ns(), stage.forward));
  LYNX_RETURN_IF_ERROR(ReadNanos(path, "backward_ns", m.backward_ns(), stage.backward));
  LYNX_RETURN_IF_ERROR(ReadNanos(path, "weight_ns", m.weight_ns(), stage.weight));
  LYNX_RETURN_IF_ERROR(ReadNanos(path, "optimizer_ns", m.optimizer_ns(), stage.optimizer));
  LYNX_RETURN_IF_ERROR(ReadNanos(path, "recompute_hidden_ns", m.recompute_hidden_ns(), stage.recompute_hidden));
  LYNX_RETURN_IF_ERROR(ReadNanos(path, "recompute_exposed_ns", m.recompute_exposed_ns(), stage.recompute_exposed));
  LYNX_RETURN_IF_ERROR(ReadNanos(path, "communication_exposed_ns", m.communication_exposed_ns(), stage.communication_exposed));
  LYNX_RETURN_IF_ERROR(ReadNanos(path, "stall_ns", m.stall_ns(), stage.stall));
  return ReadNanos(path, "core_wait_ns", m.core_wait_ns(), stage.core_wait);
}

absl::Status ReadProof(const v1::StageProof& m, const std::string& path, std::optional<StageProof>& to) {
  if (m.status() < v1::PROOF_STATUS_OPTIMAL || m.status() > v1::PROOF_STATUS_MODEL) {
    return BadField(FieldPath(path, "status"), absl::StrCat(static_cast<int>(m.status())), "no status has this number");
  }
  StageProof proof{.status = static_cast<ProofStatus>(static_cast<int>(m.status()) - 1)};
  LYNX_RETURN_IF_ERROR(ReadNanos(path, "exposed_ns", m.exposed_ns(), proof.exposed));
  LYNX_RETURN_IF_ERROR(ReadNanos(path, "bound_ns", m.bound_ns(), proof.bound));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "bound_ns"), m.bound_ns(), 0, m.exposed_ns()));
  to = proof;
  return absl::OkStatus();
}

absl::StatusOr<SlicePlan> SliceFromProto(const v1::SlicePlan& message, const Plan& plan, int32_t stage,
                                         const std::string& path) {
  const int32_t layers = plan.model.layers;
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "stage"), message.stage(), stage, stage));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "first_layer"), message.first_layer(), 0, layers));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "end_layer"), message.end_layer(), message.first_layer(), layers));
  SlicePlan slice{stage, message.first_layer(), message.end_layer(), {}};
  const size_t count = static_cast<size_t>(slice.layers());
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "policy"), message.policy().size(), count, count, "entries"));
  const size_t placements = PlacementsOf(plan.model, plan.layout);
  for (int i = 0; i < message.policy_size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(LayerPolicy policy,
                          LayerPolicyFromProto(message.policy(i), placements, FieldPath(path, "policy", i)));
    slice.policy.layers.push_back(policy);
    if (!message.policy(i).input_recomputed()) continue;
    if (i == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(FieldPath(path, "policy", i), ".input_recomputed: no layer of the slice is below to make it again"));
    }
    slice.policy.input_recomputed.resize(count);
    slice.policy.input_recomputed[static_cast<size_t>(i)] = true;
  }
  return slice;
}

absl::StatusOr<StagePlan> StageFromProto(const v1::StagePlan& message, PlanPrograms programs, const Plan& plan,
                                         int32_t pipeline_rank, const std::string& path) {
  StagePlan stage;
  const PipelineShape pipeline = PipelineOf(plan.layout);
  const auto chunks = static_cast<size_t>(pipeline.chunks);
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "slices"), message.slices().size(), chunks, chunks, "entries"));
  for (int i = 0; i < message.slices_size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(SlicePlan slice, SliceFromProto(message.slices(i), plan, pipeline.StageOn(pipeline_rank, i),
                                                          FieldPath(path, "slices", i)));
    stage.slices.push_back(std::move(slice));
  }
  if (programs == PlanPrograms::kIncluded) {
    absl::StatusOr<Program> program = ParseProgram(message.program());
    if (!program.ok()) return Annotate(program.status(), FieldPath(path, "program"));
    stage.program = *std::move(program);
  }
  LYNX_RETURN_IF_ERROR(ReadStageFigures(message, path, stage));
  if (message.has_proof()) LYNX_RETURN_IF_ERROR(ReadProof(message.proof(), FieldPath(path, "proof"), stage.proof));
  return stage;
}

// Checks that the virtual stages contain the model's layers in order. In a bidirectional pipeline, the stages of each of the
// two copies must contain all layers.
absl::Status CheckLayers(const Plan& plan, const std::string& path) {
  const PipelineShape pipeline = PipelineOf(plan.layout);
  int32_t next = 0;
  for (int32_t stage = 0; stage < pipeline.stages(); ++stage) {
    const int32_t rank = pipeline.RankOf(stage), chunk = pipeline.ChunkOf(stage);
    const SlicePlan& slice = plan.stages[static_cast<size_t>(rank)].slices[static_cast<size_t>(chunk)];
    const std::string at = FieldPath(FieldPath(path, "stages", rank), "slices", chunk);
    if (pipeline.Previous(stage) == kNoStage) next = 0;
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "first_layer"), slice.first_layer, next, next));
    next = slice.end_layer;
    if (pipeline.Next(stage) != kNoStage) continue;
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "end_layer"), next, plan.model.layers, plan.model.layers));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelSpec> PlannedModelFromProto(const v1::ModelSpec& message, const std::string& path) {
  // The layer shape contains the other dimensions of the model, and has the same limits and rules of divisibility.
  v1::LayerShape shape;
  shape.set_micro_batch(1);
  shape.set_seq(message.seq());
  shape.set_hidden(message.hidden());
  shape.set_heads(message.heads());
  shape.set_ffn(message.ffn());
  shape.set_vocab(message.vocab());
  shape.set_tp(1);
  shape.set_kv_heads(message.kv_heads());
  shape.set_head_dim(message.head_dim());
  shape.set_rotary_dims(message.rotary().dims());
  LYNX_RETURN_IF_ERROR(FromProto(shape, path).status());
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "layers"), message.layers(), 1, 1000));
  if (!(message.dropout() >= 0 && message.dropout() < 1)) {
    return BadField(FieldPath(path, "dropout"), absl::StrCat(message.dropout()), "must be at least 0 and below 1");
  }
  return ModelFromProto(message, path);
}

absl::Status CheckContent(const Plan& plan, const std::string& path) {
  Plan bare = plan;
  bare.digest.clear();
  const std::string digest = Sha256Hex(PlanText(bare));
  if (digest == plan.digest) return absl::OkStatus();
  return BadField(FieldPath(path, "digest"), plan.digest,
                  absl::StrCat("the content's digest is ", digest, "; the plan was changed or damaged on its way"));
}

// Checks that the samples are a number of 32 bits, and that they need the plan's number of microbatches.
absl::Status ReadEmptyPlaces(const v1::Plan& message, Plan& plan, const std::string& path) {
  const int64_t places = int64_t{plan.micro_batch} * plan.microbatches * plan.layout.dp;
  if (places > std::numeric_limits<int32_t>::max()) {
    return BadField(
        FieldPath(path, "microbatches"), absl::StrCat(plan.microbatches),
        absl::StrCat("with micro_batch ", plan.micro_batch, " and dp ", plan.layout.dp, " a step has too many samples"));
  }
  const std::string at = FieldPath(path, "empty_places");
  LYNX_RETURN_IF_ERROR(CheckRange(at, message.empty_places(), 0, places - 1));
  plan.empty_places = message.empty_places();
  if (BatchSplit{plan.samples(), plan.layout.dp, plan.micro_batch}.microbatches() == plan.microbatches) return absl::OkStatus();
  return BadField(
      at, absl::StrCat(plan.empty_places),
      absl::StrCat("the ", plan.samples(), " samples that are left need fewer microbatches than ", plan.microbatches));
}

}  // namespace

v1::Plan ToProto(const Plan& plan, PlanPrograms programs) {
  v1::Plan message;
  *message.mutable_model() = ToProto(plan.model);
  *message.mutable_layout() = ToProto(plan.layout);
  message.set_micro_batch(plan.micro_batch);
  message.set_microbatches(plan.microbatches);
  message.set_mode(ToProto(plan.mode));
  message.set_activation_limit_bytes(plan.activation_limit.value);
  const size_t placements = PlacementsOf(plan.model, plan.layout);
  for (const StagePlan& stage : plan.stages) *message.add_stages() = StageToProto(stage, placements, programs);
  message.set_step_ns(plan.step.value);
  message.set_measured_profile(plan.measured_profile);
  message.set_digest(plan.digest);
  message.set_empty_places(plan.empty_places);
  for (const NodeRun& run : plan.nodes) {
    v1::NodeRun& to = *message.add_nodes();
    to.set_group(run.group);
    to.set_nodes(run.nodes);
  }
  return message;
}

absl::StatusOr<Plan> FromProto(const v1::Plan& message, PlanPrograms programs, const std::string& path) {
  Plan plan;
  LYNX_ASSIGN_OR_RETURN(plan.model, PlannedModelFromProto(message.model(), FieldPath(path, "model")));
  LYNX_ASSIGN_OR_RETURN(plan.layout, FromProto(message.layout(), FieldPath(path, "layout")));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "micro_batch"), message.micro_batch(), 1, 1 << 20));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "microbatches"), message.microbatches(), 1, 1 << 20));
  plan.micro_batch = message.micro_batch();
  plan.microbatches = message.microbatches();
  LYNX_RETURN_IF_ERROR(ReadEmptyPlaces(message, plan, path));
  LYNX_ASSIGN_OR_RETURN(plan.mode, FromProto(message.mode(), FieldPath(path, "mode")));
  LYNX_RETURN_IF_ERROR(ReadBytes(path, "activation_limit_bytes", message.activation_limit_bytes(), plan.activation_limit));
  const size_t stages = static_cast<size_t>(plan.layout.pp);
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "stages"), message.stages().size(), stages, stages, "entries"));
  for (int i = 0; i < message.stages_size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(StagePlan stage, StageFromProto(message.stages(i), programs, plan, i, FieldPath(path, "stages", i)));
    plan.stages.push_back(std::move(stage));
  }
  LYNX_RETURN_IF_ERROR(CheckLayers(plan, path));
  LYNX_RETURN_IF_ERROR(ReadNanos(path, "step_ns", message.step_ns(), plan.step));
  plan.measured_profile = message.measured_profile();
  LYNX_RETURN_IF_ERROR(CheckDigest(FieldPath(path, "digest"), message.digest()));
  plan.digest = message.digest();
  for (int i = 0; i < message.nodes_size(); ++i) {
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(FieldPath(path, "nodes", i), "nodes"), message.nodes(i).nodes(), 1, 1 << 20));
    plan.nodes.push_back({message.nodes(i).group(), message.nodes(i).nodes()});
  }
  if (programs == PlanPrograms::kIncluded) LYNX_RETURN_IF_ERROR(CheckContent(plan, path));
  return plan;
}

}  // namespace lynx
