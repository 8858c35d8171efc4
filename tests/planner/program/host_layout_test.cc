#include "planner/program/host_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/rng.h"
#include "planner/lower/lower.h"
#include "planner/program/memory_model.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {
namespace {

constexpr ModelSpec kModel{.layers = 8, .hidden = 64, .heads = 4, .seq = 32, .vocab = 64, .dropout = 0.1};

struct Lowered {
  StageContext context;
  Program program;
};

// Returns a program of the first stage of a pipeline. The tensors of each layer that are sent to the host are chosen at random.
// So blocks of different sizes come and go on the host.
Lowered RandomProgram(uint64_t seed) {
  const ParallelLayout layout{.tp = 1, .pp = 4, .dp = 1};
  Lowered result{PipelineContexts(kModel, layout, 2, 8, {4, 2, 1, 1}).front(), {}};
  StagePolicy policy = NamedPolicy(result.context.graph(), RecomputeMode::kNone, result.context.slices[0].layers());
  for (LayerPolicy& layer : policy.layers) {
    for (Placement& placement : layer) {
      seed = Mix64(seed);
      if (seed % 3 == 0) placement = Placement::kOffload;
    }
  }
  result.program = LowerStage(result.context, policy);
  return result;
}

// Tensors that are on the host at the same time must not share a byte, and all must lie inside the pool. A tensor must be read
// back from the place to which it was written. The pool must be only a little larger than the largest number of bytes that are
// on the host at once.
TEST(HostLayout, KeepsWhatIsThereApart) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Lowered p = RandomProgram(seed);
    const HostLayout layout = LayOutHost(p.program, p.context);
    ASSERT_EQ(layout.offsets.size(), p.program.size());
    struct Place {
      Bytes begin, end;
    };
    std::map<BufferKey, Place> there;
    Bytes now, most;
    for (size_t i = 0; i < p.program.size(); ++i) {
      const Action& action = p.program[i];
      if (InfoOf(action.kind).group != Group::kHost) {
        EXPECT_TRUE(layout.offsets[i].empty());
        continue;
      }
      const std::vector<Access> accesses = AccessesOf(action, p.context);
      for (size_t a = 0; a < accesses.size(); ++a) {
        const BufferKey& key = accesses[a].key;
        if (action.kind == ActionKind::kOffloadStart) {
          const Place place{layout.offsets[i].at(a), layout.offsets[i].at(a) + accesses[a].bytes};
          EXPECT_EQ(place.begin.value % kBufferAlignment.value, 0);
          EXPECT_LE(place.end, layout.pool);
          for (const auto& [other, taken] : there) {
            EXPECT_TRUE(place.end <= taken.begin || taken.end <= place.begin) << BufferKeyText(other);
          }
          there[key] = place;
          now += accesses[a].bytes;
          most = std::max(most, now);
        } else if (action.kind == ActionKind::kReloadStart) {
          EXPECT_EQ(layout.offsets[i].at(a), there.at(key).begin);
        } else if (action.kind == ActionKind::kReloadWait) {
          there.erase(key);
          now -= accesses[a].bytes;
        }
      }
    }
    EXPECT_TRUE(there.empty());
    EXPECT_GE(layout.pool, most);
    EXPECT_LE(layout.pool.value, most.value * 21 / 20);
    EXPECT_EQ(PlanMemory(p.program, p.context)->host_peak, layout.pool);
  }
}

TEST(HostLayout, IsEmptyWhereNothingLeaves) {
  const Lowered p = RandomProgram(1);
  const Program stored = LowerStage(p.context, NamedPolicy(p.context.graph(), RecomputeMode::kNone, 4));
  EXPECT_EQ(LayOutHost(stored, p.context).pool, Bytes(0));
}

}  // namespace
}  // namespace lynx
