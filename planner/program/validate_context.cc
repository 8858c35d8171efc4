// Checks of contexts, and checks that compare ranks. See validate.h and validate_context.h.
#include "planner/program/validate_context.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/problem/layout_schedule.h"
#include "planner/program/validate.h"

namespace lynx {
namespace {

absl::Status CheckSlices(const StageContext& c) {
  const auto fail = [&](const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat("stage ", c.pipeline_rank, ": ", what));
  };
  const PipelineShape pipeline = c.pipeline();
  const absl::Status exists = CheckScheduleOf(c.layout, c.microbatches);
  if (!exists.ok()) return fail(std::string(exists.message()));
  if (static_cast<int64_t>(c.slices.size()) != pipeline.chunks) {
    return fail(absl::StrCat("it has ", c.slices.size(), " slices of the model, ", LayoutText(c.layout), " puts ",
                             pipeline.chunks, " on each"));
  }
  for (int32_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
    const StageSlice& s = c.slices[static_cast<size_t>(chunk)];
    const StageSlice expected = SliceOf(c.layout, pipeline.StageOn(c.pipeline_rank, chunk), s.first_layer, s.end_layer);
    if (s.first_layer < 0 || s.first_layer >= s.end_layer || s.end_layer > c.model.layers || s != expected ||
        (s.first_layer == 0) != s.has_embedding || (s.end_layer == c.model.layers) != s.has_head) {
      return fail(absl::StrCat("layers [", s.first_layer, ", ", s.end_layer, ") of ", c.model.layers, " are not what stage ",
                               expected.stage, " of ", pipeline.stages(), " can have"));
    }
  }
  return absl::OkStatus();
}

// Checks that the slices of all ranks together are the whole model. In a bidirectional pipeline, both copies must have the same
// slices.
absl::Status CheckSlicesJoin(const std::vector<StageContext>& contexts) {
  const PipelineShape pipeline = contexts.front().pipeline();
  const auto slice_of = [&](int32_t stage) -> const StageSlice& {
    return contexts[static_cast<size_t>(pipeline.RankOf(stage))].slices[static_cast<size_t>(pipeline.ChunkOf(stage))];
  };
  for (int32_t stage = 0; stage < pipeline.stages(); ++stage) {
    const StageSlice& slice = slice_of(stage);
    const StageSlice& first_copy = slice_of(pipeline.PieceOf(stage));
    const bool follows = pipeline.Previous(stage) == kNoStage || slice.first_layer == slice_of(stage - 1).end_layer;
    if (follows && slice.first_layer == first_copy.first_layer && slice.end_layer == first_copy.end_layer) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("context ", pipeline.RankOf(stage), " (stage ", stage, ", layers [", slice.first_layer, ", ",
                     slice.end_layer, "), ", LayoutText(contexts.front().layout), ") does not continue the stages before it"));
  }
  return absl::OkStatus();
}

// The microbatches that pass through a virtual stage, in the order of their forward passes.
using Microbatches = std::vector<int32_t>;
std::map<int32_t, Microbatches> MicrobatchesOf(const Program& program, const StageContext& context) {
  std::map<int32_t, Microbatches> microbatches;
  for (const StageSlice& slice : context.slices) microbatches[slice.stage];
  for (const Action& action : program) {
    if (action.kind != ActionKind::kForward || action.segment != Segment::kEnd) continue;
    if (action.layer == context.FindSlice(action.stage)->first_layer) {
      microbatches[action.stage].push_back(action.microbatch);
    }
  }
  return microbatches;
}

// Checks that all stages of one copy of the model run the same microbatches in the same order. If there is only one copy,
// ValidateProgram has already checked this.
absl::Status CheckPipes(const std::vector<Program>& programs, const std::vector<StageContext>& contexts) {
  const PipelineShape pipeline = contexts.front().pipeline();
  if (pipeline.pipes() == 1) return absl::OkStatus();
  std::map<int32_t, Microbatches> of_stage;
  for (size_t rank = 0; rank < programs.size(); ++rank) of_stage.merge(MicrobatchesOf(programs[rank], contexts[rank]));
  for (int32_t stage = 0; stage < pipeline.stages(); ++stage) {
    const int32_t previous = pipeline.Previous(stage);
    if (previous == kNoStage || of_stage[stage] == of_stage[previous]) continue;
    return absl::FailedPreconditionError(absl::StrCat("stage ", stage, ", on rank ", pipeline.RankOf(stage),
                                                      ", runs other microbatches than stage ", previous, ", on rank ",
                                                      pipeline.RankOf(previous)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckExpertGroups(const ModelSpec& model, const ParallelLayout& layout) {
  const int32_t ep = layout.ep, experts = model.moe.experts;
  if (ep < 1) return absl::FailedPreconditionError(absl::StrCat("parallel.ep is ", ep, ", below 1"));
  if (!model.moe.any()) {
    if (ep == 1) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("parallel.ep is ", ep, ", and the model has no experts (model.moe.experts)"));
  }
  if (experts % ep == 0 && RanksOfStage(layout) % ep == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(experts, " experts do not divide into ", LayoutText(layout)));
}

absl::Status CheckContext(const StageContext& c) {
  const auto fail = [&](const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat("stage ", c.pipeline_rank, ": ", what));
  };
  if (c.layout.tp < 1 || c.layout.pp < 1 || c.layout.dp < 1 || c.layout.cp < 1 || c.layout.virtual_stages < 1) {
    return fail(absl::StrCat("the layout ", LayoutText(c.layout), " has a degree below 1"));
  }
  if (c.layout.pp > kMaxPipelineRanks || c.layout.virtual_stages > kMaxPipelineChunks) {
    return fail(absl::StrCat("the layout ", LayoutText(c.layout), " has more than ", kMaxPipelineRanks, " stages or ",
                             kMaxPipelineChunks, " virtual stages on each"));
  }
  if (c.pipeline_rank < 0 || c.pipeline_rank >= c.layout.pp) return fail(absl::StrCat("there are ", c.layout.pp, " stages"));
  if (c.microbatches < 1 || c.micro_batch < 1) {
    return fail(absl::StrCat(c.microbatches, " microbatches of ", c.micro_batch, " samples: both must be at least 1"));
  }
  if (c.layout.weave == WeaveMode::kAuto) return fail("a layout says which passes run side by side; its weave is auto");
  const ModelSpec& m = c.model;
  if (m.hidden < 1 || m.heads < 1 || m.ffn < 1 || m.seq < 1 || m.vocab < 1 || m.heads % c.layout.tp != 0 || m.head_dim < 0 ||
      (m.head_dim == 0 && m.hidden % m.heads != 0) || (m.HasDenseBlock() && m.ffn % c.layout.tp != 0)) {
    return fail(absl::StrCat("tp ", c.layout.tp, " does not divide a model of hidden ", m.hidden, ", heads ", m.heads, ", ffn ",
                             m.ffn, ", seq ", m.seq, ", vocab ", m.vocab));
  }
  if (const absl::Status groups = CheckExpertGroups(m, c.layout); !groups.ok()) return fail(std::string(groups.message()));
  return CheckSlices(c);
}

absl::Status ValidatePrograms(const std::vector<Program>& programs, const std::vector<StageContext>& contexts) {
  if (programs.empty() || programs.size() != contexts.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(programs.size(), " programs for ", contexts.size(), " stages: one each is needed"));
  }
  const StageContext& first = contexts.front();
  for (size_t s = 0; s < contexts.size(); ++s) {
    const StageContext& c = contexts[s];
    if (c.pipeline_rank != static_cast<int32_t>(s) || c.model != first.model || c.layout != first.layout ||
        c.micro_batch != first.micro_batch || c.microbatches != first.microbatches ||
        c.layout.pp != static_cast<int32_t>(contexts.size())) {
      return absl::FailedPreconditionError(absl::StrCat("context ", s, " (stage ", c.pipeline_rank, ", ", LayoutText(c.layout),
                                                        ") does not continue the stages before it"));
    }
    LYNX_RETURN_IF_ERROR(CheckContext(c));
  }
  LYNX_RETURN_IF_ERROR(CheckSlicesJoin(contexts));
  for (size_t s = 0; s < contexts.size(); ++s) LYNX_RETURN_IF_ERROR(ValidateProgram(programs[s], contexts[s]));
  // On each virtual stage, every microbatch is sent and received once and in order, so neighbours match in number and order.
  return CheckPipes(programs, contexts);
}

}  // namespace lynx
