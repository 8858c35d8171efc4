#include "node/daemon.h"

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"

namespace lynx {
namespace {

// Locks in both orders, one after the other. This causes no deadlock here, but some day it would.
void LockInBothOrders() {
  absl::Mutex first, second;
  {
    const absl::MutexLock one(&first);
    const absl::MutexLock two(&second);
  }
  const absl::MutexLock two(&second);
  const absl::MutexLock one(&first);
}

TEST(LockOrder, IsNotWatched) {
  EXPECT_EXIT(
      {
        absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kAbort);
        StopWatchingLockOrder();
        LockInBothOrders();
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lynx
