#include "planner/program/hidden_time.h"

#include <algorithm>

namespace lynx {

// This function goes backwards over the program, so it knows the next wait after each action.
std::vector<int32_t> HidingStarts(const Program& program, const std::vector<int32_t>& start_of_wait) {
  std::vector<int32_t> hiding(program.size(), -1);
  int32_t start = -1;  // the start of the next wait
  for (auto i = static_cast<int32_t>(program.size()) - 1; i >= 0; --i) {
    const ActionKind kind = program[i].kind;
    const Phase phase = InfoOf(kind).phase;
    if (phase == Phase::kWait) {
      start = start_of_wait[i];
    } else if (kind == ActionKind::kRecompute) {
      if (start < i) hiding[i] = start;
    } else if (phase == Phase::kWhole && kind != ActionKind::kWeight) {
      start = -1;
    }
  }
  return hiding;
}

Nanos HiddenPart(Nanos begin, Nanos end, Nanos transfer_end) { return std::clamp(transfer_end - begin, Nanos(0), end - begin); }

}  // namespace lynx
