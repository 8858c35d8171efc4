#include "worker/engine/arena_watch.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lynx::worker {
namespace {

// A quiet NaN with a special payload. Arithmetic on numbers never gives a NaN with this payload. Each 16-bit half is also a NaN
// of bfloat16.
constexpr uint32_t kMark = 0x7fc57fd1;
constexpr size_t kGuardWords = static_cast<size_t>(ArenaWatch::kGuard.value) / sizeof(float);

}  // namespace

ArenaWatch::ArenaWatch(std::span<float> memory, Backend& backend)
    : arena_(memory.first(memory.size() - kGuardWords)), guard_(memory.last(kGuardWords)), backend_(backend) {
  Mark(memory);
}

void ArenaWatch::Mark(std::span<float> part) {
  backend_.Fill(part.data(), static_cast<int64_t>(part.size()), std::bit_cast<float>(kMark));
}

// Returns the number of words up to the last word that is not a mark, including this word.
int64_t ArenaWatch::WrittenWords(std::span<const float> part) const {
  return backend_.WordsUnlike(std::bit_cast<float>(kMark), part.data(), static_cast<int64_t>(part.size()));
}

void ArenaWatch::Look(std::span<const float> part) {
  LYNX_CHECK(part.data() >= arena_.data() && part.data() + part.size() <= arena_.data() + arena_.size());
  const int64_t words = WrittenWords(part);
  if (words == 0) return;
  const auto end = static_cast<int64_t>((part.data() + words - arena_.data()) * sizeof(float));
  const int64_t alignment = kBufferAlignment.value;
  peak_ = std::max(peak_, Bytes((end + alignment - 1) / alignment * alignment));
}

absl::Status ArenaWatch::CheckGuard() const {
  if (WrittenWords(guard_) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("something was written beyond the end of the arena of ", arena_.size_bytes(),
                                          " bytes; this is an error in the program, please report it"));
}

absl::Status ArenaWatch::CheckAllMarked() const {
  const int64_t words = WrittenWords(arena_);
  if (words == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("something was written before byte ", words * sizeof(float), " of the arena, where no buffer was alive"));
}

}  // namespace lynx::worker
