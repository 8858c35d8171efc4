// The layout of the host pool: an offset for every tensor that a program copies to its rank's host memory. Tensors that are in
// the host's memory at the same time never share a byte. Pure; thread-safe; deterministic.
#ifndef LYNX_PLANNER_PROGRAM_HOST_LAYOUT_H_
#define LYNX_PLANNER_PROGRAM_HOST_LAYOUT_H_

#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

struct HostLayout {
  // For each action that starts a copy: the offsets in the pool for the action's accesses, in the order of AccessesOf(action).
  // Empty for other actions.
  std::vector<std::vector<Bytes>> offsets;
  // Pool size: the largest sum of bytes that are in the pool at the same time, plus fragmentation. A tensor is in the pool from
  // the start of its offload to the end of its reload, padded to kBufferAlignment.
  Bytes pool;
};

// Lays out the host pool of a program. If the program is invalid (ValidateProgram) and reloads a tensor that it never
// offloaded, this tensor gets a meaningless offset.
HostLayout LayOutHost(const Program& program, const StageContext& context);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_HOST_LAYOUT_H_
