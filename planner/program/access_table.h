// AccessTable computes AccessesOf (memory_model.h) for the many actions of one rank's program. Actions that differ only by
// microbatch and inner layer share one computation, so a pass over a program takes little more time than reading the program.
//
// Not thread-safe. The table refers to the context, so the context must outlive the table.
#ifndef LYNX_PLANNER_PROGRAM_ACCESS_TABLE_H_
#define LYNX_PLANNER_PROGRAM_ACCESS_TABLE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/program/memory_model.h"

namespace lynx {

class AccessTable {
 public:
  explicit AccessTable(const StageContext& context) : context_(context) {}

  // Returns what AccessesOf(action, context) returns. The span is valid until the next call.
  std::span<const Access> Of(const Action& action);

 private:
  // Accesses of an action. `of_layer` and `of_microbatch` say for each access whether its key changes with the action's
  // layer and microbatch.
  struct Entry {
    Action action;
    std::vector<Access> accesses;
    std::vector<bool> of_layer, of_microbatch;
  };

  bool Alike(const Action& a, const Action& b) const;
  Entry Find(const Action& action) const;

  const StageContext& context_;
  std::array<std::vector<Entry>, size_t{kActionKindCount} * kSegmentCount> entries_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_ACCESS_TABLE_H_
