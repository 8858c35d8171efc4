#include "worker/engine/copy_thread.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lynx::worker {
namespace {

TEST(CopyThread, CopiesInTheOrderOfTheStarts) {
  std::vector<float> device(1000), host(1000, -1.0f), back(1000, -2.0f);
  std::iota(device.begin(), device.end(), 0.0f);
  const std::vector<HostCopy> out = {{device.data(), host.data(), Bytes(2400)},
                                     {device.data() + 600, host.data() + 600, Bytes(1600)}};
  const std::vector<HostCopy> in = {{host.data(), back.data(), Bytes(4000)}};
  CopyThread copies(2);
  for (int round = 0; round < 100; ++round) {
    const CopyThread::Ticket first = copies.Start(out);
    const CopyThread::Ticket second = copies.Start(in);
    const Nanos later = copies.Wait(second);
    EXPECT_LE(copies.Wait(first), later);
    ASSERT_EQ(back, device);
    for (float& value : device) value += 1;
  }
}

TEST(CopyThread, EndsWithoutCopies) { CopyThread copies(0); }

TEST(CopyThread, FinishesWhatWasStartedBeforeItEnds) {
  std::vector<float> from(1 << 20, 3.0f), to(1 << 20);
  const std::vector<HostCopy> copy = {{from.data(), to.data(), Bytes(static_cast<int64_t>(from.size() * sizeof(float)))}};
  {
    CopyThread copies(1);
    copies.Start(copy);
  }
  EXPECT_EQ(to, from);
}

TEST(CopyThreadDeathTest, MoreOpenCopiesThanSaidAreAProgramError) {
  EXPECT_DEATH(
      {
        CopyThread copies(1);
        copies.Start({});
        copies.Start({});
      },
      "");
}

}  // namespace
}  // namespace lynx::worker
