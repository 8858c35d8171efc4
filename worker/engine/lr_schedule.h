// Computes the learning rate of a step. It rises linearly during the warm-up. Then it is constant, or falls linearly or as a
// cosine to a minimum. Pure.
#ifndef LYNX_WORKER_ENGINE_LR_SCHEDULE_H_
#define LYNX_WORKER_ENGINE_LR_SCHEDULE_H_

#include <cstdint>

#include "planner/problem/job_spec.h"

namespace lynx::worker {

// Needs 0 <= step < train.steps. During the warm-up the rate is lr * (step + 1) / warmup_steps, so it is lr in the last warm-up
// step. After that a decay goes from lr to min_lr, and reaches min_lr exactly in the last step of the run. If the warm-up ends
// only one step before the end, the last step has the rate lr.
double LearningRate(const TrainSpec& train, int64_t step);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_LR_SCHEDULE_H_
