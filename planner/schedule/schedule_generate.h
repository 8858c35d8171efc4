// Generates the schedules of the literature. docs/schedules.md draws them. Pure; thread-safe.
#ifndef LYNX_PLANNER_SCHEDULE_SCHEDULE_GENERATE_H_
#define LYNX_PLANNER_SCHEDULE_SCHEDULE_GENERATE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// Generates the schedule of a kind on p = `ranks` ranks, with v = `chunks` virtual stages on each rank and M = `microbatches`.
// Takes time linear in the number of slots. In all schedules, each stage runs the backwards of a pipe's microbatches in
// ascending order, so every schedule sums a stage's gradients in the same order. Chimera sums the gradients of its two pipes
// separately.
//
//   gpipe          all forwards, then all backwards. Huang et al. 2019.
//   1f1b           rank r first runs min(p - r, M) forwards, then one backward and one forward in turn. PipeDream-flush,
//                  Narayanan et al. 2021.
//   interleaved    1F1B over v >= 2 chunks: microbatches come in groups of p, and each group runs through all chunks. A rank
//                  first runs 2(p-r-1) + (v-1)p forwards. Narayanan et al. 2021, as in Megatron-LM. Megatron-LM requires
//                  that M is a multiple of p. Here, any other M has the schedule of the next multiple, without the
//                  microbatches that do not exist.
//   zero-bubble    ZB-H1: 1F1B in which W is split off and delayed. A rank runs a W before the next forward if p
//                  microbatches have begun and their W has not run. Qi et al. 2023.
//   zero-bubble-v  ZB-V: each rank has two chunks, placed as `v`. Qi et al. 2023. M < 2p - 1 has the schedule of 2p - 1
//                  microbatches, without those that do not exist.
//   chimera        two copies of the model, in opposite directions. The schedule is a sequence of units of p microbatches,
//                  half of them down and half up. p and M must be even. Li and Hoefler 2021.
//
// Returns InvalidArgument in the same cases as CheckScheduleShape.
absl::StatusOr<Schedule> GenerateSchedule(ScheduleKind kind, int32_t ranks, int32_t chunks, int32_t microbatches);

// The schedule in which each microbatch of `schedule` is a group of `group` microbatches. The last group has fewer microbatches
// if `microbatches` is no multiple of `group`. `schedule` must have a microbatch for each group.
Schedule GroupedSchedule(const Schedule& schedule, int32_t group, int32_t microbatches);

// The slots of one rank of the schedule, without generating the other ranks. `schedule` gives kind, shape, microbatches
// and whether weights are split, which CheckScheduleShape must accept; its slots are not used.
std::vector<Slot> GenerateRank(const Schedule& schedule, int32_t rank);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_SCHEDULE_GENERATE_H_
