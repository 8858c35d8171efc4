#include "planner/search/faster_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/search/make_plan.h"

namespace lynx {
namespace {

// A job on one device that computes bfloat16 sixteen times as fast as float32.
PlanRequest OnTensorCores() {
  PlanRequest request;
  request.spec.name = "job";
  request.spec.model = {.layers = 4, .hidden = 1024, .heads = 16, .seq = 1024, .vocab = 1024};
  request.spec.data.path = "corpus";
  request.spec.train.steps = 1;
  request.spec.train.global_batch = 8;
  request.spec.train.micro_batch = 2;
  Normalize(request.spec);
  HardwareProfile profile = StatedCpuProfile();
  profile.flops_per_second = 60'000'000'000'000;
  profile.bfloat16_flops_per_second = 16 * profile.flops_per_second;
  profile.memory_bytes_per_second = 2'000'000'000'000;
  request.cluster = UniformCluster(1, 1, profile);
  return request;
}

Plan PlanOf(const PlanRequest& request) { return std::get<Plan>(MakePlan(request).value()); }

TEST(FasterModel, NamesTheFieldsAndWhatTheyGain) {
  const PlanRequest request = OnTensorCores();
  const Plan plan = PlanOf(request);
  const std::optional<FasterModel> faster = FindFasterModel(request, plan);
  ASSERT_TRUE(faster.has_value());
  EXPECT_EQ(faster->changes, "model.dtype: bfloat16, model.attention: fused");
  PlanRequest changed = request;
  changed.spec.model.dtype = DataType::kBfloat16;
  changed.spec.model.attention = AttentionKernel::kFused;
  EXPECT_EQ(faster->step, PlanOf(changed).step);
  EXPECT_LT(faster->step.value, plan.step.value / 3);
  EXPECT_THAT(FasterModelText(faster, plan),
              testing::MatchesRegex("note: with model.dtype: bfloat16, model.attention: fused a step would take .*s, "
                                    "[0-9.]+ times as fast\n"));
  EXPECT_FALSE(FindFasterModel(changed, PlanOf(changed)).has_value()) << "it is in bfloat16 already";
}

TEST(FasterModel, SaysWithoutAPlanHowMuchFasterTheDevicesAre) {
  const PlanRequest request = OnTensorCores();
  ModelSpec model = request.spec.model;
  EXPECT_EQ(SlowTypeText(model, request.cluster),
            "computes float32, although the devices compute bfloat16 16.0 times as fast: set model.dtype: bfloat16 and "
            "model.attention: fused");
  model.attention = AttentionKernel::kFused;
  EXPECT_THAT(SlowTypeText(model, request.cluster), testing::EndsWith("set model.dtype: bfloat16"));
  model.dtype = DataType::kBfloat16;
  EXPECT_EQ(SlowTypeText(model, request.cluster), "");
}

TEST(FasterModel, NamesOnlyWhatTheJobLacks) {
  PlanRequest request = OnTensorCores();
  request.spec.model.attention = AttentionKernel::kFused;
  EXPECT_EQ(FindFasterModel(request, PlanOf(request))->changes, "model.dtype: bfloat16");
}

// On CPUs float32 is the right default.
TEST(FasterModel, SaysNothingWithoutTensorCores) {
  PlanRequest request = OnTensorCores();
  HardwareProfile& profile = request.cluster.groups[0].profile;
  profile.bfloat16_flops_per_second = 3 * profile.flops_per_second;
  const Plan plan = PlanOf(request);
  EXPECT_FALSE(FindFasterModel(request, plan).has_value());
  EXPECT_EQ(SlowTypeText(request.spec.model, request.cluster), "");
  EXPECT_EQ(FasterModelText(std::nullopt, plan), "");
}

TEST(FasterModel, SaysNothingIfLittleIsGained) {
  const PlanRequest request = OnTensorCores();
  Plan plan = PlanOf(request);
  plan.step = Nanos(FindFasterModel(request, plan)->step.value * 21 / 20);
  EXPECT_FALSE(FindFasterModel(request, plan).has_value());
}

}  // namespace
}  // namespace lynx
