// The learning rate of a step: a linear warm-up, then constant, or linear or cosine decay to a minimum. Pure.
#ifndef LYNX_WORKER_ENGINE_LR_SCHEDULE_H_
#define LYNX_WORKER_ENGINE_LR_SCHEDULE_H_

#include <cstdint>

#include "planner/problem/job_spec.h"

namespace lynx {

// Of step 0 <= step < train.steps. Warm-up: lr * (step + 1) / warmup_steps, so that its last step has lr. After it
// the decays go from lr to min_lr, which the last step of the run has exactly.
double LearningRate(const TrainSpec& train, int64_t step);

}  // namespace lynx

#endif  // LYNX_WORKER_ENGINE_LR_SCHEDULE_H_
