// ArenaWatch: what steps really do to their arena, told from the memory itself and not from the plan.
//
// Memory that nothing has written holds a mark: a NaN that arithmetic on numbers never gives. So the highest word
// without it is how far a step came, and what is read before it was written shows in the loss. Behind the arena
// stands a guard, which holds marks for ever.
//
// Not thread-safe. Borrows the memory and the backend.
#ifndef LYNX_WORKER_ENGINE_ARENA_WATCH_H_
#define LYNX_WORKER_ENGINE_ARENA_WATCH_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/units.h"
#include "planner/program/memory_model.h"
#include "worker/backend/backend.h"

namespace lynx {

class ArenaWatch {
 public:
  static constexpr Bytes kGuard = kBufferAlignment;

  // `memory` is the arena and kGuard behind it. Marks all of it.
  ArenaWatch(std::span<float> memory, Backend& backend);

  std::span<float> arena() const { return arena_; }

  void Mark(std::span<float> part);
  // Takes in what was written to this part of the arena since it was marked.
  void Look(std::span<const float> part);
  // End of the highest word that was ever seen written, from the arena's start; up to the end of a buffer's padding,
  // which nothing writes.
  Bytes peak() const { return peak_; }

  // Internal when the guard has been written to: an op went beyond its buffer.
  absl::Status CheckGuard() const;
  // Internal when any part of the arena is not marked, naming the place: something was written where no buffer was.
  absl::Status CheckAllMarked() const;

 private:
  int64_t WrittenWords(std::span<const float> part) const;

  const std::span<float> arena_;
  const std::span<float> guard_;
  Backend& backend_;
  Bytes peak_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_ENGINE_ARENA_WATCH_H_
