// Tests queues that work while the ops run, and the marks that order queues and ops, in every order in which a device may do
// the work (cuda_on_host/scheduler.h). Also tests that a missing mark gives a wrong result; otherwise the other tests would
// prove nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "common/clock.h"
#include "tests/worker/backend/cuda_on_host/scheduler.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/stream.h"
#include "worker/backend/host_view.h"

namespace lynx::worker {
namespace {

using cuda_on_host::Order;
using cuda_on_host::OrderName;
using cuda_on_host::SetOrder;

constexpr int64_t kCount = 1000;
constexpr Bytes kBytes(kCount * 4);

class CudaQueue : public testing::TestWithParam<Order> {
 protected:
  void SetUp() override {
    backend = MakeCudaBackend(0).value();
    x = backend->Allocate(kBytes, "x").value();
    y = backend->Allocate(kBytes, "y").value();
    host = backend->AllocatePinned(kBytes, "a pool").value();
    queue = backend->MakeQueue().value();
    ASSERT_TRUE(backend->Finish().ok());
    backend->BeginMarks();
    SetOrder(GetParam());
  }
  void TearDown() override {
    queue.reset();
    SetOrder(Order::kEager);
  }
  void Fill(std::span<float> values, float value) { backend->Fill(values.data(), static_cast<int64_t>(values.size()), value); }
  std::vector<float> Fetch(std::span<float> values) {
    HostView view = HostView::Fetch(values, *backend).value();
    return {view.floats().begin(), view.floats().end()};
  }

  std::unique_ptr<Backend> backend;
  std::span<float> x, y, host;
  std::unique_ptr<DeviceQueue> queue;
};

TEST_P(CudaQueue, ComesAfterTheOpsThatItFollowsAndBeforeThoseThatFollowIt) {
  for (const float value : {1.0f, 2.0f}) {
    Fill(x, value);
    queue->Follow(backend->Mark());
    queue->Copy(x.data(), kBytes, y.data());
    backend->Follow(queue->Mark());
    Fill(x, -1);
    EXPECT_THAT(Fetch(y), testing::Each(value));
  }
}

TEST_P(CudaQueue, CopiesToPinnedMemoryAndBack) {
  Fill(x, 3);
  queue->Follow(backend->Mark());
  queue->Copy(x.data(), kBytes, host.data());
  backend->Follow(queue->Mark());
  Fill(x, 4);
  queue->Follow(backend->Mark());
  queue->Copy(host.data(), kBytes, x.data());
  backend->Follow(queue->Mark());
  EXPECT_THAT(Fetch(x), testing::Each(3.0f));
  EXPECT_THAT(host, testing::Each(3.0f));
}

TEST_P(CudaQueue, MarksHaveTimesInTheirOrder) {
  const RealClock clock;
  for (int step = 0; step < 3; ++step) {
    const Nanos before_all = clock.Monotonic();
    const Nanos begin = backend->BeginMarks();
    const Moment before = backend->Mark();
    Fill(x, 1);
    const Moment made = backend->Mark();
    queue->Follow(made);
    const Moment started = queue->Mark();
    queue->Copy(x.data(), kBytes, y.data());
    const Moment copied = queue->Mark();
    backend->Follow(copied);
    const Moment after = backend->Mark();
    ASSERT_TRUE(backend->Finish().ok());
    Nanos last = begin;
    for (const Moment moment : {before, made, started, copied, after}) {
      EXPECT_TRUE(moment.is_mark());
      EXPECT_GE(backend->TimeOf(moment) + Nanos(1000), last);  // tolerance: the precision of a float
      last = backend->TimeOf(moment);
    }
    EXPECT_LE(last - begin, clock.Monotonic() - before_all + Nanos(1000));
    EXPECT_EQ(backend->TimeOf(Nanos(7)), Nanos(7)) << "a time is its own";
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaQueue, testing::Values(Order::kEager, Order::kLate, Order::kFirstLate, Order::kFirstEager),
                         [](const auto& info) { return OrderName(info.param); });

class WithoutMarks : public CudaQueue {};

// The queue does not wait for the ops. If the ops are late and the queue is not (kFirstLate), the copy runs before the ops, so
// y gets the old values. In the other orders, the result is right by chance.
TEST_P(WithoutMarks, AQueueThatFollowsNothingShows) {
  Fill(x, 1);
  queue->Copy(x.data(), kBytes, y.data());
  backend->Follow(queue->Mark());
  EXPECT_THAT(Fetch(y), testing::Each(GetParam() == Order::kFirstLate ? 0.0f : 1.0f));
}

// The ops do not wait for the queue, so they read data that the queue has not copied yet.
TEST_P(WithoutMarks, OpsThatFollowNothingShow) {
  Fill(x, 1);
  queue->Follow(backend->Mark());
  queue->Copy(x.data(), kBytes, y.data());
  EXPECT_THAT(Fetch(y), testing::Each(0.0f));
}

INSTANTIATE_TEST_SUITE_P(, WithoutMarks, testing::Values(Order::kLate, Order::kFirstLate, Order::kFirstEager),
                         [](const auto& info) { return OrderName(info.param); });

TEST(CpuQueue, IsThereNone) {
  const absl::Status status = MakeCpuBackend(1)->MakeQueue().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("has no queues of work beside its ops"));
}

TEST(CudaPinned, SaysWhatCouldNotBeHad) {
  const std::unique_ptr<Backend> backend = MakeCudaBackend(0).value();
  const absl::Status status = backend->AllocatePinned(Bytes(int64_t{1} << 60), "the host pool").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("pinned memory for the host pool: out of memory"));
}

// The device may read memory that is not pinned whenever it likes, so Copy must have read it before it returns. The sizes need
// less than one piece of pinned memory, all pieces and one more, and all of them twice.
TEST(CudaCopy, OfMemoryThatIsNotPinnedIsDoneBeforeTheHostChangesIt) {
  constexpr int64_t kPieceFloats = cuda::Stream::kPiece.value / 4, kAll = kPieceFloats * cuda::Stream::kPieces;
  for (const Order order : {Order::kEager, Order::kLate}) {
    SetOrder(order);
    const std::unique_ptr<Backend> backend = MakeCudaBackend(0).value();
    for (const int64_t count : {int64_t{1}, kPieceFloats, kAll + 1, 2 * kAll + kPieceFloats + 7}) {
      const std::span<float> device = backend->Allocate(Bytes(count * 4), "a tensor").value();
      std::vector<float> host(static_cast<size_t>(count));
      std::iota(host.begin(), host.end(), 1.0f);
      const std::vector<float> expected = host;
      backend->Copy(host.data(), Bytes(count * 4), device.data());
      std::fill(host.begin(), host.end(), -1.0f);
      backend->Copy(device.data(), Bytes(count * 4), host.data());
      EXPECT_EQ(host, expected) << count << " floats, " << OrderName(order);
      backend->Release(device);
    }
    EXPECT_TRUE(backend->Finish().ok());
  }
  SetOrder(Order::kEager);
}

// A step copies its tokens several times. The host must not wait for the device to use them.
TEST(CudaCopy, OfManySmallPartsDoesNotWaitForTheDevice) {
  SetOrder(Order::kLate);
  const std::unique_ptr<Backend> backend = MakeCudaBackend(0).value();
  const std::span<float> device = backend->Allocate(Bytes(64), "tokens").value();
  ASSERT_TRUE(backend->Finish().ok());
  const auto pinned = backend->AllocatePinned(Bytes(4), "a witness").value();
  pinned[0] = 0;
  backend->Fill(device.data(), 1, 5);
  backend->Copy(device.data(), Bytes(4), pinned.data());
  const float token = 7;
  for (int i = 0; i < cuda::Stream::kPieces; ++i) backend->Copy(&token, Bytes(4), device.data());
  EXPECT_EQ(pinned[0], 0) << "the device has not begun";
  ASSERT_TRUE(backend->Finish().ok());
  EXPECT_EQ(pinned[0], 5);
  SetOrder(Order::kEager);
}

}  // namespace
}  // namespace lynx::worker
