// Tests programs that send tensors to the host and fetch them back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <variant>

#include "common/digest.h"
#include "planner/cost/cost_model.h"
#include "planner/cost/simulate.h"
#include "planner/frameworks/step_estimate.h"
#include "planner/plan/plan.h"
#include "planner/program/memory_model.h"
#include "planner/program/validate.h"
#include "planner/report/plan_table.h"
#include "planner/search/make_plan.h"
#include "tests/planner/lower/golden_programs.h"
#include "tests/planner/lower/stage_programs.h"
#include "tests/planner/plan/plan_fixtures.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using enum ActionKind;

Pipeline Offloaded(const ModelSpec& model, const ParallelLayout& layout, int32_t microbatches, int32_t permille,
                   RecomputeMode mode = RecomputeMode::kNone) {
  const LayerShape shape = ShapeOf(model, layout, 2);
  return LoweredWith(ContextsOf(model, layout, microbatches), [&](const StageSlice& slice) {
    return NamedPolicy(shape, mode, {.offload_permille = permille}, slice.layers());
  });
}

HardwareProfile ProfileWithHost() {
  HardwareProfile profile = StatedCpuProfile();
  profile.host = {Nanos(1000), 1'000'000'000, 1'000'000'000, 1'500'000'000, 1100};
  return profile;
}

size_t CountOf(const Program& program, ActionKind kind) {
  return static_cast<size_t>(
      std::count_if(program.begin(), program.end(), [&](const Action& action) { return action.kind == kind; }));
}

TEST(OffloadGolden, TwoStages) {
  ExpectGoldenPrograms("programs/program_offload.txt", Offloaded(SmallModel(6), {.pp = 2}, 3, 1000));
}

TEST(OffloadGolden, WithRecomputation) {
  ExpectGoldenPrograms("programs/program_offload_balanced.txt",
                       Offloaded(SmallModel(3), {.tp = 2}, 2, 500, RecomputeMode::kBalanced));
}

// On the last stage, each forward pass is followed at once by its backward pass. A copy of the top layers' tensors to the host
// would not have ended when they are needed again. So these tensors stay on the device.
TEST(Offload, WhatIsNeededAtOnceStays) {
  const Pipeline p = Offloaded(SmallModel(16), {.pp = 2}, 4, 1000);
  for (size_t s = 0; s < 2; ++s) {
    std::set<int32_t> gone;
    for (const Action& action : p.programs[s]) {
      if (action.kind == kOffloadStart) gone.insert(action.layer);
    }
    const StageSlice& slice = p.contexts[s].only_slice();
    EXPECT_TRUE(gone.contains(slice.first_layer)) << s;
    EXPECT_EQ(gone.contains(slice.top_layer()), s == 0) << s;  // the forward passes of stage 0 are one ahead
    EXPECT_EQ(CountOf(p.programs[s], kOffloadStart), CountOf(p.programs[s], kReloadWait));
  }
  const Pipeline one = Offloaded(SmallModel(1), {}, 2, 1000);
  EXPECT_EQ(CountOf(one.programs[0], kOffloadStart), 0u);
}

// A tensor has no buffer on the device from the end of its copy to the host until its copy back begins.
TEST(Offload, FreesTheDeviceAndFillsTheHost) {
  const Pipeline none = Offloaded(SmallModel(8), {.pp = 4}, 8, 0), all = Offloaded(SmallModel(8), {.pp = 4}, 8, 1000);
  const absl::StatusOr<MemoryPlan> stored = PlanMemory(none.programs[0], none.contexts[0]);
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(all.programs[0], all.contexts[0]);
  ASSERT_TRUE(stored.ok() && plan.ok()) << plan.status();
  EXPECT_EQ(stored->host_peak, Bytes(0));
  EXPECT_LT(plan->live_peak, stored->live_peak);
  const Program& program = all.programs[0];
  for (size_t i = 0; i < program.size(); ++i) {
    if (program[i].kind != kOffloadWait) continue;
    Action start = program[i];
    start.kind = kReloadStart;
    const auto back = std::find(program.begin() + static_cast<ptrdiff_t>(i), program.end(), start) - program.begin();
    for (const BufferInstance& buffer : plan->buffers) {
      if (buffer.key.layer != start.layer || buffer.key.microbatch != start.microbatch ||
          !Contains(start.tensors, buffer.key.tensor)) {
        continue;
      }
      EXPECT_TRUE(buffer.last <= static_cast<int32_t>(i) || buffer.first >= back) << BufferKeyText(buffer.key);
    }
  }
  // Computes the largest number of bytes that the host holds at once. It holds all tensors that have left the device and have
  // not returned yet.
  Bytes there, most, of_layer;
  for (const Tensor tensor : all.contexts[0].graph().recomputable()) {
    of_layer += StoredBytes(tensor, all.contexts[0].shape());
  }
  for (const Action& action : program) {
    if (action.kind == kOffloadStart) most = std::max(most, there += of_layer);
    if (action.kind == kReloadWait) there -= of_layer;
  }
  EXPECT_EQ(plan->host_peak, most);
  EXPECT_EQ(there, Bytes(0));
}

TEST(Offload, ShareIsKeptAndNearlyUsed) {
  for (const ModelSpec& model : {SmallModel(8), [] {
                                   ModelSpec m = SmallModel(8);
                                   m.family = ModelFamily::kLlama;
                                   m.dropout = 0;
                                   return m;
                                 }()}) {
    const LayerShape shape = ShapeOf(model, {.tp = 2, .sequence_parallel = true}, 2);
    const std::vector<Tensor>& tensors = LayerGraph::Of(shape).recomputable();
    Bytes largest;
    for (const Tensor tensor : tensors) largest = std::max(largest, StoredBytes(tensor, shape));
    for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kBalanced}) {
      for (const int32_t permille : {1, 100, 333, 500, 900, 1000}) {
        const StagePolicy policy = NamedPolicy(shape, mode, {.offload_permille = permille}, 8);
        const StagePolicy plain = NamedPolicy(shape, mode, {}, 8);
        Bytes stored, out;
        for (size_t l = 0; l < 8; ++l) {
          for (size_t i = 0; i < tensors.size(); ++i) {
            const Bytes bytes = StoredBytes(tensors[i], shape);
            if (plain.layers[l][i] != Placement::kStore) {
              EXPECT_EQ(policy.layers[l][i], plain.layers[l][i]);
              continue;
            }
            stored += bytes;
            if (policy.layers[l][i] == Placement::kOffload) out += bytes;
          }
        }
        EXPECT_LE(out * 1000, stored * permille);
        EXPECT_GT((out + largest) * 1000, stored * permille);
      }
    }
  }
}

// Makes programs for random mixes of stored, recomputed and offloaded tensors, in any layout.
TEST(OffloadProperty, ProgramsAreValidAndRun) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    Pipeline p = RandomPipeline(rng, /*experts=*/seed % 3 == 0);
    for (size_t s = 0; s < p.policies.size(); ++s) {
      const size_t tensors = p.contexts[s].graph().recomputable().size();
      for (StagePolicy& policy : p.policies[s]) {
        for (LayerPolicy& layer : policy.layers) {
          for (size_t i = 0; i < tensors; ++i) {
            if (Draw(rng, 0, 2) == 0) layer[i] = Placement::kOffload;
          }
        }
      }
    }
    p = Lowered(p.contexts, p.policies);
    const absl::Status valid = ValidatePrograms(p.programs, p.contexts);
    ASSERT_TRUE(valid.ok()) << valid;
    const StageContext& c = p.contexts[0];
    const CostModel costs(ProfileWithHost(), c.model, c.layout, c.micro_batch, 2);
    const absl::StatusOr<Simulation> simulation = Simulate(p.programs, p.contexts, costs);
    ASSERT_TRUE(simulation.ok()) << simulation.status();
    for (size_t s = 0; s < p.programs.size(); ++s) {
      EXPECT_EQ(*ParseProgram(ProgramText(p.programs[s])), p.programs[s]);
      const absl::StatusOr<MemoryPlan> plan = PlanMemory(p.programs[s], p.contexts[s]);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->host_peak.value > 0, CountOf(p.programs[s], kOffloadStart) > 0);
    }
  }
}

std::string ErrorOf(const std::string& find, const std::string& replace) {
  const Pipeline p = Offloaded(SmallModel(8), {.pp = 2}, 2, 100);
  std::string text = "\n" + ProgramText(p.programs[0]);
  for (size_t at = text.find(find); at != std::string::npos; at = std::string::npos) text.replace(at, find.size(), replace);
  const absl::StatusOr<Program> program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status();
  EXPECT_NE(*program, p.programs[0]) << find;
  return std::string(ValidateProgram(*program, p.contexts[0]).message());
}

TEST(Offload, TheValidatorNamesTheCopyAndItsRule) {
  EXPECT_THAT(ErrorOf("\n0LD+0:0(ln1)", ""), HasSubstr("waits for a transfer that has not started"));
  EXPECT_THAT(ErrorOf("\n0LD+0:0(ln1)", "\n0LD+0:0(qkv)"), HasSubstr("qkv[0,0] is not in the host's memory"));
  EXPECT_THAT(ErrorOf("\n0OF+0:0(ln1)", "\n0OF+0:0(x)"), HasSubstr("only what a transformer layer's ops make"));
  EXPECT_THAT(ErrorOf("\n0OF+0:0(ln1)", "\n0OF+0:e(ln1)"), HasSubstr("only what a transformer layer's ops make"));
  EXPECT_THAT(ErrorOf("\n0OF-0:0(ln1)", "\n0OF-0:0(ln1)\n0OF+0:0(ln1)"), HasSubstr("ln1[0,0] goes to the host once"));
  EXPECT_THAT(ErrorOf("\n0LD-0:0(ln1)", ""), HasSubstr("touches ln1[0,0], while 0LD+0:0(ln1) writes it"));
  EXPECT_THAT(ErrorOf("\n0F0:1.attn", "\n0LD+0:0(ln1)\n0F0:1.attn"), HasSubstr("is not in the host's memory"));
  EXPECT_THAT(ErrorOf("\n0OF-0:0(ln1)", "\n0R0:0.attn(ln1)\n0OF-0:0(ln1)"),
              HasSubstr("touches ln1[0,0], while 0OF+0:0(ln1) reads it"));
  EXPECT_THAT(ErrorOf("\n0OF-0:0(ln1)", "\n0OF-0:0(ln1)\n0R0:0.attn(qkv)"),
              HasSubstr("touches ln1[0,0], which is in the host's memory since 0OF+0:0(ln1)"));
  Pipeline p = Offloaded(SmallModel(8), {.pp = 2}, 2, 100);
  std::erase_if(p.programs[0], [](const Action& a) { return a.kind == kReloadStart || a.kind == kReloadWait; });
  EXPECT_THAT(std::string(ValidateProgram(p.programs[0], p.contexts[0]).message()), HasSubstr("in the host's memory since"));
}

// ln1 has 640 bytes. Its copy to the host takes 1280 ns at half a byte per nanosecond, and its copy back takes 640 ns.
class Copies : public ::testing::Test {
 protected:
  StageTimes Run(const std::string& text) {
    HardwareProfile profile = RoundProfile(model_);
    profile.host = {Nanos(0), 500'000'000, 1'000'000'000, both_, slowdown_};
    const CostModel costs(profile, model_, {}, 1, 1);
    absl::StatusOr<Simulation> simulation = Simulate({Parse(text)}, {TinyContext(model_, {}, 2, 0)}, costs);
    EXPECT_TRUE(simulation.ok()) << simulation.status();
    return simulation.ok() ? simulation->stages[0] : StageTimes{};
  }

  const ModelSpec model_ = TinyModel(4);
  int64_t both_ = 1'500'000'000;
  int32_t slowdown_ = 1000;
};

TEST_F(Copies, DirectionsRunSideBySide) {
  const StageTimes times = Run("0OF+0:0(ln1) 0LD+0:1(ln1) 0OF-0:0(ln1) 0LD-0:1(ln1)");
  EXPECT_EQ(times.end, Nanos(1280));
  EXPECT_EQ(times.communication_exposed, Nanos(1280));
}

TEST_F(Copies, OfTwoThatOverlapTheLaterHasWhatTheEarlierLeaves) {
  both_ = 1'000'000'000;  // the copy to the host gets half of this
  const StageTimes both = Run("0OF+0:0(ln1) 0LD+0:1(ln1) 0OF-0:0(ln1) 0LD-0:1(ln1)");
  EXPECT_EQ(both.spans[0].transfer_end, Nanos(1280));
  EXPECT_EQ(both.spans[1].transfer_end, Nanos(1280));
  // If the copy to the device begins first, it gets the whole rate, and the copy to the host waits until it has ended.
  const StageTimes back = Run("0LD+0:1(ln1) 0OF+0:0(ln1) 0LD-0:1(ln1) 0OF-0:0(ln1)");
  EXPECT_EQ(back.spans[0].transfer_end, Nanos(640));
  EXPECT_EQ(back.spans[1].transfer_end, Nanos(640 + 1280));
  // After the shorter copy has ended, the longer copy has the link for itself.
  const StageTimes longer = Run("0OF+0:0(ln1) 0LD+0:1(ln1,qkv) 0OF-0:0(ln1) 0LD-0:1(ln1,qkv)");
  EXPECT_EQ(longer.spans[1].transfer_end, Nanos(1280 + 4 * 640 - 640));
}

TEST_F(Copies, SlowWhatComputesBeside) {
  slowdown_ = 1250;
  // 1280 ns of copying allow 1024 ns of work. Attention is 500 ns of work, which takes 625 ns during the copy.
  const StageTimes times = Run("0OF+0:0(ln1) 0F1:0.attn 0OF-0:0(ln1)");
  EXPECT_EQ(times.forward, Nanos(625));
  EXPECT_EQ(times.end, Nanos(1280));
  EXPECT_EQ(Run("0OF+0:0(ln1) 0F1:0.attn 0F1:0.mlp 0F1:0.end 0OF-0:0(ln1)").forward, Nanos(1100 + 1280 - 1024));
}

// If the copies keep up with the passes, their only cost is the slowdown that they cause.
TEST(Offload, SimulationAgreesWithTheClosedForm) {
  ModelSpec model = SmallModel(12);
  model.hidden = 256, model.ffn = 1024, model.heads = 8, model.seq = 256;
  HardwareProfile profile = StatedCpuProfile();
  profile.host = {Nanos(1000), 20'000'000'000, 20'000'000'000, 40'000'000'000, 1050};
  for (const ParallelLayout& layout : {ParallelLayout{}, {.tp = 2}, {.pp = 2}, {.pp = 3}}) {
    for (const int32_t permille : {0, 300, 1000}) {
      const Pipeline p = Offloaded(model, layout, 8, permille);
      const CostModel costs(profile, model, layout, 2, 8);
      const absl::StatusOr<Simulation> simulation = Simulate(p.programs, p.contexts, costs);
      ASSERT_TRUE(simulation.ok()) << simulation.status();
      const absl::StatusOr<StepEstimate> estimate = EstimateStep({.model = model,
                                                                  .layout = layout,
                                                                  .micro_batch = 2,
                                                                  .microbatches = 8,
                                                                  .offload_permille = permille,
                                                                  .ranks_per_node = 8,
                                                                  .traits = {}},
                                                                 profile);
      ASSERT_TRUE(estimate.ok()) << estimate.status();
      EXPECT_NEAR(Seconds(estimate->step), Seconds(simulation->step), 0.04 * Seconds(simulation->step))
          << LayoutText(layout) << " " << permille;
    }
  }
}

PlanRequest Request(int32_t permille) {
  PlanRequest request{.cluster = UniformCluster(1, 2, ProfileWithHost())};
  request.cluster.groups[0].host_memory = kMiB * 64;
  request.spec.name = "offload";
  request.spec.model = SmallModel(8);
  request.spec.train = {.steps = 1, .global_batch = 8, .micro_batch = 1};
  request.spec.parallel = {.pp = 2, .dp = 1, .schedule = ScheduleKind::kOneForwardOneBackward};
  request.spec.resources = {.min_ranks = 2, .max_ranks = 2};
  request.spec.recompute = RecomputeMode::kNone;
  request.spec.recompute_options.offload_permille = permille;
  Normalize(request.spec);
  return request;
}

Bytes LargestArena(const Plan& plan) {
  Bytes largest;
  for (const StagePlan& stage : plan.stages) largest = std::max(largest, stage.arena);
  return largest;
}

TEST(OffloadPlan, FitsWhereStoringEverythingDoesNot) {
  const absl::StatusOr<PlanResult> stored = MakePlan(Request(0));
  ASSERT_TRUE(stored.ok()) << stored.status();
  PlanRequest request = Request(700);
  request.spec.resources.activation_memory_per_rank = LargestArena(std::get<Plan>(*MakePlan(request)));
  request.spec.recompute_options.offload_permille = 0;
  EXPECT_TRUE(std::holds_alternative<Infeasible>(*MakePlan(request)));
  request.spec.recompute_options.offload_permille = 700;
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(std::holds_alternative<Plan>(*result)) << std::get<Infeasible>(*result).reason;
  const Plan& plan = std::get<Plan>(*result);
  EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
  EXPECT_GT(plan.stages[0].host, Bytes(0));
  EXPECT_THAT(PlanText(plan), HasSubstr(" host "));
  EXPECT_THAT(PlanTable(plan), HasSubstr(FormatBytes(plan.stages[0].host)));
  Plan wrong = plan;
  wrong.stages[0].host += Bytes(256);
  wrong.digest = Sha256Hex(PlanText(wrong));
  EXPECT_THAT(std::string(CheckPlan(wrong).message()), HasSubstr("bytes of host memory"));
}

TEST(OffloadPlan, TheHostsMemoryIsALimitToo) {
  PlanRequest request = Request(1000);
  request.cluster.groups[0].host_memory = Bytes(20'000);
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(std::holds_alternative<Infeasible>(*result));
  EXPECT_THAT(std::get<Infeasible>(*result).reason, HasSubstr("to the host's memory, of which a device's share is"));
  request.cluster.groups[0].host_memory = Bytes(0);  // the host's memory is unknown
  EXPECT_TRUE(std::holds_alternative<Plan>(*MakePlan(request)));
}

TEST(OffloadPlan, AHostThatIsTheDeviceHasWhatIsLeftOfIt) {
  PlanRequest request = Request(1000);
  const Plan plan = std::get<Plan>(*MakePlan(request));
  Bytes states_and_arena, all;
  for (const StagePlan& stage : plan.stages) {
    states_and_arena = std::max(states_and_arena, stage.states.total() + stage.arena);
    all = std::max(all, stage.states.total() + stage.arena + stage.host);
  }
  NodeGroup& group = request.cluster.groups[0];
  group.host_is_device = true;
  group.memory_per_device = all;
  EXPECT_TRUE(std::holds_alternative<Plan>(*MakePlan(request)));
  group.memory_per_device = states_and_arena + Bytes(1000);
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  ASSERT_TRUE(std::holds_alternative<Infeasible>(*result));
  EXPECT_THAT(std::get<Infeasible>(*result).reason, HasSubstr("to the host's memory, of which a device's share is"));
}

TEST(OffloadPlan, WhereTheFastestSendsTooMuchAnotherLayoutIsTaken) {
  PlanRequest request = Request(1000);
  request.spec.train.micro_batch = 0;
  const Plan fastest = std::get<Plan>(*MakePlan(request));
  Bytes host;
  for (const StagePlan& stage : fastest.stages) host = std::max(host, stage.host);
  request.cluster.groups[0].host_memory = host * 2 - Bytes(2);  // memory for two devices
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  ASSERT_TRUE(std::holds_alternative<Plan>(*result)) << std::get<Infeasible>(*result).reason;
  const Plan& other = std::get<Plan>(*result);
  EXPECT_NE(other.micro_batch, fastest.micro_batch);
  EXPECT_GT(other.stages[0].host, Bytes(0));
  for (const StagePlan& stage : other.stages) EXPECT_LT(stage.host, host);
}

TEST(OffloadPlan, APolicyThatChoosesForItselfTakesNoShare) {
  PlanRequest request = Request(500);
  request.spec.recompute = RecomputeMode::kAuto;
  EXPECT_THAT(std::string(MakePlan(request).status().message()),
              HasSubstr("recomputeOptions.offloadShare with recompute auto"));
}

}  // namespace
}  // namespace lynx
