// The host pool's layout: an offset for everything that a program copies to its rank's host memory, such that what is
// there at once never shares a byte. Pure; thread-safe; deterministic.
#ifndef LYNX_PLANNER_PROGRAM_HOST_LAYOUT_H_
#define LYNX_PLANNER_PROGRAM_HOST_LAYOUT_H_

#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

struct HostLayout {
  // By action, of starts of copies only: where in the pool each of AccessesOf(action) is, in that order.
  std::vector<std::vector<Bytes>> offsets;
  // Of the pool: the largest sum of what is there at once, and what lies between it in vain. From the start of its offload
  // to the end of its reload, padded to kBufferAlignment.
  Bytes pool;
};

// What an invalid program (ValidateProgram) brings back without having copied it out has an offset without meaning.
HostLayout LayOutHost(const Program& program, const StageContext& context);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_HOST_LAYOUT_H_
