// See host_layout.h.
#include "planner/host_layout.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "planner/memory_model.h"

namespace lynx {
namespace {

struct Block {
  Bytes offset, bytes;
};

// What is free below the pool's end, by offset; neighbours are joined.
class FreeBlocks {
 public:
  // The smallest that fits, the lowest of equals; at the end of the pool, which grows, if none does.
  Block Take(Bytes bytes) {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second >= bytes && (best == free_.end() || it->second < best->second)) best = it;
    }
    if (best == free_.end()) return Grow(bytes);
    const Block taken{best->first, bytes};
    const Bytes left = best->second - bytes;
    free_.erase(best);
    if (left.value > 0) free_.emplace(taken.offset + bytes, left);
    return taken;
  }

  void Return(Block block) {
    const auto next = free_.lower_bound(block.offset);
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == block.offset) {
        block = {before->first, before->second + block.bytes};
        free_.erase(before);
      }
    }
    if (next != free_.end() && block.offset + block.bytes == next->first) {
      block.bytes += next->second;
      free_.erase(next);
    }
    free_.emplace(block.offset, block.bytes);
  }

  Bytes end() const { return end_; }

 private:
  Block Grow(Bytes bytes) {
    Block block{end_, bytes};
    if (!free_.empty()) {
      const auto last = std::prev(free_.end());
      if (last->first + last->second == end_) {
        block.offset = last->first;
        free_.erase(last);
      }
    }
    end_ = block.offset + bytes;
    return block;
  }

  std::map<Bytes, Bytes> free_;
  Bytes end_;
};

Bytes Padded(Bytes bytes) {
  return Bytes((bytes.value + kBufferAlignment.value - 1) / kBufferAlignment.value * kBufferAlignment.value);
}

}  // namespace

HostLayout LayOutHost(const Program& program, const StageContext& context) {
  HostLayout layout{.offsets = std::vector<std::vector<Bytes>>(program.size()), .pool = Bytes(0)};
  FreeBlocks free;
  absl::flat_hash_map<BufferKey, Block> there;
  for (size_t i = 0; i < program.size(); ++i) {
    const Action& action = program[i];
    if (InfoOf(action.kind).group != Group::kHost || action.kind == ActionKind::kOffloadWait) continue;
    for (const Access& access : AccessesOf(action, context)) {
      if (action.kind == ActionKind::kOffloadStart) there[access.key] = free.Take(Padded(access.bytes));
      const auto block = there.find(access.key);
      const bool known = block != there.end();
      if (action.kind != ActionKind::kReloadWait) {
        layout.offsets[i].push_back(known ? block->second.offset : Bytes(0));
      } else if (known) {
        free.Return(block->second);
        there.erase(block);
      }
    }
  }
  layout.pool = free.end();
  return layout;
}

}  // namespace lynx
