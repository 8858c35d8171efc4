// ArenaWatch: measures how steps really use their arena. It looks at the memory itself and does not trust the plan.
//
// Memory that nothing has written holds a mark: a NaN that arithmetic on numbers never gives. The highest word without the mark
// shows how far a step has used the arena. Memory that is read before it is written makes the loss a NaN. Behind the arena is a
// guard: kGuard bytes that must keep their marks.
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

namespace lynx::worker {

class ArenaWatch {
 public:
  static constexpr Bytes kGuard = kBufferAlignment;

  // `memory` is the arena with kGuard behind it. Marks all of it.
  ArenaWatch(std::span<float> memory, Backend& backend);

  std::span<float> arena() const { return arena_; }

  void Mark(std::span<float> part);
  // Finds what was written to this part of the arena since it was marked.
  void Look(std::span<const float> part);
  // The end of the highest word that was ever written, counted from the arena's start. It is rounded up to the end of a
  // buffer's padding, which nothing writes.
  Bytes peak() const { return peak_; }

  // Internal if the guard has been written to: then an op wrote beyond its buffer.
  absl::Status CheckGuard() const;
  // Internal, with the place, if any part of the arena is not marked: then something was written where no buffer was.
  absl::Status CheckAllMarked() const;

 private:
  int64_t WrittenWords(std::span<const float> part) const;

  const std::span<float> arena_;
  const std::span<float> guard_;
  Backend& backend_;
  Bytes peak_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_ARENA_WATCH_H_
