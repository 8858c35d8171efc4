#include "node/daemon.h"

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"

namespace lynx {
namespace {

// Takes two locks in both orders, one order after the other. This causes no deadlock here, but it would cause one if two
// threads did it.
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
