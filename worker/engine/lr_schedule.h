// The learning rate of a step: a linear warm-up, then constant, or a linear or cosine decay to a minimum. Pure.
#ifndef LYNX_WORKER_ENGINE_LR_SCHEDULE_H_
#define LYNX_WORKER_ENGINE_LR_SCHEDULE_H_

#include <cstdint>

#include "planner/problem/job_spec.h"

namespace lynx::worker {

// Needs 0 <= step < train.steps. During warm-up it is lr * (step + 1) / warmup_steps, so the last warm-up step has lr. After
// that a decay goes from lr to min_lr, which is reached exactly in the last step of the run.
double LearningRate(const TrainSpec& train, int64_t step);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_LR_SCHEDULE_H_
