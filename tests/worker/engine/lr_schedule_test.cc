#include "worker/engine/lr_schedule.h"

#include <gtest/gtest.h>

namespace lynx::worker {
namespace {

TrainSpec Train(LrSchedule schedule) {
  TrainSpec train;
  train.steps = 15;
  train.warmup_steps = 4;
  train.schedule = schedule;
  train.optimizer.lr = 8;
  train.min_lr = 2;
  return train;
}

TEST(LrSchedule, WarmsUpLinearlyAndReachesTheFullRate) {
  for (LrSchedule schedule : {LrSchedule::kConstant, LrSchedule::kLinear, LrSchedule::kCosine}) {
    const TrainSpec train = Train(schedule);
    EXPECT_DOUBLE_EQ(LearningRate(train, 0), 2);
    EXPECT_DOUBLE_EQ(LearningRate(train, 1), 4);
    EXPECT_DOUBLE_EQ(LearningRate(train, 3), 8);
    EXPECT_DOUBLE_EQ(LearningRate(train, 4), 8);
  }
}

TEST(LrSchedule, ConstantStays) { EXPECT_DOUBLE_EQ(LearningRate(Train(LrSchedule::kConstant), 14), 8); }

TEST(LrSchedule, LinearEndsAtTheMinimumInTheLastStep) {
  const TrainSpec train = Train(LrSchedule::kLinear);
  EXPECT_DOUBLE_EQ(LearningRate(train, 9), 5);  // half way between steps 4 and 14
  EXPECT_DOUBLE_EQ(LearningRate(train, 14), 2);
}

TEST(LrSchedule, CosineEndsAtTheMinimumInTheLastStep) {
  const TrainSpec train = Train(LrSchedule::kCosine);
  EXPECT_DOUBLE_EQ(LearningRate(train, 9), 5);
  EXPECT_GT(LearningRate(train, 6), 8 - 6 * 0.2);  // falls more slowly than a line at first
  EXPECT_DOUBLE_EQ(LearningRate(train, 14), 2);
}

TEST(LrSchedule, OneStepWithoutWarmUpHasTheFullRate) {
  TrainSpec train = Train(LrSchedule::kCosine);
  train.steps = 1;
  train.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(LearningRate(train, 0), 8);
}

TEST(LrSchedule, WarmUpLongerThanTheRunNeverDecays) {
  TrainSpec train = Train(LrSchedule::kLinear);
  train.warmup_steps = 30;
  EXPECT_DOUBLE_EQ(LearningRate(train, 14), 4);
}

}  // namespace
}  // namespace lynx::worker
