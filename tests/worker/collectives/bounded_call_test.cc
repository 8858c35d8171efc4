#include "worker/collectives/bounded_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace lynx::worker {
namespace {

absl::Status Never() { return absl::OkStatus(); }

TEST(BoundedCall, ReturnsTheStatusOfTheCall) {
  bool undone = false;
  {
    BoundedCall call([] { return absl::DataLossError("of the call"); }, [&] { undone = true; });
    EXPECT_EQ(call.Wait(Never), absl::DataLossError("of the call"));
    EXPECT_EQ(call.Wait(Never), absl::DataLossError("of the call"));
  }
  BoundedCall good([] { return absl::OkStatus(); }, [&] { undone = true; });
  EXPECT_EQ(good.Wait(Never), absl::OkStatus());
  EXPECT_FALSE(undone);
  EXPECT_EQ(BoundedCall::LeftBehind(), 0);
}

// What a call and its test share: the call may outlive the test's objects.
struct Shared {
  std::atomic<bool> go = false, undone = false;
};

std::shared_ptr<Shared> LeaveBehind(const absl::Status& end) {
  auto shared = std::make_shared<Shared>();
  BoundedCall call(
      [shared, end] {
        while (!shared->go) std::this_thread::yield();
        return end;
      },
      [shared] { shared->undone = true; });
  EXPECT_EQ(call.Wait([] { return absl::CancelledError("enough"); }), absl::CancelledError("enough"));
  return shared;
}

TEST(BoundedCall, LeavesACallBehindAndUndoesWhatItDid) {
  const auto shared = LeaveBehind(absl::OkStatus());
  EXPECT_EQ(BoundedCall::LeftBehind(), 1);
  EXPECT_FALSE(shared->undone);
  shared->go = true;
  while (BoundedCall::LeftBehind() > 0) std::this_thread::yield();
  EXPECT_TRUE(shared->undone);
}

TEST(BoundedCall, HasNothingToUndoAfterAFailure) {
  const auto shared = LeaveBehind(absl::InternalError("failed"));
  shared->go = true;
  while (BoundedCall::LeftBehind() > 0) std::this_thread::yield();
  EXPECT_FALSE(shared->undone);
}

TEST(BoundedCall, UndoesASuccessOfWhichNobodyWasTold) {
  auto shared = std::make_shared<Shared>();
  {
    BoundedCall call([shared] { return absl::OkStatus(); }, [shared] { shared->undone = true; });
    while (!shared->go) {  // until the call has surely ended
      if (!call.Wait([&] { return absl::CancelledError("enough"); }).ok()) continue;
      break;
    }
  }
  EXPECT_FALSE(shared->undone) << "the caller has its result";
  {
    const BoundedCall call([shared] { return absl::OkStatus(); }, [shared] { shared->undone = true; });
  }
  while (BoundedCall::LeftBehind() > 0) std::this_thread::yield();
  EXPECT_TRUE(shared->undone);
}

TEST(BoundedCall, WaitsAgainAfterAStop) {
  auto shared = std::make_shared<Shared>();
  BoundedCall call(
      [shared] {
        while (!shared->go) std::this_thread::yield();
        return absl::OkStatus();
      },
      [] {});
  EXPECT_EQ(call.Wait([] { return absl::CancelledError("enough"); }), absl::CancelledError("enough"));
  shared->go = true;
  EXPECT_EQ(call.Wait(Never), absl::OkStatus());
}

}  // namespace
}  // namespace lynx::worker
