// LivePeaks finds how many bytes of a program's buffers live at the same time if its actions run in another order. It looks up
// the accesses of the actions once, so each order takes far less time than FoldLiveness.
//
// Not thread-safe, because the function Of() writes to members that it reuses in each call.
#ifndef LYNX_PLANNER_PROGRAM_LIVE_PEAKS_H_
#define LYNX_PLANNER_PROGRAM_LIVE_PEAKS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/units.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/program/memory_model.h"

namespace lynx {

class LivePeaks {
 public:
  LivePeaks(const Program& program, const StageContext& context);

  // `order` has the indices of the program's first actions, in the order in which these run. The other actions follow. Returns
  // the live_peak that FoldLiveness finds for the program in this order, which must be valid.
  Bytes Of(std::span<const int32_t> order);

 private:
  struct Use {
    int32_t buffer = 0;  // number of the key
    AccessMode mode = AccessMode::kRead;
    Bytes bytes;  // padded
  };
  // The instance of a buffer that lives now.
  struct Instance {
    int32_t last = -1;  // place of the last action that accessed the instance; -1: no instance lives
    Bytes bytes;
  };

  std::vector<Use> uses_;       // of all actions, one action after another
  std::vector<size_t> first_;   // for each action, the index of its first use; the last entry is the number of uses
  std::vector<Instance> live_;  // the index is the buffer
  std::vector<Bytes> change_;   // for each place, by how much the live bytes grow there
};

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_LIVE_PEAKS_H_
