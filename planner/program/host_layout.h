// The layout of the host pool: an offset for every tensor that a program copies to its rank's host memory, such that tensors
// that are in the host's memory at the same time never share a byte. Pure; thread-safe; deterministic.
#ifndef LYNX_PLANNER_PROGRAM_HOST_LAYOUT_H_
#define LYNX_PLANNER_PROGRAM_HOST_LAYOUT_H_

#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

struct HostLayout {
  // Per action, filled only for starts of copies: the offsets in the pool of the action's accesses, in the order of
  // AccessesOf(action).
  std::vector<std::vector<Bytes>> offsets;
  // Pool size: the largest sum of bytes that are in it at the same time, plus fragmentation. A tensor counts from the start of
  // its offload to the end of its reload, padded to kBufferAlignment.
  Bytes pool;
};

// In an invalid program (ValidateProgram), a tensor that is reloaded but was never offloaded gets a meaningless offset.
HostLayout LayOutHost(const Program& program, const StageContext& context);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_HOST_LAYOUT_H_
