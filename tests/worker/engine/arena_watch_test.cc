#include "worker/engine/arena_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace lynx::worker {
namespace {

using testing::HasSubstr;

constexpr size_t kWords = 1024;
constexpr size_t kGuardWords = static_cast<size_t>(ArenaWatch::kGuard.value) / sizeof(float);

struct Watched {
  std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  std::vector<float> memory = std::vector<float>(kWords + kGuardWords);
  ArenaWatch watch{memory, *backend};
};

TEST(ArenaWatch, SeesTheHighestWordWritten) {
  Watched w;
  ASSERT_EQ(w.watch.arena().size(), kWords);
  w.watch.Look(w.watch.arena());
  EXPECT_EQ(w.watch.peak(), Bytes(0));
  w.memory[3] = 0;  // a zero counts as written too
  w.watch.Look(w.watch.arena());
  EXPECT_EQ(w.watch.peak(), Bytes(256));
  w.memory[64] = std::numeric_limits<float>::quiet_NaN();  // an ordinary NaN counts as written too
  w.watch.Look(w.watch.arena());
  EXPECT_EQ(w.watch.peak(), Bytes(512));
  w.memory[kWords - 1] = 1;
  w.watch.Look(w.watch.arena().first(kWords / 2));
  EXPECT_EQ(w.watch.peak(), Bytes(512)) << "looked at another part";
  w.watch.Look(w.watch.arena());
  EXPECT_EQ(w.watch.peak(), Bytes(kWords * sizeof(float)));
  w.watch.Mark(w.watch.arena());
  w.watch.Look(w.watch.arena());
  EXPECT_EQ(w.watch.peak(), Bytes(kWords * sizeof(float))) << "once seen, it stays";
}

TEST(ArenaWatch, EveryWordOfTheGuardCounts) {
  for (size_t i = 0; i < kGuardWords; ++i) {
    Watched w;
    w.memory[kWords - 1] = 1;
    EXPECT_EQ(w.watch.CheckGuard(), absl::OkStatus());
    w.memory[kWords + i] = 0;
    const absl::Status status = w.watch.CheckGuard();
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("beyond the end of the arena of 4096 bytes"));
  }
}

TEST(ArenaWatch, ASingleStrayWordIsFound) {
  Watched w;
  EXPECT_EQ(w.watch.CheckAllMarked(), absl::OkStatus());
  w.memory[100] = 0;
  EXPECT_THAT(std::string(w.watch.CheckAllMarked().message()), HasSubstr("before byte 404"));
  w.watch.Mark(w.watch.arena().subspan(100, 1));
  EXPECT_EQ(w.watch.CheckAllMarked(), absl::OkStatus());
}

}  // namespace
}  // namespace lynx::worker
