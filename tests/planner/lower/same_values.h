// Checks that the programs of a pipeline compute what a plain program of the whole model computes.
#ifndef LYNX_TESTS_PLANNER_LOWER_SAME_VALUES_H_
#define LYNX_TESTS_PLANNER_LOWER_SAME_VALUES_H_

#include <map>
#include <tuple>
#include <vector>

#include "tests/planner/lower/stage_programs.h"
#include "tests/planner/program/program_values.h"

namespace lynx {

// Returns the values of a plain program: one pipeline rank runs the whole model in one slice, and stores everything.
inline StepValues WholeStep(const Pipeline& p) {
  const StageContext& context = p.contexts.front();
  const ParallelLayout layout{
      .tp = context.layout.tp, .ep = context.layout.ep, .sequence_parallel = context.layout.sequence_parallel};
  const std::vector<StageContext> whole =
      PipelineContexts(context.model, layout, context.micro_batch, context.microbatches, {context.model.layers});
  const StagePolicy policy = NamedPolicy(context.graph(), RecomputeMode::kNone, context.model.layers);
  return ProgramValues(LowerStage(whole[0], policy), whole[0], nullptr).Run();
}

// Checks that each op for an input or weight gradient reads the same values as in the plain program, and runs on only one rank.
inline void ExpectSameValues(const Pipeline& p) {
  const StepValues whole = WholeStep(p);
  std::map<std::tuple<Pass, Op, int32_t, int32_t>, Value> reads;
  for (size_t rank = 0; rank < p.programs.size(); ++rank) {
    const StepValues of_rank = ProgramValues(p.programs[rank], p.contexts[rank], &whole).Run();
    for (const auto& [what, value] : of_rank.reads) {
      const auto [pass, op, layer, microbatch] = what;
      ASSERT_TRUE(reads.emplace(what, value).second) << EnumName(op) << " of layer " << layer << " runs on two ranks";
      ASSERT_EQ(value, whole.reads.at(what)) << "pass " << static_cast<int>(pass) << " of " << EnumName(op) << ", layer "
                                             << layer << ", microbatch " << microbatch << " reads something else";
    }
  }
  EXPECT_EQ(reads.size(), whole.reads.size());
}

}  // namespace lynx

#endif  // LYNX_TESTS_PLANNER_LOWER_SAME_VALUES_H_
