// Checks properties of every program that the lowering makes. The layouts, models and policies are random, from fixed seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "planner/cost/cost_model.h"
#include "planner/cost/simulate.h"
#include "planner/program/access_table.h"
#include "planner/program/memory_model.h"
#include "planner/program/state_sharing.h"
#include "planner/program/validate.h"
#include "tests/planner/lower/stage_programs.h"

namespace lynx {
namespace {

constexpr uint64_t kSeeds = 200;

class ProgramProperty : public ::testing::Test {
 protected:
  template <class Check>
  void ForEachSeed(const Check& check) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      for (const bool experts : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed << (experts ? ", with experts" : ""));
        std::mt19937_64 rng(seed);
        const Pipeline pipeline = RandomPipeline(rng, experts);
        SCOPED_TRACE(NameOf(pipeline));
        check(pipeline);
        if (HasFailure()) return;
      }
    }
  }
};

TEST_F(ProgramProperty, Validates) {
  ForEachSeed([](const Pipeline& p) {
    const absl::Status status = ValidatePrograms(p.programs, p.contexts);
    EXPECT_TRUE(status.ok()) << status;
  });
}

TEST_F(ProgramProperty, RunsWithoutDeadlock) {
  ForEachSeed([](const Pipeline& p) {
    const StageContext& c = p.contexts.front();
    const CostModel costs(StatedCpuProfile(), c.model, c.layout, c.micro_batch, 2);
    const absl::StatusOr<Simulation> simulation = Simulate(p.programs, p.contexts, costs);
    EXPECT_TRUE(simulation.ok()) << simulation.status();
  });
}

TEST_F(ProgramProperty, PrintsAndParsesBack) {
  ForEachSeed([](const Pipeline& p) {
    for (const Program& program : p.programs) {
      const absl::StatusOr<Program> parsed = ParseProgram(ProgramText(program));
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_EQ(*parsed, program);
    }
  });
}

// Checks that two buffers never share a byte at the same time, and that every buffer lies inside the arena.
void ExpectNoOverlap(const MemoryPlan& plan) {
  const std::vector<BufferInstance>& buffers = plan.buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const BufferInstance& a = buffers[i];
    ASSERT_EQ(a.offset.value % kBufferAlignment.value, 0);
    ASSERT_GE(a.offset, Bytes(0));
    ASSERT_LE(a.offset + a.bytes, plan.arena);
    for (size_t j = i + 1; j < buffers.size() && buffers[j].first <= a.last; ++j) {
      const BufferInstance& b = buffers[j];
      ASSERT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset)
          << BufferKeyText(a.key) << " and " << BufferKeyText(b.key) << " overlap";
    }
  }
}

// Buffers must not overlap, and the arena must be close to its lower bound.
TEST_F(ProgramProperty, LaysOutWithoutOverlap) {
  ForEachSeed([](const Pipeline& p) {
    for (size_t s = 0; s < p.programs.size(); ++s) {
      const absl::StatusOr<MemoryPlan> plan = PlanMemory(p.programs[s], p.contexts[s]);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_GE(plan->arena, plan->live_peak);
      // Gradients that wait for their reduction live longer than the buffers around them.
      // Layers of two kinds, latents and the block that every token passes have buffers of more sizes.
      const ModelSpec& model = p.contexts[s].model;
      const bool more_sizes = model.moe.dense_layers > 0 || model.moe.shared_ffn > 0 || model.latent.any();
      const double most = ReducesEachMicrobatch(p.contexts[s]) ? 1.15 : more_sizes ? 1.1 : 1.08;
      EXPECT_LE(static_cast<double>(plan->arena.value), static_cast<double>(plan->live_peak.value) * most);
      ExpectNoOverlap(*plan);
    }
  });
}

// If a larger arena is allowed, PlanMemory needs less work to find a layout of the buffers. Given the size that results,
// PlanMemory finds the same layout again.
TEST_F(ProgramProperty, LaysOutWhatIsEnoughAndTheSameAgain) {
  int larger = 0;
  ForEachSeed([&](const Pipeline& p) {
    for (size_t s = 0; s < p.programs.size(); ++s) {
      const Bytes least = PlanMemory(p.programs[s], p.contexts[s])->arena;
      for (const int64_t percent : {100, 101, 110, 1000}) {
        const Bytes enough = least * percent / 100;
        const absl::StatusOr<MemoryPlan> plan = PlanMemory(p.programs[s], p.contexts[s], enough);
        ASSERT_TRUE(plan.ok()) << plan.status();
        EXPECT_LE(plan->arena, enough);
        larger += plan->arena > least;
        ExpectNoOverlap(*plan);
        const absl::StatusOr<MemoryPlan> again = PlanMemory(p.programs[s], p.contexts[s], plan->arena);
        ASSERT_TRUE(again.ok());
        EXPECT_EQ(again->arena, plan->arena);
        for (size_t b = 0; b < plan->buffers.size(); ++b) {
          ASSERT_EQ(again->buffers[b].offset, plan->buffers[b].offset);
        }
      }
    }
  });
  EXPECT_GT(larger, 0);
}

TEST_F(ProgramProperty, TheTableOfAccessesSaysOfEachActionWhatItDoes) {
  ForEachSeed([](const Pipeline& p) {
    for (size_t s = 0; s < p.programs.size(); ++s) {
      AccessTable table(p.contexts[s]);
      for (const Action& action : p.programs[s]) {
        const std::vector<Access> accesses = AccessesOf(action, p.contexts[s]);
        const std::span<const Access> known = table.Of(action);
        ASSERT_EQ(known.size(), accesses.size()) << ActionText(action);
        for (size_t a = 0; a < accesses.size(); ++a) {
          ASSERT_EQ(known[a].key, accesses[a].key) << ActionText(action);
          ASSERT_EQ(known[a].mode, accesses[a].mode) << ActionText(action);
          ASSERT_EQ(known[a].bytes, accesses[a].bytes) << ActionText(action);
        }
      }
    }
  });
}

TEST_F(ProgramProperty, ResolvesEveryAccessToALivingInstanceOfItsKey) {
  ForEachSeed([](const Pipeline& p) {
    for (size_t s = 0; s < p.programs.size(); ++s) {
      const absl::StatusOr<MemoryPlan> plan = FoldLiveness(p.programs[s], p.contexts[s]);
      ASSERT_TRUE(plan.ok());
      const auto resolved = ResolveBuffers(p.programs[s], p.contexts[s], *plan);
      ASSERT_EQ(resolved.size(), p.programs[s].size());
      for (size_t i = 0; i < resolved.size(); ++i) {
        const std::vector<Access> accesses = AccessesOf(p.programs[s][i], p.contexts[s]);
        ASSERT_EQ(resolved[i].size(), accesses.size());
        for (size_t a = 0; a < accesses.size(); ++a) {
          const BufferInstance& buffer = plan->buffers[static_cast<size_t>(resolved[i][a])];
          ASSERT_EQ(buffer.key, accesses[a].key);
          ASSERT_LE(buffer.first, static_cast<int32_t>(i));
          ASSERT_GE(buffer.last, static_cast<int32_t>(i));
          ASSERT_GE(buffer.bytes, accesses[a].bytes);
          // The first action that adds to a sum begins the buffer.
          const bool begins = buffer.first == static_cast<int32_t>(i);
          if (accesses[a].mode != AccessMode::kAccumulate) {
            ASSERT_EQ(accesses[a].mode == AccessMode::kWrite, begins);
          }
        }
      }
    }
  });
}

// If a policy does not store a tensor, the tensor is written again before the backward pass. The value that the forward pass
// wrote never reaches the backward pass. If a policy stores a tensor, this value reaches the backward pass.
TEST_F(ProgramProperty, StoresExactlyWhatThePolicyStores) {
  ForEachSeed([](const Pipeline& p) {
    for (size_t s = 0; s < p.programs.size(); ++s) {
      const Program& program = p.programs[s];
      const StageContext& context = p.contexts[s];
      const absl::StatusOr<MemoryPlan> plan = FoldLiveness(program, context);
      ASSERT_TRUE(plan.ok());
      const std::vector<Tensor>& tensors = context.graph().recomputable();
      for (const BufferInstance& buffer : plan->buffers) {
        const auto it = std::find(tensors.begin(), tensors.end(), buffer.key.tensor);
        if (it == tensors.end() || program[static_cast<size_t>(buffer.first)].kind != ActionKind::kForward) continue;
        const Placement placement = p.PolicyOf(s, buffer.key.layer)[static_cast<size_t>(it - tensors.begin())];
        const ActionInfo& last = InfoOf(program[static_cast<size_t>(buffer.last)].kind);
        const bool forward_collective = last.of_segment() && last.part == StepPart::kForward;
        const bool forward_only = last.kind == ActionKind::kForward || forward_collective;
        ASSERT_EQ(forward_only, placement != Placement::kStore) << BufferKeyText(buffer.key);
      }
    }
  });
}

// In each window of a pass, the weight gradient comes first and recomputation second. A window never contains a collective.
TEST_F(ProgramProperty, WindowsHoldWeightPassesThenRecomputation) {
  ForEachSeed([](const Pipeline& p) {
    for (const Program& program : p.programs) {
      bool window = false, recomputed = false;
      for (const Action& action : program) {
        const ActionInfo& info = InfoOf(action.kind);
        // An all-gather that recomputation repeats is not a window: a gradient may be computed while it is under way, so the
        // device is not idle.
        if (info.part == StepPart::kRecompute && info.collective == Collective::kAllGather) continue;
        if (info.of_segment()) {
          ASSERT_EQ(window, info.phase == Phase::kWait);
          window = !window;
          recomputed = false;
        } else if (window && info.group == Group::kNone) {
          ASSERT_TRUE(action.kind == ActionKind::kRecompute || (action.kind == ActionKind::kWeight && !recomputed))
              << ActionText(action);
          recomputed |= action.kind == ActionKind::kRecompute;
        }
      }
    }
  });
}

}  // namespace
}  // namespace lynx
