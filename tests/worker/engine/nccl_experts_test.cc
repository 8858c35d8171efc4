// Tests the groups for experts between ranks whose devices have memory of their own: by NCCL, and through the hosts' memory.
// Libraries simulate CUDA and NCCL on the host (tests/worker/backend/cuda_on_host).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <thread>
#include <utility>

#include "common/status.h"
#include "tests/worker/backend/cuda_on_host/scheduler.h"
#include "tests/worker/engine/tiny_cluster.h"
#include "worker/collectives/bounded_call.h"
#include "worker/collectives/nccl_communicator.h"

namespace lynx::worker {
namespace {

using cuda_on_host::Order;
using cuda_on_host::OrderName;
using cuda_on_host::SetOrder;
using testing::HasSubstr;

std::unique_ptr<Backend> MakeCuda() { return std::move(MakeCudaBackend(0).value()); }

// A model whose experts can be shared by 2, 3 or 4 ranks.
ModelSpec TwelveExperts() {
  ModelSpec model = TinyMoe(DataType::kFloat32);
  model.moe.experts = 12;
  return model;
}

// A job of ranks with groups for experts.
TinyJob JobOf(const ParallelLayout& layout, bool by_nccl, const ModelSpec& model = TwelveExperts()) {
  TinyJob job{.model = model};
  job.make_backend = MakeCuda;
  job.Lower(layout, RecomputeMode::kNone);
  if (!by_nccl) return job;
  job.make_communicator = [layout, experts = model.moe.any()](int32_t rank, Communicator& host, Backend& backend) {
    return MakeNcclCommunicator({.layout = layout, .experts = experts, .rank = rank, .connect_timeout = Nanos(20'000'000'000)},
                                host, backend);
  };
  return job;
}

// Elements in the device's memory.
template <class T>
class DeviceElements {
 public:
  DeviceElements(Backend& backend, const std::vector<T>& values) : backend_(backend), count_(values.size()) {
    data_ = backend.Allocate(Bytes(static_cast<int64_t>(count_ * sizeof(T) + 3) / 4 * 4), "elements").value().data();
    backend.Copy(values.data(), Bytes(static_cast<int64_t>(count_ * sizeof(T))), data_);
    EXPECT_TRUE(backend.Finish().ok());  // waits, because the host's values may be freed after the return
  }
  T* data() const { return static_cast<T*>(data_); }
  // Waits for the device.
  std::vector<float> Values() const {
    std::vector<T> values(count_);
    backend_.Copy(data_, Bytes(static_cast<int64_t>(count_ * sizeof(T))), values.data());
    EXPECT_TRUE(backend_.Finish().ok());
    return {values.begin(), values.end()};
  }

 private:
  Backend& backend_;
  const size_t count_;
  void* data_ = nullptr;
};

float ValueAt(int32_t from, int32_t to, int64_t element) { return static_cast<float>(from * 16 + to) + 0.5f * (element % 2); }

// Starts two all-to-alls, with an all-reduce of the tensor group and one of the expert data group between them, and then waits
// for all of them. Each rank works on the received values at once, on its device.
template <class T>
absl::Status ExchangeOnDevice(TinyRank& rank, int64_t count) {
  const ParallelLayout& layout = rank.job->layout;
  Communicator& communicator = *rank.communicator;
  Backend& backend = rank.state->backend();
  const GroupMembers group = MembersOf(layout, rank.rank, Group::kExpert);
  std::vector<T> to_send;
  std::vector<float> expected;
  for (const int32_t member : group.ranks) {
    for (int64_t i = 0; i < count; ++i) {
      to_send.push_back(T(ValueAt(rank.rank, member, i)));
      expected.push_back(ValueAt(member, rank.rank, i));
    }
  }
  const DeviceElements<T> send(backend, to_send);
  const DeviceElements<T> received(backend, std::vector<T>(to_send.size(), T(-1.0f)));
  const DeviceElements<T> again(backend, std::vector<T>(to_send.size(), T(-1.0f)));
  const DeviceElements<float> sum(backend, std::vector<float>(100, 1.0f)), replicas(backend, std::vector<float>(100, 1.0f));
  const auto start_all_to_all = [&](const DeviceElements<T>& to) {
    return communicator.StartAllToAll(Group::kExpert, send.data(), to.data(), count);
  };
  LYNX_ASSIGN_OR_RETURN(const TransferTicket first, start_all_to_all(received));
  LYNX_ASSIGN_OR_RETURN(const TransferTicket tensor, communicator.StartAllReduce(Group::kTensor, sum.data(), 100));
  LYNX_ASSIGN_OR_RETURN(const TransferTicket data, communicator.StartAllReduce(Group::kExpertData, replicas.data(), 100));
  LYNX_ASSIGN_OR_RETURN(const TransferTicket second, start_all_to_all(again));
  for (const TransferTicket ticket : {first, tensor, data, second}) LYNX_RETURN_IF_ERROR(communicator.Wait(ticket).status());
  EXPECT_EQ(received.Values(), expected) << "rank " << rank.rank << ", count " << count;
  EXPECT_EQ(again.Values(), expected) << "rank " << rank.rank << ", count " << count;
  EXPECT_EQ(sum.Values(), std::vector<float>(100, static_cast<float>(layout.tp)));
  EXPECT_EQ(replicas.Values(), std::vector<float>(100, static_cast<float>(ExpertReplicas(layout))));
  return absl::OkStatus();
}

class NcclExperts : public testing::TestWithParam<bool> {  // true: NCCL; false: the hosts' memory
 protected:
  void TearDown() override {
    SetOrder(Order::kEager);
    cuda_on_host::ReleaseCalls();
    while (BoundedCall::LeftBehind() > 0) std::this_thread::yield();
    EXPECT_EQ(cuda_on_host::LiveCommunicators(), 0);
  }
};

TEST_P(NcclExperts, ExchangeSlotsInEveryOrder) {
  for (const ParallelLayout& layout : {ParallelLayout{.dp = 2, .ep = 2}, ParallelLayout{.dp = 3, .ep = 3},
                                       ParallelLayout{.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true},
                                       ParallelLayout{.tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true}}) {
    for (const Order order : {Order::kEager, Order::kLate, Order::kFirstLate, Order::kFirstEager}) {
      SetOrder(order);
      const auto statuses = OnRanks(JobOf(layout, GetParam()), [](TinyRank& rank) -> absl::Status {
        for (const int64_t count : {0, 1, 1000}) {
          LYNX_RETURN_IF_ERROR(ExchangeOnDevice<float>(rank, count));
          LYNX_RETURN_IF_ERROR(ExchangeOnDevice<Bfloat16>(rank, count));
        }
        return absl::OkStatus();
      });
      for (const absl::Status& status : statuses) {
        EXPECT_TRUE(status.ok()) << LayoutText(layout) << ", " << OrderName(order) << ": " << status;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, NcclExperts, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "ByNccl" : "ThroughHosts"); });

// If a mark between ops and all-to-alls were missing, one of the orders would give other bits.
void ExpectTheBitsOfTransfersThroughTheHosts(const ParallelLayout& layout, const ModelSpec& model) {
  const TinyRun expected = Train(JobOf(layout, /*by_nccl=*/false, model), 2);
  EXPECT_EQ(expected.reports[0][1].experts.rounds > 0, model.moe.dropless);
  for (const Order order : {Order::kEager, Order::kLate, Order::kFirstLate, Order::kFirstEager}) {
    SetOrder(order);
    const TinyRun run = Train(JobOf(layout, /*by_nccl=*/true, model), 2);
    EXPECT_EQ(run.losses(), expected.losses()) << LayoutText(layout) << ", " << OrderName(order);
    EXPECT_TRUE(run.weights == expected.weights) << LayoutText(layout) << ", " << OrderName(order);
    EXPECT_EQ(run.reports[0][1].experts, expected.reports[0][1].experts) << LayoutText(layout) << ", " << OrderName(order);
  }
  SetOrder(Order::kEager);
}

TEST(NcclExpertGroup, TrainsWithTheBitsOfTransfersThroughTheHosts) {
  ExpectTheBitsOfTransfersThroughTheHosts({.dp = 2, .ep = 2}, TinyMoe());
  ExpectTheBitsOfTransfersThroughTheHosts({.tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true, .zero = ZeroStage::kOptimizer},
                                          TinyMoe(DataType::kBfloat16));
}

// The rooms are too small. The ranks ask each other how many rounds they need, and exchange the rows of each round.
TEST(NcclExpertGroup, RunsRoundsWithTheBitsOfTransfersThroughTheHosts) {
  ModelSpec model = TinyMoe();
  model.layers = 1;
  model.moe.capacity = 0.5;
  model.moe.dropless = true;
  ExpectTheBitsOfTransfersThroughTheHosts({.dp = 2, .ep = 2}, model);
}

TEST(NcclExpertGroup, OfOneRankCopiesTheSlot) {
  TinyJob job = JobOf({.tp = 2}, true, SpecOf(TinyModel::kGpt));
  job.make_communicator = [layout = job.layout](int32_t rank, Communicator& host, Backend& backend) {
    return MakeNcclCommunicator({.layout = layout, .experts = true, .rank = rank}, host, backend);
  };
  job.experts = true;
  for (const absl::Status& status : OnRanks(job, [](TinyRank& rank) { return ExchangeOnDevice<float>(rank, 10); })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(NcclExpertGroup, CountsWhatItSends) {
  const auto statuses = OnRanks(JobOf({.dp = 3, .ep = 3}, true), [](TinyRank& rank) -> absl::Status {
    Communicator& communicator = *rank.communicator;
    const DeviceElements<float> send(rank.state->backend(), std::vector<float>(300)), receive = send;
    LYNX_RETURN_IF_ERROR(communicator.Barrier());
    const int64_t before = communicator.BytesSent();
    LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket,
                          communicator.StartAllToAll(Group::kExpert, send.data(), receive.data(), 100));
    LYNX_RETURN_IF_ERROR(communicator.Wait(ticket).status());
    EXPECT_EQ(communicator.BytesSent() - before, 2 * 100 * 4);
    return communicator.Barrier();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// NCCL connects two ranks in their first send or receive, and waits for the peer. The members must already be connected when
// the first all-to-all of a step starts, because other transfers may come before it on a peer.
TEST(NcclExpertGroup, IsConnectedBeforeTheFirstStep) {
  const auto statuses = OnRanks(JobOf({.dp = 2, .ep = 2}, true), [](TinyRank& rank) -> absl::Status {
    Communicator& communicator = *rank.communicator;
    const DeviceElements<float> send(rank.state->backend(), std::vector<float>(200, 1.0f));
    const DeviceElements<float> receive(rank.state->backend(), std::vector<float>(200));
    if (rank.rank == 1) LYNX_RETURN_IF_ERROR(communicator.Barrier());
    LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket,
                          communicator.StartAllToAll(Group::kExpert, send.data(), receive.data(), 100));
    if (rank.rank == 0) LYNX_RETURN_IF_ERROR(communicator.Barrier());  // rank 1 starts only after this
    LYNX_RETURN_IF_ERROR(communicator.Wait(ticket).status());
    EXPECT_EQ(receive.Values(), std::vector<float>(200, 1.0f));
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

TEST(NcclExpertGroup, AnErrorOfNcclInAnAllToAllEndsAll) {
  const auto statuses = OnRanks(JobOf({.dp = 3, .ep = 3}, true), [](TinyRank& rank) -> absl::Status {
    LYNX_RETURN_IF_ERROR(rank.communicator->Barrier());
    if (rank.rank == 1) cuda_on_host::FailTransfer(2, ncclRemoteError);
    LYNX_RETURN_IF_ERROR(rank.communicator->Barrier());
    const DeviceElements<float> send(rank.state->backend(), std::vector<float>(30)), receive = send;
    LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket,
                          rank.communicator->StartAllToAll(Group::kExpert, send.data(), receive.data(), 10));
    LYNX_RETURN_IF_ERROR(rank.communicator->Wait(ticket).status());
    (void)rank.state->backend().Finish();
    return rank.communicator->Barrier();
  });
  cuda_on_host::FailTransfer(0, ncclSuccess);
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("a transfer of the expert group: remote process exited"));
  }
}

}  // namespace
}  // namespace lynx::worker
