// Rules for recomputation in a program: which ops may be recomputed, that each is recomputed at most once, and that sums are
// complete before an action reads them. One object checks one program, action by action. Pure; not thread-safe.
//
// x1 and the next layer's x are sums that grow in place: proj (fc2) writes a partial sum, its collective adds the parts of all
// ranks, and add1 (add2) completes the tensor. x is recomputed only for a layer above on the same stage, because the input of a
// stage's first layer is always stored. With experts, x grows by unpermute and add2.
#ifndef LYNX_PLANNER_PROGRAM_VALIDATE_RECOMPUTE_H_
#define LYNX_PLANNER_PROGRAM_VALIDATE_RECOMPUTE_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/problem/layer_kinds.h"
#include "planner/problem/stage_context.h"
#include "planner/program/memory_model.h"

namespace lynx {

class RecomputeRules {
 public:
  // The rule that an action breaks, if any.
  using Broken = std::optional<std::string>;

  explicit RecomputeRules(const StageContext& context) : context_(context), kinds_(context) {}

  // CheckOps checks whether the ops of a kRecompute action may be recomputed. MayRepeat: true if a collective may be repeated.
  Broken CheckOps(const Action& action) const;
  bool MayRepeat(const Action& action) const;

  // Each function checks whether `action` may be the next action of the program. Recompute and RepeatCollective also record the
  // action. The caller must have checked the action's fields.
  Broken Recompute(const Action& action);
  Broken RepeatCollective(const Action& action);
  Broken Backward(const Action& action) const;

 private:
  enum class Sum : uint8_t { kWhole, kPartial, kReducing, kComplete };
  // The key of a tensor that an action of a layer recomputes. x has the key of the layer above. x1 and every other tensor have
  // the key of the action's layer.
  BufferKey KeyOf(const Action& action, Tensor tensor) const;
  bool MakesInput(const Action& action) const;
  Sum StateOf(const BufferKey& key) const;
  Broken Grow(const Action& action, Tensor tensor, Op first, bool last);
  Broken CheckWhole(const Action& action, const std::vector<Tensor>& reads) const;

  const StageContext& context_;
  const LayerKinds kinds_;
  std::map<std::pair<int32_t, int32_t>, OpSet> recomputed_;  // for each microbatch and layer, the ops that have been recomputed
  std::map<BufferKey, Sum> sums_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_VALIDATE_RECOMPUTE_H_
