// The schedules of the literature, generated. docs/schedules.md draws them. Pure; thread-safe.
#ifndef LYNX_PLANNER_SCHEDULE_SCHEDULE_GENERATE_H_
#define LYNX_PLANNER_SCHEDULE_SCHEDULE_GENERATE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// Generates the schedule of a kind on p = `ranks` ranks, with v = `chunks` virtual stages on each rank and M = `microbatches`.
// Takes time linear in the number of slots. In all schedules each stage runs the backwards of a pipe's microbatches in
// ascending order, so its gradients are summed in the same order with every schedule. Chimera sums the gradients of its two
// pipes separately.
//
//   gpipe          all forwards, then all backwards. Huang et al. 2019.
//   1f1b           min(p - r, M) forwards on rank r, then one backward and one forward in turn. PipeDream-flush,
//                  Narayanan et al. 2021.
//   interleaved    1F1B over v >= 2 chunks: microbatches in groups of p, each group through all chunks;
//                  2(p-r-1) + (v-1)p forwards first. Narayanan et al. 2021, as in Megatron-LM. Megatron-LM wants M to
//                  be a multiple of p; here any other M is the schedule of the next multiple without the
//                  microbatches that do not exist.
//   zero-bubble    ZB-H1: 1F1B with W split off and delayed: a rank runs a W before the next forward if p microbatches have
//                  begun and lack their W. Qi et al. 2023.
//   zero-bubble-v  ZB-V: two chunks a rank placed as a V. Qi et al. 2023. For M < 2p - 1: the schedule of 2p - 1
//                  without the microbatches that do not exist.
//   chimera        two copies of the model, in opposite directions; units of p microbatches, half of them down and
//                  half up, concatenated. Needs even p and even M. Li and Hoefler 2021.
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
