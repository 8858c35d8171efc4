#include "worker/engine/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/check.h"

namespace lynx::worker {

double LearningRate(const TrainSpec& train, int64_t step) {
  const double lr = train.optimizer.lr;
  if (step < train.warmup_steps) {
    return lr * static_cast<double>(step + 1) / static_cast<double>(train.warmup_steps);
  }
  const int64_t decaying_steps = std::max<int64_t>(1, train.steps - 1 - train.warmup_steps);
  const double done = std::min(1.0, static_cast<double>(step - train.warmup_steps) / static_cast<double>(decaying_steps));
  switch (train.schedule) {
    case LrSchedule::kConstant: return lr;
    case LrSchedule::kLinear: return lr + (train.min_lr - lr) * done;
    case LrSchedule::kCosine: return train.min_lr + (lr - train.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * done));
  }
  LYNX_CHECK(!"unknown schedule");
  return lr;
}

}  // namespace lynx::worker
