// What a framework keeps of a layer between its forward and its backward pass, and which ops its backward pass runs again. The
// rules of the frameworks differ:
//
// - Lynx runs again what makes the tensors that its policy does not store.
// - With FrameworkTraits::checkpoints_functions, a checkpointed function is called again as a whole, with its last op, although
//   no op reads that op's result. RecomputeOptions::modules are those of Megatron Core (recompute_modules.h).
// - With FrameworkTraits::checkpoints_ops, kBalanced is torchtitan's checkpointing by op (SelectiveAC, selective_ac_option
//   "op"; torchtitan/distributed/activation_checkpoint.py): the results of every second matrix product in the order in which a
//   block calls them, of attention and of reduce-scatters are kept, everything else runs again. A Llama block calls wq, wk, wv,
//   wo, w1, w3 and w2: wk, wo and w3 run again, and the result of w2 is kept although nothing reads it. The recomputation does
//   not stop early. Only layers of this kind are counted so; others keep what Lynx's kBalanced keeps.
//
// Pure; thread-safe.
#ifndef LYNX_PLANNER_FRAMEWORKS_LAYER_REPEAT_H_
#define LYNX_PLANNER_FRAMEWORKS_LAYER_REPEAT_H_

#include <string>
#include <vector>

#include "common/units.h"
#include "planner/frameworks/framework.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/layer_graph.h"

namespace lynx {

// A tensor that is kept, or a part of one, such as "qkv" or "gate of fc1".
struct KeptTensor {
  std::string name;
  Bytes bytes;
};

struct LayerRepeat {
  OpSet ops = 0;  // run again
  // Parts of qkv and fc1 that run again if they are in `ops`, in thousandths of their time.
  int32_t qkv_permille = 1000;
  int32_t fc1_permille = 1000;
  bool keeps_reduced = false;    // results of reduce-scatters are kept, although the product before them runs again
  bool whole = false;            // the whole layer runs again, with all its collectives
  std::vector<KeptTensor> kept;  // with the layer's input

  Bytes kept_bytes() const;
};

// All ops of a transformer layer.
OpSet LayerOps(const LayerGraph& graph);

// `mode` treats every layer alike. `modules`: RecomputeOptions::modules, for kSelective.
LayerRepeat LayerRepeatOf(const LayerShape& shape, RecomputeMode mode, const std::vector<RecomputeModule>& modules,
                          const FrameworkTraits& traits);

// True if kBalanced is checkpointing by op for layers of this shape (see above).
bool CheckpointsByOp(const LayerShape& shape, const FrameworkTraits& traits);

}  // namespace lynx

#endif  // LYNX_PLANNER_FRAMEWORKS_LAYER_REPEAT_H_
