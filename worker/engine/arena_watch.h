// ArenaWatch measures how steps really use their arena. It looks at the memory itself and does not trust the plan.
//
// Every word that was not written holds a mark: a NaN that arithmetic on numbers never gives. The highest word without the mark
// shows how much of the arena a step has used. If a step reads memory before it writes it, the loss becomes a NaN. Behind the
// arena is a guard: kGuard bytes that must keep their marks.
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

  // `memory` is the arena, followed by a guard of kGuard bytes. Marks all of it.
  ArenaWatch(std::span<float> memory, Backend& backend);

  std::span<float> arena() const { return arena_; }

  void Mark(std::span<float> part);
  // Finds which words of this part of the arena were written since the part was marked.
  void Look(std::span<const float> part);
  // The end of the highest word that was ever written, in bytes from the arena's start. It is rounded up to the end of the
  // buffer's padding, because no op writes the padding.
  Bytes peak() const { return peak_; }

  // Returns Internal if a word of the guard was written, which means that an op wrote beyond its buffer.
  absl::Status CheckGuard() const;
  // Returns Internal, with the place, if a word of the arena has no mark, which means that an op wrote where no buffer was.
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
