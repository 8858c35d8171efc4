// To place buffers with known lifetimes in the least memory (dynamic storage allocation) is NP-hard. So the placement is
// greedy. Several ways are tried, and the first result that is small enough is used.
//
// Two regions. The lower region holds what one slot of the schedule keeps for a later slot: from the forward pass for the
// backward pass, or, if weight gradients are slots of their own, from the backward pass for the weight gradients. Each buffer
// gets a place of exactly its size, which is used again as soon as it is free. Microbatches in flight need the same sizes, so
// at the time of the peak almost every place is in use. The upper region holds all other buffers, which have short lifetimes.
// In this region, microbatches and layers repeat each other: instances of a tensor that never live at the same time form a
// *group* and share one offset. Groups are placed from large to small. Each group is placed in the smallest gap that fits
// between the placed groups with which it lives at the same time at some moment. The time for this is proportional to the
// program's length, plus a little for some hundred groups. At the peak, all buffers that microbatches keep are usually live, so
// the arena usually equals the peak.
//
// Orders. If the two regions are too large, all buffers are placed one by one into gaps, in one of two orders. First order:
// kept buffers in the order of time, then the rest from large to small. Second order: all from large to small. The peak of live
// bytes is a lower bound for every layout. If the result is above it, the buffers whose end is above the peak move to the front
// of the order, and the placement is repeated, up to a limit of work. The tests require an arena of at most 0.5% above the peak
// under the named policies, at most 8% under random policies, and at most 15% if gradients or weights are sharded with every
// microbatch.
#include "planner/program/arena_layout.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

#include "common/check.h"

namespace lynx {
namespace {

// The arena with two regions is small enough if it exceeds the peak by at most 1/kLittle of the peak.
constexpr int64_t kLittle = 256;
constexpr int kRoundsPerOrder = 8;
// Limit of work: after this many visits of neighbours (PlacedBuffers::looks), no further round begins. This many visits take
// about a hundredth of a second on one core.
constexpr int64_t kMaxLooks = 3'000'000;
// After this many visits, TryOrder also accepts an arena that exceeds the peak by at most 1/kLittle of the peak.
constexpr int64_t kManyLooks = 500'000;
// PlacedBuffers divides the program into chunks of this many actions.
constexpr int32_t kChunk = 32;

// The buffer instances placed so far, indexed by time.
class PlacedBuffers {
 public:
  PlacedBuffers(const std::vector<BufferInstance>& buffers, size_t actions)
      : buffers_(buffers), offsets_(buffers.size()), chunks_(actions / kChunk + 1) {}

  // Places the buffer number `index` into the smallest gap that fits; among equal gaps, into the lowest. If no gap fits,
  // places it above its neighbours. Returns the end of the buffer.
  Bytes Place(int32_t index) {
    const BufferInstance& buffer = buffers_[static_cast<size_t>(index)];
    FindNeighbours(buffer);
    Bytes best(-1), best_gap(std::numeric_limits<int64_t>::max()), end;
    for (const Range& taken : neighbours_) {
      const Bytes gap = taken.offset - end;
      if (gap >= buffer.bytes && gap < best_gap) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, taken.end);
    }
    if (best < Bytes(0)) best = end;
    Insert(index, best);
    return best + buffer.bytes;
  }

  Bytes offset(int32_t index) const { return offsets_[static_cast<size_t>(index)]; }
  int64_t looks() const { return looks_; }

 private:
  struct Range {
    Bytes offset, end;
  };
  struct Placed {
    Range range;
    int32_t first, last;  // action indices
  };
  struct Chunk {
    std::vector<Range> whole;     // ranges of instances that live from the chunk's begin to its end, merged, in the order of
                                  // offsets
    std::vector<Placed> partial;  // instances that live during a part of the chunk, in the order of offsets
    std::vector<Placed> starts;   // instances that begin in the chunk
    std::vector<Range> covered;   // the space that `starts` take together: disjoint ranges, in the order of offsets
  };

  static bool Below(const Range& a, const Range& b) { return a.offset < b.offset; }

  // Fills neighbours_, in the order of offsets, with the instances that live when `buffer` begins, and with the instances that
  // begin while `buffer` lives.
  void FindNeighbours(const BufferInstance& buffer) {
    const Chunk& begin = chunks_[static_cast<size_t>(buffer.first / kChunk)];
    looks_ += static_cast<int64_t>(begin.whole.size() + begin.partial.size());
    if (live_.size() < begin.partial.size()) live_.resize(begin.partial.size());
    // This loop has no branch, because the processor could not predict the branch.
    size_t live = 0;
    for (const Placed& other : begin.partial) {
      live_[live] = other.range;
      live += static_cast<size_t>(other.first <= buffer.first) & static_cast<size_t>(other.last >= buffer.first);
    }
    neighbours_.clear();
    std::merge(live_.begin(), live_.begin() + static_cast<ptrdiff_t>(live), begin.whole.begin(), begin.whole.end(),
               std::back_inserter(neighbours_), Below);
    started_.clear();
    const int32_t first = buffer.first / kChunk, last = buffer.last / kChunk;
    for (int32_t chunk = first; chunk <= last; ++chunk) {
      const Chunk& of = chunks_[static_cast<size_t>(chunk)];
      if (chunk > first && chunk < last) {
        looks_ += static_cast<int64_t>(of.covered.size());
        started_.insert(started_.end(), of.covered.begin(), of.covered.end());
        continue;
      }
      looks_ += static_cast<int64_t>(of.starts.size());
      for (const Placed& other : of.starts) {
        if (other.first > buffer.first && other.first <= buffer.last) started_.push_back(other.range);
      }
    }
    if (started_.empty()) return;
    std::sort(started_.begin(), started_.end(), Below);
    merged_.clear();
    std::merge(neighbours_.begin(), neighbours_.end(), started_.begin(), started_.end(), std::back_inserter(merged_), Below);
    neighbours_.swap(merged_);
  }

  void Insert(int32_t index, Bytes at) {
    const BufferInstance& buffer = buffers_[static_cast<size_t>(index)];
    const Placed placed{{at, at + buffer.bytes}, buffer.first, buffer.last};
    offsets_[static_cast<size_t>(index)] = at;
    const int32_t first = buffer.first / kChunk, last = buffer.last / kChunk;
    chunks_[static_cast<size_t>(first)].starts.push_back(placed);
    Cover(placed.range, chunks_[static_cast<size_t>(first)].covered);
    for (int32_t chunk = first; chunk <= last; ++chunk) {
      Chunk& of = chunks_[static_cast<size_t>(chunk)];
      if (chunk > first && chunk < last) {
        Join(placed.range, of.whole);
        continue;
      }
      const auto below = [](const Placed& a, const Placed& b) { return Below(a.range, b.range); };
      of.partial.insert(std::upper_bound(of.partial.begin(), of.partial.end(), placed, below), placed);
    }
  }

  // Adds `range` to `ranges` and merges neighbours. `range` must not overlap any of `ranges`.
  static void Join(const Range& range, std::vector<Range>& ranges) {
    const auto next = std::upper_bound(ranges.begin(), ranges.end(), range, Below);
    const bool joins_next = next != ranges.end() && next->offset == range.end;
    const bool joins_previous = next != ranges.begin() && std::prev(next)->end == range.offset;
    if (joins_previous) {
      std::prev(next)->end = joins_next ? next->end : range.end;
      if (joins_next) ranges.erase(next);
    } else if (joins_next) {
      next->offset = range.offset;
    } else {
      ranges.insert(next, range);
    }
  }

  // Adds `range` to `ranges`, which stay disjoint. `range` may overlap any of them.
  static void Cover(Range range, std::vector<Range>& ranges) {
    auto first = std::upper_bound(ranges.begin(), ranges.end(), range, Below);
    if (first != ranges.begin() && std::prev(first)->end >= range.offset) --first;
    auto last = first;
    for (; last != ranges.end() && last->offset <= range.end; ++last) {
      range = {std::min(range.offset, last->offset), std::max(range.end, last->end)};
    }
    if (first == last) {
      ranges.insert(first, range);
    } else {
      *first = range;
      ranges.erase(std::next(first), last);
    }
  }

  const std::vector<BufferInstance>& buffers_;
  std::vector<Bytes> offsets_;
  std::vector<Chunk> chunks_;
  std::vector<Range> neighbours_, live_, started_, merged_;
  int64_t looks_ = 0;
};

// True if the forward pass writes or receives the buffer, and a B, W or R action uses it last.
bool KeptForBackward(const Program& program, const BufferInstance& buffer) {
  const ActionKind first = program[static_cast<size_t>(buffer.first)].kind;
  const ActionKind last = program[static_cast<size_t>(buffer.last)].kind;
  return (first == ActionKind::kForward || first == ActionKind::kRecvForwardStart) &&
         (last == ActionKind::kBackward || last == ActionKind::kWeight || last == ActionKind::kRecompute);
}

// True if a B or R action writes the buffer and a W action uses it last. If weight gradients run in slots of their own, such a
// buffer lives long.
bool KeptForWeights(const Program& program, const BufferInstance& buffer) {
  const ActionKind first = program[static_cast<size_t>(buffer.first)].kind;
  const ActionKind last = program[static_cast<size_t>(buffer.last)].kind;
  return (first == ActionKind::kBackward || first == ActionKind::kRecompute) && last == ActionKind::kWeight;
}

// True if weight gradients run in slots of their own: then some weight gradient follows a pass of another microbatch.
bool SplitsWeight(const Program& program) {
  int32_t microbatch = kNoMicrobatch;
  for (const Action& action : program) {
    const bool weight = action.kind == ActionKind::kWeight;
    if (weight && action.microbatch != microbatch) return true;
    if (weight || action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward) {
      microbatch = action.microbatch;
    }
  }
  return false;
}

// Places the buffers of `kept`, which are in the order of time. Each buffer gets a free place of exactly its size, or a new
// place at the end. Returns the end of the highest place.
Bytes PlaceInSlots(const std::vector<BufferInstance>& buffers, const std::vector<int32_t>& kept, std::vector<Bytes>& offsets) {
  using Taken = std::pair<int32_t, int32_t>;  // the buffer's last action, and the buffer
  std::priority_queue<Taken, std::vector<Taken>, std::greater<>> taken;
  std::map<Bytes, std::vector<Bytes>> free;  // for each size, the offsets of free places
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

// Groups of buffer instances. The instances of a group have the same tensor and size, and never live at the same time. They
// share one offset.
class BufferGroups {
 public:
  // `members` are indices into `buffers`, in the order of time.
  BufferGroups(const std::vector<BufferInstance>& buffers, const std::vector<int32_t>& members, size_t actions)
      : buffers_(buffers), members_(members) {
    FindGroups();
    FindMeetings(actions);
  }

  // Returns the end of the highest group.
  Bytes Place() {
    std::vector<int32_t> order(bytes_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [this](int32_t a, int32_t b) { return BytesOf(a) > BytesOf(b); });
    std::vector<int32_t> placed;  // groups in the order of their offsets
    Bytes top;
    offsets_.resize(bytes_.size());
    for (const int32_t group : order) {
      const Bytes at = SmallestGap(group, placed);
      offsets_[static_cast<size_t>(group)] = at;
      placed.insert(std::upper_bound(placed.begin(), placed.end(), at,
                                     [this](Bytes offset, int32_t other) { return offset < OffsetOf(other); }),
                    group);
      top = std::max(top, at + BytesOf(group));
    }
    return top;
  }

  // Offset of members[i].
  Bytes OffsetOfMember(size_t i) const { return OffsetOf(group_of_[i]); }

 private:
  using Word = uint64_t;
  static constexpr size_t kWordBits = 64;

  Bytes BytesOf(int32_t group) const { return bytes_[static_cast<size_t>(group)]; }
  Bytes OffsetOf(int32_t group) const { return offsets_[static_cast<size_t>(group)]; }
  static Word BitOf(size_t group) { return Word{1} << (group % kWordBits); }
  bool Meet(size_t a, size_t b) const { return (meets_[a * words_ + b / kWordBits] & BitOf(b)) != 0; }

  void FindGroups() {
    struct Open {
      int32_t group, last;  // `last`: the last action of the group's last member
    };
    std::array<std::vector<Open>, kTensorCount> open;
    for (const int32_t member : members_) {
      const BufferInstance& buffer = buffers_[static_cast<size_t>(member)];
      std::vector<Open>& of_tensor = open[static_cast<size_t>(buffer.key.tensor)];
      auto group = std::find_if(of_tensor.begin(), of_tensor.end(), [&](const Open& other) {
        return other.last < buffer.first && BytesOf(other.group) == buffer.bytes;
      });
      if (group == of_tensor.end()) {
        group = of_tensor.insert(group, {static_cast<int32_t>(bytes_.size()), 0});
        bytes_.push_back(buffer.bytes);
      }
      group->last = buffer.last;
      group_of_.push_back(group->group);
    }
    words_ = (bytes_.size() + kWordBits - 1) / kWordBits;
  }

  void FindMeetings(size_t actions) {
    const size_t groups = bytes_.size();
    meets_.resize(groups * words_);
    std::vector<Word> live(words_);
    // For each action, a linked list of the members that end at this action.
    std::vector<int32_t> last_of(actions, -1), before(members_.size(), -1);
    int32_t now = 0;
    for (size_t i = 0; i < members_.size(); ++i) {
      const BufferInstance& buffer = buffers_[static_cast<size_t>(members_[i])];
      for (; now < buffer.first; ++now) {
        for (int32_t done = last_of[static_cast<size_t>(now)]; done >= 0; done = before[static_cast<size_t>(done)]) {
          const auto group = static_cast<size_t>(group_of_[static_cast<size_t>(done)]);
          live[group / kWordBits] &= ~BitOf(group);
        }
      }
      const auto group = static_cast<size_t>(group_of_[i]);
      for (size_t word = 0; word < words_; ++word) meets_[group * words_ + word] |= live[word];
      live[group / kWordBits] |= BitOf(group);
      before[i] = std::exchange(last_of[static_cast<size_t>(buffer.last)], static_cast<int32_t>(i));
    }
    for (size_t a = 0; a < groups; ++a) {
      for (size_t b = 0; b < groups; ++b) {
        if (Meet(a, b)) meets_[b * words_ + a / kWordBits] |= BitOf(a);
      }
    }
  }

  // Returns the offset of the smallest gap that fits the group; among equal gaps, of the lowest. If no gap fits, returns the
  // end of the groups that the group meets.
  Bytes SmallestGap(int32_t group, const std::vector<int32_t>& placed) const {
    Bytes best(-1), best_gap(std::numeric_limits<int64_t>::max()), end;
    for (const int32_t other : placed) {
      if (!Meet(static_cast<size_t>(group), static_cast<size_t>(other))) continue;
      const Bytes gap = OffsetOf(other) - end;
      if (gap >= BytesOf(group) && gap < best_gap) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, OffsetOf(other) + BytesOf(other));
    }
    return best < Bytes(0) ? end : best;
  }

  const std::vector<BufferInstance>& buffers_;
  const std::vector<int32_t>& members_;
  std::vector<int32_t> group_of_;       // the index is the member
  std::vector<Bytes> bytes_, offsets_;  // the index is the group
  size_t words_ = 0;
  std::vector<Word> meets_;  // for each group, the set of groups that live at the same time at some moment
};

void TryTwoRegions(const Program& program, MemoryPlan& plan) {
  const bool splits_weight = SplitsWeight(program);
  std::vector<int32_t> kept, rest;
  for (int32_t i = 0; i < static_cast<int32_t>(plan.buffers.size()); ++i) {
    const BufferInstance& buffer = plan.buffers[static_cast<size_t>(i)];
    const bool keeps = KeptForBackward(program, buffer) || (splits_weight && KeptForWeights(program, buffer));
    (keeps ? kept : rest).push_back(i);
  }
  std::vector<Bytes> offsets(plan.buffers.size());
  const Bytes base = PlaceInSlots(plan.buffers, kept, offsets);
  BufferGroups groups(plan.buffers, rest, program.size());
  plan.arena = base + groups.Place();
  for (size_t i = 0; i < rest.size(); ++i) offsets[static_cast<size_t>(rest[i])] = base + groups.OffsetOfMember(i);
  for (size_t i = 0; i < plan.buffers.size(); ++i) plan.buffers[i].offset = offsets[i];
}

// Returns the order in which buffers are placed in the first attempt, as indices into plan.buffers: first the buffers that are
// kept for the backward, in the order of time, then the others from large to small.
std::vector<int32_t> KeptFirstOrder(const Program& program, const MemoryPlan& plan) {
  std::vector<int32_t> order(plan.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  const auto rest = std::stable_partition(
      order.begin(), order.end(), [&](int32_t i) { return KeptForBackward(program, plan.buffers[static_cast<size_t>(i)]); });
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

// Places all buffers in the given order. Repeats this with changed orders until the arena is at most `enough` bytes or the
// limit of work is reached. Changes `plan` only if the result is better. `looks` counts visits of neighbours (see kMaxLooks).
void TryOrder(const Program& program, std::vector<int32_t> order, Bytes enough, MemoryPlan& plan, int64_t& looks) {
  for (int round = 0; round < kRoundsPerOrder && plan.arena > enough && looks < kMaxLooks; ++round) {
    if (looks >= kManyLooks && plan.arena <= plan.live_peak + plan.live_peak / kLittle) return;
    PlacedBuffers placed(plan.buffers, program.size());
    Bytes arena;
    for (const int32_t index : order) arena = std::max(arena, placed.Place(index));
    looks += placed.looks();
    const auto size = [&](int32_t i) { return plan.buffers[static_cast<size_t>(i)].bytes; };
    std::stable_partition(order.begin(), order.end(), [&](int32_t i) { return placed.offset(i) + size(i) > plan.live_peak; });
    if (arena >= plan.arena) continue;
    plan.arena = arena;
    for (size_t i = 0; i < plan.buffers.size(); ++i) plan.buffers[i].offset = placed.offset(static_cast<int32_t>(i));
  }
}

}  // namespace

void LayOut(const Program& program, Bytes enough, MemoryPlan& plan) {
  if (plan.buffers.empty()) return;
  TryTwoRegions(program, plan);
  if (plan.arena <= std::max(enough, plan.live_peak + plan.live_peak / kLittle)) return;
  int64_t looks = 0;
  enough = std::max(enough, plan.live_peak);
  TryOrder(program, KeptFirstOrder(program, plan), enough, plan, looks);
  TryOrder(program, LargestFirstOrder(plan), enough, plan, looks);
  LYNX_CHECK(plan.arena >= plan.live_peak);
}

}  // namespace lynx
