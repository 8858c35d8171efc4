// Rules for what a program makes again: which ops, once, and sums that are whole before anything reads them. One object
// follows one program. Pure; not thread-safe.
//
// x1 and the next layer's x are sums that grow in place: proj (fc2) writes a partial sum, its collective completes it,
// add1 (add2) makes the tensor whole. x is made again only for a layer above on the same stage, from which it would
// otherwise be kept.
#ifndef LYNX_PLANNER_PROGRAM_VALIDATE_RECOMPUTE_H_
#define LYNX_PLANNER_PROGRAM_VALIDATE_RECOMPUTE_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/memory_model.h"

namespace lynx {

class RecomputeRules {
 public:
  // The rule that is broken, if any.
  using Broken = std::optional<std::string>;

  explicit RecomputeRules(const StageContext& context) : context_(context), graph_(context.graph()) {}

  // Fields of kRecompute: whether the ops may be run again. Fields of a repeated collective: whether it may.
  Broken CheckOps(const Action& action) const;
  bool MayRepeat(const Action& action) const;

  // The next action of its kind. Their time and fields are right.
  Broken Recompute(const Action& action);
  Broken RepeatCollective(const Action& action);
  Broken Backward(const Action& action) const;

 private:
  enum class Sum : uint8_t { kWhole, kPartial, kReducing, kComplete };
  // x of the layer above, where that may be made again; x1 and any other tensor of the layer itself.
  BufferKey KeyOf(const Action& action, Tensor tensor) const;
  bool MakesInput(const Action& action) const;
  Sum StateOf(const BufferKey& key) const;
  Broken Grow(const Action& action, Tensor tensor, Op first, bool last);
  Broken CheckWhole(const Action& action, const std::vector<Tensor>& reads) const;

  const StageContext& context_;
  const LayerGraph& graph_;
  std::map<std::pair<int32_t, int32_t>, OpSet> recomputed_;  // by microbatch and layer
  std::map<BufferKey, Sum> sums_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_VALIDATE_RECOMPUTE_H_
