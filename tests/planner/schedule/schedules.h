// Helps the tests of schedules. Makes generated, parsed and random schedules, and has a reference that runs slots with plain
// sets and maps. The reference uses no code of planner/schedule_order and planner/schedule_timeline.
#ifndef LYNX_TESTS_PLANNER_SCHEDULE_SCHEDULES_H_
#define LYNX_TESTS_PLANNER_SCHEDULE_SCHEDULES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "planner/schedule/schedule.h"
#include "planner/schedule/schedule_generate.h"
#include "planner/schedule/schedule_order.h"
#include "planner/schedule/schedule_timeline.h"

namespace lynx {

inline constexpr ScheduleKind kAllKinds[] = {ScheduleKind::kGpipe,       ScheduleKind::kOneForwardOneBackward,
                                             ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble,
                                             ScheduleKind::kZeroBubbleV, ScheduleKind::kChimera};

// Returns a generated schedule. If the schedule cannot be made, the test fails, and the result has no slots.
inline Schedule Generated(ScheduleKind kind, int32_t ranks, int32_t chunks, int32_t microbatches) {
  absl::StatusOr<Schedule> schedule = GenerateSchedule(kind, ranks, chunks, microbatches);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return schedule.ok() ? *std::move(schedule) : Schedule{};
}

inline Schedule Read(const std::string& text) {
  absl::StatusOr<Schedule> schedule = ParseSchedule(text);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return schedule.ok() ? *std::move(schedule) : Schedule{};
}

inline SlotOrder Ordered(const Schedule& schedule) {
  absl::StatusOr<SlotOrder> order = OrderSlots(schedule);
  EXPECT_TRUE(order.ok()) << order.status() << "\n" << ScheduleText(schedule);
  return order.ok() ? *std::move(order) : SlotOrder{};
}

inline Schedule RandomSchedule(std::mt19937_64& rng) {
  const auto at_most = [&](int32_t n) { return static_cast<int32_t>(rng() % static_cast<uint64_t>(n)) + 1; };
  const ScheduleKind kind = kAllKinds[rng() % std::size(kAllKinds)];
  const ScheduleKindInfo& info = InfoOf(kind);
  const int32_t unit = kind == ScheduleKind::kChimera ? 2 : 1;
  const int32_t chunks = kind == ScheduleKind::kInterleaved ? 1 + at_most(4) : info.min_chunks;
  return Generated(kind, at_most(8) * unit, chunks, at_most(20) * unit);
}

inline std::vector<StagePassTimes> RandomTimes(std::mt19937_64& rng, const PipelineShape& shape) {
  const auto time = [&] { return Nanos(static_cast<int64_t>(rng() % 50)); };
  std::vector<StagePassTimes> times;
  for (int32_t stage = 0; stage < shape.stages(); ++stage) times.push_back({time(), time(), time(), time()});
  return times;
}

// Returns times that are the same for all stages. Transfers take no time.
inline std::vector<StagePassTimes> EqualTimes(const PipelineShape& shape, int64_t forward, int64_t backward, int64_t weight) {
  return std::vector<StagePassTimes>(static_cast<size_t>(shape.stages()),
                                     {Nanos(forward), Nanos(backward), Nanos(weight), Nanos(0)});
}

inline int64_t StepTime(const Schedule& schedule, const std::vector<StagePassTimes>& times) {
  TimelineScratch scratch;
  return StepTime(Ordered(schedule), times, scratch).value;
}

using SlotKey = std::tuple<Pass, int32_t, int32_t>;  // pass, stage, microbatch
inline SlotKey KeyOf(const Slot& slot) { return {slot.pass, slot.stage, slot.microbatch}; }

// Runs the slots: the ranks take turns, and each runs one slot per turn. Returns the begin and the end of each slot. nullopt:
// slots are missing, not needed, in the wrong place, or wait for each other in a circle.
inline std::optional<std::map<SlotKey, std::pair<Nanos, Nanos>>> RunReference(const Schedule& schedule,
                                                                              const std::vector<StagePassTimes>& times) {
  const PipelineShape& shape = schedule.shape;
  std::map<SlotKey, std::pair<Nanos, Nanos>> ran;
  std::map<int32_t, std::vector<int32_t>> stages_of_microbatch;  // counted by forward slots
  std::vector<size_t> next(schedule.ranks.size(), 0);
  std::vector<Nanos> free(schedule.ranks.size());
  size_t slots = 0;
  for (const auto& rank : schedule.ranks) slots += rank.size();
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      if (next[rank] == schedule.ranks[rank].size()) continue;
      const Slot& slot = schedule.ranks[rank][next[rank]];
      if (slot.stage < 0 || slot.stage >= shape.stages() || slot.microbatch < 0 || slot.microbatch >= schedule.microbatches ||
          shape.RankOf(slot.stage) != static_cast<int32_t>(rank)) {
        return std::nullopt;
      }
      std::vector<std::pair<SlotKey, Nanos>> needs;  // a slot, and how long its result takes to arrive
      const auto neighbour = [&](int32_t stage, int32_t sender) {
        if (stage == kNoStage) return;
        const bool local = shape.RankOf(stage) == static_cast<int32_t>(rank);
        const Nanos transfer = local ? Nanos(0) : times[static_cast<size_t>(sender)].transfer;
        needs.push_back({{slot.pass, stage, slot.microbatch}, transfer});
      };
      const StagePassTimes& stage = times[static_cast<size_t>(slot.stage)];
      Nanos duration = stage.forward;
      if (slot.pass == Pass::kForward) {
        neighbour(shape.Previous(slot.stage), shape.Previous(slot.stage));
        stages_of_microbatch[slot.microbatch].push_back(slot.stage);
      } else if (slot.pass == Pass::kBackward) {
        neighbour(shape.Next(slot.stage), slot.stage);
        needs.push_back({{Pass::kForward, slot.stage, slot.microbatch}, Nanos(0)});
        duration = schedule.splits_weight ? stage.backward : stage.backward + stage.weight;
      } else {
        if (!schedule.splits_weight) return std::nullopt;
        needs.push_back({{Pass::kBackward, slot.stage, slot.microbatch}, Nanos(0)});
        duration = stage.weight;
      }
      Nanos begin = free[rank];
      bool ready = true;
      for (const auto& [key, delay] : needs) {
        const auto found = ran.find(key);
        ready = ready && found != ran.end();
        if (found != ran.end()) begin = std::max(begin, found->second.second + delay);
      }
      if (!ready) {
        if (slot.pass == Pass::kForward) stages_of_microbatch[slot.microbatch].pop_back();
        continue;
      }
      if (!ran.insert({KeyOf(slot), {begin, begin + duration}}).second) return std::nullopt;
      free[rank] = begin + duration;
      ++next[rank];
      progress = true;
    }
  }
  const size_t passes = schedule.splits_weight ? 3 : 2;
  if (ran.size() != slots) return std::nullopt;
  if (slots != passes * static_cast<size_t>(shape.pieces()) * static_cast<size_t>(schedule.microbatches)) {
    return std::nullopt;
  }
  for (const auto& [microbatch, stages] : stages_of_microbatch) {
    for (const int32_t stage : stages) {
      if (shape.PipeOf(stage) != shape.PipeOf(stages.front())) return std::nullopt;
    }
  }
  return ran;
}

}  // namespace lynx

#endif  // LYNX_TESTS_PLANNER_SCHEDULE_SCHEDULES_H_
