// Dynamic storage allocation with known lifetimes is NP-hard, so this is a greedy placement, in several ways of which the
// smallest arena is taken.
//
// Two regions. What the forward pass keeps for the backward pass comes first, in slots of its size that are used again
// as soon as they are free: microbatches in flight come and go like one another, so a slot is hardly ever idle while all
// others of its size are taken at the moment of the peak. Everything else, which lives shortly, comes above, large before
// small, each in the smallest gap that fits between the placed buffers that share a moment with it. Takes time
// proportional to the program. At the peak all that a microbatch keeps is usually live, so usually this meets it.
//
// Orders. Where the two regions exceed the peak by more than a little, all buffers are placed into gaps in one of two
// orders. First: what is kept, in the order of time, then the rest, large before small. Second: all, large before small.
// Whenever the result is larger than the peak of live bytes (which no layout can beat), the buffers that stick out above
// that peak move to the front of the order, and it is tried again, as long as the work is bearable. The tests hold the
// arena to 0.5% above the peak under the named policies; under random ones to 8%, and to 15% where gradients or weights are
// shared out with every microbatch.
#include "planner/arena_layout.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

#include "common/check.h"

namespace lynx {
namespace {

// Above the peak by at most this share, two regions will do.
constexpr int64_t kLittle = 256;
constexpr int kRoundsPerOrder = 8;
// No further round starts after this many looks at a neighbour: about a hundredth of a second of one core.
constexpr int64_t kMaxLooks = 3'000'000;
// Actions that share one list of neighbours.
constexpr int32_t kChunk = 64;

// Buffer instances placed so far, found by time.
class PlacedBuffers {
 public:
  PlacedBuffers(const std::vector<BufferInstance>& buffers, size_t actions)
      : buffers_(buffers), offsets_(buffers.size()), chunks_(actions / kChunk + 1) {}

  // Places `index` into the smallest gap that fits, the lowest of equals. Returns its end.
  Bytes Place(int32_t index) {
    const BufferInstance& buffer = buffers_[static_cast<size_t>(index)];
    FindNeighbours(buffer);
    Bytes best(-1), best_gap(std::numeric_limits<int64_t>::max()), end;
    for (const int32_t id : neighbours_) {
      const Bytes gap = offset(id) - end;
      if (gap >= buffer.bytes && gap < best_gap) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, offset(id) + buffers_[static_cast<size_t>(id)].bytes);
    }
    if (best < Bytes(0)) best = end;
    Insert(index, best);
    return best + buffer.bytes;
  }

  Bytes offset(int32_t index) const { return offsets_[static_cast<size_t>(index)]; }
  int64_t looks() const { return looks_; }

 private:
  struct Chunk {
    std::vector<int32_t> live;    // every placed instance that lives in the chunk, by offset
    std::vector<int32_t> starts;  // those that begin in it
  };

  bool Below(int32_t a, int32_t b) const { return offset(a) < offset(b); }

  // Fills neighbours_, by offset: what lives when `buffer` begins, and what begins while it lives.
  void FindNeighbours(const BufferInstance& buffer) {
    const auto below = [this](int32_t a, int32_t b) { return Below(a, b); };
    neighbours_.clear();
    const std::vector<int32_t>& live = chunks_[static_cast<size_t>(buffer.first / kChunk)].live;
    looks_ += static_cast<int64_t>(live.size());
    for (const int32_t id : live) {
      const BufferInstance& other = buffers_[static_cast<size_t>(id)];
      if (other.first <= buffer.first && other.last >= buffer.first) neighbours_.push_back(id);
    }
    const auto middle = static_cast<ptrdiff_t>(neighbours_.size());
    for (int32_t chunk = buffer.first / kChunk; chunk <= buffer.last / kChunk; ++chunk) {
      const std::vector<int32_t>& starts = chunks_[static_cast<size_t>(chunk)].starts;
      looks_ += static_cast<int64_t>(starts.size());
      for (const int32_t id : starts) {
        const BufferInstance& other = buffers_[static_cast<size_t>(id)];
        if (other.first > buffer.first && other.first <= buffer.last) neighbours_.push_back(id);
      }
    }
    std::sort(neighbours_.begin() + middle, neighbours_.end(), below);
    std::inplace_merge(neighbours_.begin(), neighbours_.begin() + middle, neighbours_.end(), below);
  }

  void Insert(int32_t index, Bytes at) {
    const BufferInstance& buffer = buffers_[static_cast<size_t>(index)];
    offsets_[static_cast<size_t>(index)] = at;
    chunks_[static_cast<size_t>(buffer.first / kChunk)].starts.push_back(index);
    for (int32_t chunk = buffer.first / kChunk; chunk <= buffer.last / kChunk; ++chunk) {
      std::vector<int32_t>& live = chunks_[static_cast<size_t>(chunk)].live;
      live.insert(
          std::upper_bound(live.begin(), live.end(), index, [this](int32_t a, int32_t b) { return Below(a, b); }),
          index);
    }
  }

  const std::vector<BufferInstance>& buffers_;
  std::vector<Bytes> offsets_;
  std::vector<Chunk> chunks_;
  std::vector<int32_t> neighbours_;
  int64_t looks_ = 0;
};

// Written by the forward pass and read last by the backward pass.
bool KeptForBackward(const Program& program, const BufferInstance& buffer) {
  const ActionKind first = program[static_cast<size_t>(buffer.first)].kind;
  const ActionKind last = program[static_cast<size_t>(buffer.last)].kind;
  return (first == ActionKind::kForward || first == ActionKind::kRecvForwardStart) &&
         (last == ActionKind::kBackward || last == ActionKind::kWeight || last == ActionKind::kRecompute);
}

// Offsets of buffers that begin in the given order (of time), in slots by size. Returns their end.
Bytes PlaceInSlots(const std::vector<BufferInstance>& buffers, const std::vector<int32_t>& kept,
                   std::vector<Bytes>& offsets) {
  using Taken = std::pair<int32_t, int32_t>;  // last action, buffer
  std::priority_queue<Taken, std::vector<Taken>, std::greater<>> taken;
  std::map<Bytes, std::vector<Bytes>> free;  // slots, by size
  Bytes end;
  for (const int32_t index : kept) {
    const BufferInstance& buffer = buffers[static_cast<size_t>(index)];
    for (; !taken.empty() && taken.top().first < buffer.first; taken.pop()) {
      const auto done = static_cast<size_t>(taken.top().second);
      free[buffers[done].bytes].push_back(offsets[done]);
    }
    std::vector<Bytes>& slots = free[buffer.bytes];
    Bytes& offset = offsets[static_cast<size_t>(index)];
    if (slots.empty()) {
      offset = end;
      end += buffer.bytes;
    } else {
      offset = slots.back();
      slots.pop_back();
    }
    taken.emplace(buffer.last, index);
  }
  return end;
}

void TryTwoRegions(const Program& program, MemoryPlan& plan) {
  std::vector<int32_t> kept, rest;
  for (int32_t i = 0; i < static_cast<int32_t>(plan.buffers.size()); ++i) {
    (KeptForBackward(program, plan.buffers[static_cast<size_t>(i)]) ? kept : rest).push_back(i);
  }
  std::stable_sort(rest.begin(), rest.end(), [&](int32_t a, int32_t b) {
    return plan.buffers[static_cast<size_t>(a)].bytes > plan.buffers[static_cast<size_t>(b)].bytes;
  });
  std::vector<Bytes> offsets(plan.buffers.size());
  const Bytes base = PlaceInSlots(plan.buffers, kept, offsets);
  PlacedBuffers placed(plan.buffers, program.size());
  Bytes above;
  for (const int32_t index : rest) above = std::max(above, placed.Place(index));
  plan.arena = base + above;
  for (const int32_t index : rest) offsets[static_cast<size_t>(index)] = base + placed.offset(index);
  for (size_t i = 0; i < plan.buffers.size(); ++i) plan.buffers[i].offset = offsets[i];
}

// Indexes into plan.buffers, which are in the order of time.
std::vector<int32_t> KeptFirstOrder(const Program& program, const MemoryPlan& plan) {
  std::vector<int32_t> order(plan.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  const auto rest = std::stable_partition(order.begin(), order.end(), [&](int32_t i) {
    return KeptForBackward(program, plan.buffers[static_cast<size_t>(i)]);
  });
  std::stable_sort(rest, order.end(), [&](int32_t a, int32_t b) {
    return plan.buffers[static_cast<size_t>(a)].bytes > plan.buffers[static_cast<size_t>(b)].bytes;
  });
  return order;
}

std::vector<int32_t> LargestFirstOrder(const MemoryPlan& plan) {
  std::vector<int32_t> order(plan.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return plan.buffers[static_cast<size_t>(a)].bytes > plan.buffers[static_cast<size_t>(b)].bytes;
  });
  return order;
}

// Tries one order and its retries, and keeps in `plan` what is better than what it holds. `looks` counts the work.
void TryOrder(const Program& program, std::vector<int32_t> order, MemoryPlan& plan, int64_t& looks) {
  for (int round = 0; round < kRoundsPerOrder && plan.arena > plan.live_peak && looks < kMaxLooks; ++round) {
    PlacedBuffers placed(plan.buffers, program.size());
    Bytes arena;
    for (const int32_t index : order) arena = std::max(arena, placed.Place(index));
    looks += placed.looks();
    const auto size = [&](int32_t i) { return plan.buffers[static_cast<size_t>(i)].bytes; };
    std::stable_partition(order.begin(), order.end(),
                          [&](int32_t i) { return placed.offset(i) + size(i) > plan.live_peak; });
    if (arena >= plan.arena) continue;
    plan.arena = arena;
    for (size_t i = 0; i < plan.buffers.size(); ++i) plan.buffers[i].offset = placed.offset(static_cast<int32_t>(i));
  }
}

}  // namespace

void LayOut(const Program& program, MemoryPlan& plan) {
  if (plan.buffers.empty()) return;
  TryTwoRegions(program, plan);
  if (plan.arena - plan.live_peak <= plan.live_peak / kLittle) return;
  int64_t looks = 0;
  TryOrder(program, KeptFirstOrder(program, plan), plan, looks);
  TryOrder(program, LargestFirstOrder(plan), plan, looks);
  LYNX_CHECK(plan.arena >= plan.live_peak);
}

}  // namespace lynx
