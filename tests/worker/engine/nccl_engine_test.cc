// Tests the engine on ranks whose devices communicate by NCCL. Libraries simulate CUDA and NCCL on the host
// (tests/worker/backend/cuda_on_host), in every order in which devices may do their work. If a mark between ops and transfers
// were missing, one of the orders would give other bits. Also tests that every rank ends if one rank is lost, at any place in a
// step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "common/status.h"
#include "planner/problem/stage_context.h"
#include "tests/worker/backend/cuda_on_host/scheduler.h"
#include "tests/worker/engine/tiny_cluster.h"
#include "worker/collectives/bounded_call.h"
#include "worker/collectives/nccl_communicator.h"
#include "worker/collectives/nccl_line.h"
#include "worker/collectives/peer_proof.h"

namespace lynx::worker {
namespace {

using cuda_on_host::Order;
using cuda_on_host::OrderName;
using cuda_on_host::SetOrder;
using testing::AnyOf;
using testing::HasSubstr;

constexpr int64_t kSteps = 2;  // the engine measures its use of the arena only in the first step

std::unique_ptr<Backend> MakeCuda() { return std::move(MakeCudaBackend(0).value()); }

TinyJob StagedJobOf(const TinySetting& setting) {
  TinyJob job{.model = SpecOf(setting)};
  job.model.layers = std::max(job.model.layers, PipelineOf(setting.layout).pieces());
  job.train.global_batch = 4;
  job.make_backend = MakeCuda;
  job.Lower(setting.layout, RecomputeMode::kNone);
  return job;
}

// Gives each rank the program of its stage.
void UseNccl(TinyJob& job, std::vector<Program> programs) {
  job.make_communicator = [layout = job.layout, programs = std::move(programs)](int32_t rank, Communicator& host,
                                                                                Backend& backend) {
    const Program& program = programs[static_cast<size_t>(CoordinatesOf(layout, rank).stage)];
    return MakeNcclCommunicator({.layout = layout, .rank = rank, .program = &program}, host, backend);
  };
}

void EndCallsLeftBehind() {
  cuda_on_host::ReleaseCalls();
  while (BoundedCall::LeftBehind() > 0) std::this_thread::yield();
}

std::vector<Program> ProgramsOf(const TinyJob& job) {
  std::vector<Program> programs;
  for (const auto& stage : job.stages) programs.push_back(stage.program);
  return programs;
}

TinyJob JobOf(const TinySetting& setting) {
  TinyJob job = StagedJobOf(setting);
  UseNccl(job, ProgramsOf(job));
  return job;
}

// The order in which the simulated devices do their work (SetOrder) applies to the whole process, so TearDown resets it.
class NcclEngine : public testing::TestWithParam<TinySetting> {
 protected:
  void TearDown() override {
    SetOrder(Order::kEager);
    EndCallsLeftBehind();
    EXPECT_EQ(cuda_on_host::LiveCommunicators(), 0);
  }
};

void ExpectTheBitsOfTransfersThroughTheHost(const TinySetting& setting) {
  const TinyRun expected = Train(StagedJobOf(setting), kSteps);
  for (const Order order : {Order::kEager, Order::kLate, Order::kFirstLate, Order::kFirstEager}) {
    SetOrder(order);
    cuda_on_host::TransfersIssued();
    const TinyRun run = Train(JobOf(setting), kSteps);
    EXPECT_GT(cuda_on_host::TransfersIssued(), 0);
    EXPECT_EQ(run.losses(), expected.losses()) << OrderName(order);
    EXPECT_TRUE(run.weights == expected.weights) << OrderName(order);
  }
  SetOrder(Order::kEager);
}

TEST_P(NcclEngine, HasTheBitsOfTransfersThroughTheHostInEveryOrder) { ExpectTheBitsOfTransfersThroughTheHost(GetParam()); }

TEST_P(NcclEngine, PoliciesHaveTheSameBits) {
  SetOrder(Order::kLate);
  TinyJob job = JobOf(GetParam());
  const TinyRun expected = Train(job, kSteps);
  for (const RecomputeMode mode : {RecomputeMode::kFull, RecomputeMode::kSelective}) {
    job.Lower(GetParam().layout, mode);
    const TinyRun run = Train(job, kSteps);
    EXPECT_EQ(run.losses(), expected.losses()) << EnumName(mode);
    EXPECT_TRUE(run.weights == expected.weights) << EnumName(mode);
  }
}

// The times of a transfer must be before the end of the wait for it.
TEST_P(NcclEngine, ActionsAndTransfersHaveTheirTimes) {
  const auto statuses = OnRanks(JobOf(GetParam()), [](TinyRank& rank) -> absl::Status {
    for (int64_t step = 0; step < kSteps; ++step) {
      LYNX_ASSIGN_OR_RETURN(const StepReport report, rank.engine->RunStep(step));
      EXPECT_GT(report.bytes_sent, 0);
      const Program& program = rank.engine->program();
      const std::vector<ActionTrace>& trace = rank.engine->trace();
      const std::vector<int32_t> starts = StartsOfWaits(program);
      constexpr Nanos kPrecision(2000);  // the precision of an event's time
      for (size_t i = 0; i < program.size(); ++i) {
        EXPECT_GT(trace[i].begin, Nanos(0));
        EXPECT_GE(trace[i].end + kPrecision, trace[i].begin);
        if (starts[i] < 0) continue;
        const ActionTrace& start = trace[starts[i]];
        EXPECT_GT(start.transfer_begin, Nanos(0));
        EXPECT_GE(start.transfer_end + kPrecision, start.transfer_begin) << ActionText(program[i]);
        EXPECT_GE(trace[i].end + kPrecision, start.transfer_end) << ActionText(program[i]);
      }
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

INSTANTIATE_TEST_SUITE_P(
    Settings, NcclEngine,
    testing::Values(TinySetting{TinyModel::kGpt, {.tp = 2, .sequence_parallel = true}},
                    TinySetting{TinyModel::kLlama, {.tp = 2, .pp = 2}, DataType::kBfloat16},
                    TinySetting{TinyModel::kTiedGpt, {.pp = 2, .dp = 2}},
                    TinySetting{TinyModel::kGpt, {.dp = 2, .zero = ZeroStage::kOptimizer}, DataType::kBfloat16},
                    TinySetting{TinyModel::kTiedGpt, {.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}},
                    TinySetting{TinyModel::kGpt, {.pp = 2, .schedule = ScheduleKind::kChimera}}),
    [](const auto& info) { return TestName(info.param); });

TEST(NcclName, TellsTheVersion) { EXPECT_EQ(NcclName(), "NCCL 2.28.3"); }

// A communicator that counts the transfers that a rank starts, and calls a function at one of them.
class StartsUntil : public Communicator {
 public:
  // When the rank starts transfer number `number`, `then` is called. If `then` returns OK, the transfer starts normally.
  // Otherwise the rank gets the error of `then`.
  StartsUntil(std::unique_ptr<Communicator> inner, int64_t number, std::function<absl::Status()> then)
      : inner_(std::move(inner)), left_(number), then_(std::move(then)) {}

  absl::StatusOr<TransferTicket> StartAllReduce(const Route& route, Elements data, int64_t count) override {
    LYNX_RETURN_IF_ERROR(Count());
    return inner_->StartAllReduce(route, data, count);
  }
  absl::StatusOr<TransferTicket> StartAllGather(const Route& route, Elements data, int64_t count) override {
    LYNX_RETURN_IF_ERROR(Count());
    return inner_->StartAllGather(route, data, count);
  }
  absl::StatusOr<TransferTicket> StartReduceScatter(const Route& route, Elements data, int64_t count) override {
    LYNX_RETURN_IF_ERROR(Count());
    return inner_->StartReduceScatter(route, data, count);
  }
  absl::StatusOr<TransferTicket> StartAllToAll(const Route& route, ConstElements send, Elements receive,
                                               int64_t count) override {
    LYNX_RETURN_IF_ERROR(Count());
    return inner_->StartAllToAll(route, send, receive, count);
  }
  absl::StatusOr<TransferTicket> StartSend(const Route& neighbour, ConstElements data, int64_t count) override {
    LYNX_RETURN_IF_ERROR(Count());
    return inner_->StartSend(neighbour, data, count);
  }
  absl::StatusOr<TransferTicket> StartRecv(const Route& neighbour, Elements data, int64_t count) override {
    LYNX_RETURN_IF_ERROR(Count());
    return inner_->StartRecv(neighbour, data, count);
  }
  absl::StatusOr<TransferTimes> Wait(TransferTicket ticket) override { return inner_->Wait(ticket); }
  absl::Status Barrier() override { return inner_->Barrier(); }
  void Abort(const absl::Status& reason) override { inner_->Abort(reason); }
  absl::Status Failure() const override { return inner_->Failure(); }
  void SetIdleTimeout(Nanos idle_timeout) override { inner_->SetIdleTimeout(idle_timeout); }
  int64_t BytesSent() const override { return inner_->BytesSent(); }
  Nanos ThreadCpuTime() const override { return inner_->ThreadCpuTime(); }

 private:
  absl::Status Count() { return --left_ == 0 ? then_() : absl::OkStatus(); }

  const std::unique_ptr<Communicator> inner_;
  int64_t left_;
  const std::function<absl::Status()> then_;
};

// Returns a job with two stages of two tensor-parallel ranks. It has every kind of transfer except those of the data group.
TinyJob FaultyJob() { return JobOf({TinyModel::kGpt, {.tp = 2, .pp = 2, .sequence_parallel = true}}); }

// Returns FaultyJob(), in which the last rank calls `then` when it starts transfer number `number`.
TinyJob FaultyJob(int64_t number, const std::function<absl::Status()>& then, Nanos idle_timeout = Nanos(0)) {
  TinyJob job = FaultyJob();
  job.make_communicator = [=, layout = job.layout](int32_t rank, Communicator& host,
                                                   Backend& backend) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    host.SetIdleTimeout(idle_timeout);
    LYNX_ASSIGN_OR_RETURN(auto nccl,
                          MakeNcclCommunicator({.layout = layout, .rank = rank, .idle_timeout = idle_timeout}, host, backend));
    if (rank != layout.ranks() - 1) return nccl;
    return std::make_unique<StartsUntil>(std::move(nccl), number, then);
  };
  return job;
}

absl::Status RunSteps(TinyRank& rank) {
  for (int64_t step = 0; step < 2; ++step) LYNX_RETURN_IF_ERROR(rank.engine->RunStep(step).status());
  return absl::OkStatus();
}

class NcclFault : public testing::TestWithParam<Order> {
 protected:
  void SetUp() override { SetOrder(GetParam()); }
  void TearDown() override {
    SetOrder(Order::kEager);
    EndCallsLeftBehind();
    EXPECT_EQ(cuda_on_host::LiveCommunicators(), 0);
  }
};

TEST_P(NcclFault, ARankThatEndsAnywhereEndsAll) {
  int64_t number = 1;
  for (;; number += number / 4 + 1) {
    const TinyJob job = FaultyJob(number, [] { return absl::DataLossError("rank 3 has had enough"); });
    const std::vector<absl::Status> statuses = OnRanks(job, RunSteps);
    if (statuses[3].ok()) break;
    EXPECT_EQ(statuses[3].code(), absl::StatusCode::kDataLoss);
    for (int32_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kUnavailable) << "start " << number << ": " << statuses[rank];
      EXPECT_THAT(std::string(statuses[rank].message()), HasSubstr("rank 3 has had enough"));
    }
  }
  EXPECT_GT(number, 100);
}

// The rank stops as if its machine were frozen, so the other ranks are not told.
TEST_P(NcclFault, ARankThatStopsAnywhereEndsAllWhenTheyHaveIdled) {
  for (const int64_t number : {2, 11, 30}) {
    std::mutex mutex;
    std::condition_variable changed;
    int ended = 0;
    const TinyJob job = FaultyJob(
        number,
        [&] {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return ended == 3; });
          return absl::OkStatus();
        },
        Nanos(300'000'000));
    const std::vector<absl::Status> statuses = OnRanks(job, [&](TinyRank& rank) {
      const absl::Status status = RunSteps(rank);
      if (!status.ok()) rank.communicator->Abort(status);
      const std::lock_guard lock(mutex);
      ++ended;
      changed.notify_all();
      return status;
    });
    bool one_has_idled = false;
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kUnavailable)) << status;
      one_has_idled |= absl::IsDeadlineExceeded(status);
    }
    EXPECT_TRUE(one_has_idled) << "start " << number;
  }
}

TEST_P(NcclFault, AnErrorOfNcclAnywhereEndsAll) {
  int64_t number = 1;
  for (;; number += number / 3 + 1) {
    cuda_on_host::FailTransfer(number, ncclRemoteError);
    const std::vector<absl::Status> statuses = OnRanks(FaultyJob(), RunSteps);
    cuda_on_host::FailTransfer(0, ncclSuccess);
    if (statuses[0].ok()) break;
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << "transfer " << number << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("NCCL: "));
      EXPECT_THAT(std::string(status.message()), HasSubstr("remote process exited"));
    }
  }
  EXPECT_GT(number, 400);
}

// From call number `calls` on, every call of CUDA, cuBLASLt and NCCL fails, on all ranks at once. No rank ends before all ranks
// have trained. Otherwise some ranks could end successfully before a call late in the last step fails.
TEST_P(NcclFault, AnyCallMayFail) {
  int64_t calls = 1;
  for (;; calls += calls / 2 + 1) {
    cuda_on_host::FailFromCall(calls);
    TinyJob job = FaultyJob();
    job.make_backend = []() -> std::unique_ptr<Backend> {
      absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(0);
      return backend.ok() ? std::move(*backend) : MakeCpuBackend(1);  // the CPU's backend is refused later
    };
    const std::vector<absl::Status> statuses = OnRanks(job, [](TinyRank& rank) -> absl::Status {
      LYNX_RETURN_IF_ERROR(RunSteps(rank));
      return rank.communicator->Barrier();
    });
    cuda_on_host::FailFromCall(0);
    const auto failed = std::count_if(statuses.begin(), statuses.end(), [](const auto& status) { return !status.ok(); });
    if (failed == 0) break;
    EXPECT_EQ(failed, 4) << "call " << calls;
  }
  EXPECT_GT(calls, 1000);
}

INSTANTIATE_TEST_SUITE_P(, NcclFault, testing::Values(Order::kEager, Order::kLate),
                         [](const auto& info) { return OrderName(info.param); });

// --- Tests of the lines.

// Returns the number of NCCL communicators of all ranks. If `shared`, all boundaries between two ranks share one communicator
// in each direction; otherwise each boundary has its own.
int64_t CommunicatorsOf(const ParallelLayout& layout, bool shared) {
  int64_t count = 0;
  for (int32_t rank = 0; rank < layout.ranks(); ++rank) {
    std::set<std::tuple<int32_t, bool, Direction>> bundles;
    for (const auto& line : LinesOf(layout, rank, LaneTable(layout, rank))) {
      const bool first = bundles.emplace(line->link().peer, line->backward(), line->info.direction).second;
      count += !shared || line->is_ring() || first ? 1 : 0;
    }
  }
  return count;
}

int64_t LiveCommunicatorsIn(const TinyJob& job) {
  std::atomic<int64_t> live = -1;
  const auto statuses = OnRanks(job, [&](TinyRank& rank) -> absl::Status {
    LYNX_RETURN_IF_ERROR(rank.communicator->Barrier());
    if (rank.rank == 0) live = cuda_on_host::LiveCommunicators();
    return rank.communicator->Barrier();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  return live;
}

TEST(NcclLines, BoundariesBetweenTwoRanksShareOneInEachDirection) {
  using enum ScheduleKind;
  for (const ParallelLayout& layout :
       {ParallelLayout{.pp = 2, .virtual_stages = 4, .schedule = kInterleaved},
        ParallelLayout{.pp = 4, .virtual_stages = 2, .schedule = kInterleaved},
        ParallelLayout{.tp = 2, .pp = 2, .virtual_stages = 2, .schedule = kInterleaved, .weave = WeaveMode::kPairs},
        ParallelLayout{.tp = 2, .pp = 2, .virtual_stages = 4, .schedule = kInterleaved, .weave = WeaveMode::kQuads},
        ParallelLayout{.tp = 2, .pp = 2, .virtual_stages = 4, .schedule = kInterleaved, .weave = WeaveMode::kNeighbours},
        ParallelLayout{.pp = 2, .virtual_stages = 8, .schedule = kInterleaved},
        ParallelLayout{.pp = 2, .dp = 2, .virtual_stages = 2, .schedule = kInterleaved, .rank_order = RankOrder::kTpDpPp},
        ParallelLayout{.pp = 4, .schedule = kZeroBubbleV}, ParallelLayout{.pp = 4, .schedule = kChimera}}) {
    EXPECT_EQ(LiveCommunicatorsIn(JobOf({TinyModel::kGpt, layout})), CommunicatorsOf(layout, true)) << LayoutText(layout);
  }
  // In both cases there is also a ring of the two ranks, that of the tied embedding.
  EXPECT_EQ(CommunicatorsOf({.pp = 2, .virtual_stages = 4, .schedule = kInterleaved}, true), 2 * (4 + 1));
  EXPECT_EQ(CommunicatorsOf({.pp = 2, .virtual_stages = 4, .schedule = kInterleaved}, false), 2 * (14 + 1));
}

TEST(NcclLines, TransfersOfVirtualStagesThatShareOneKeepTheirData) {
  using enum ScheduleKind;
  for (const ParallelLayout& layout :
       {ParallelLayout{.pp = 2, .virtual_stages = 4, .schedule = kInterleaved},
        ParallelLayout{.tp = 2, .pp = 2, .virtual_stages = 2, .schedule = kInterleaved, .weave = WeaveMode::kPairs}}) {
    SCOPED_TRACE(LayoutText(layout));
    ExpectTheBitsOfTransfersThroughTheHost({TinyModel::kGpt, layout});
  }
}

// If both orders used one communicator, NCCL would mix up transfers of different virtual stages.
TEST(NcclLines, RanksThatStartTransfersInOtherOrdersShareNone) {
  const ParallelLayout layout{.pp = 2, .virtual_stages = 4, .schedule = ScheduleKind::kInterleaved};
  TinyJob job = JobOf({TinyModel::kGpt, layout});
  std::vector<Program> programs = ProgramsOf(job);
  std::reverse(programs[1].begin(), programs[1].end());
  UseNccl(job, programs);
  EXPECT_EQ(LiveCommunicatorsIn(job), CommunicatorsOf(layout, false));
  UseNccl(job, {{}, {}});
  EXPECT_EQ(LiveCommunicatorsIn(job), CommunicatorsOf(layout, false)) << "the order is not known";
  const TinyRun expected = Train(StagedJobOf({TinyModel::kGpt, layout}), kSteps);
  EXPECT_EQ(Train(job, kSteps).losses(), expected.losses());
}

TEST(NcclLines, ADeviceHasAQueueForEach) {
  ParallelLayout layout{.pp = 2, .virtual_stages = 7, .schedule = ScheduleKind::kInterleaved};
  const auto check = [&](const char* setting) { return CheckQueues(LinesOf(layout, 0, LaneTable(layout, 0)), setting); };
  EXPECT_EQ(check("32"), absl::OkStatus());
  EXPECT_THAT(std::string(check("1").message()),
              HasSubstr("needs 30 device queues: for 27 routes, its ops, and copies to the host and back; "
                        "CUDA_DEVICE_MAX_CONNECTIONS allows 1: remove it from the environment of the daemon"));
  EXPECT_THAT(std::string(check(nullptr).message()), HasSubstr("allows 8"));
  EXPECT_THAT(std::string(check("many").message()), HasSubstr("allows 8"));
  layout.virtual_stages = 8;
  EXPECT_EQ(check("64").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(check("64").message()), HasSubstr("a GPU has 32: lower parallel.virtualStages"));
  layout = {};
  EXPECT_EQ(check("1"), absl::OkStatus()) << "a rank alone has no transfers";
}

// --- Tests of the communicator without an engine.

absl::Status Make(const NcclOptions& options, Communicator& host, Backend& backend) {
  return MakeNcclCommunicator(options, host, backend).status();
}

TEST(NcclCommunicator, PassesOnWhatATransferMayTake) {
  TinyJob job = FaultyJob();
  job.make_communicator = [layout = job.layout](int32_t rank, Communicator& host, Backend& backend) {
    return MakeNcclCommunicator({.layout = layout, .rank = rank, .min_ctas = 2, .max_ctas = 8}, host, backend);
  };
  for (const absl::Status& status : OnRanks(job, RunSteps)) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(cuda_on_host::NewestConfig().minCTAs, 2);
  EXPECT_EQ(cuda_on_host::NewestConfig().maxCTAs, 8);
  EXPECT_EQ(cuda_on_host::NewestConfig().blocking, 1);
}

TEST(NcclCommunicator, CountsWhatRingsSend) {
  constexpr int64_t kCount = 100, kBytes = kCount * 4;
  TinyJob job = JobOf({TinyModel::kGpt, {.tp = 2, .pp = 2}});
  const auto statuses = OnRanks(job, [](TinyRank& rank) -> absl::Status {
    LYNX_ASSIGN_OR_RETURN(const std::span<float> memory, rank.state->backend().Allocate(Bytes(2 * kBytes), "a buffer"));
    Communicator& communicator = *rank.communicator;
    const bool first = rank.coordinates.stage == 0;
    const auto sends = [&](int64_t bytes, absl::StatusOr<TransferTicket> ticket, int64_t before) -> absl::Status {
      LYNX_RETURN_IF_ERROR(ticket.status());
      LYNX_RETURN_IF_ERROR(communicator.Wait(*ticket).status());
      EXPECT_EQ(communicator.BytesSent() - before, bytes);
      return absl::OkStatus();
    };
    const auto sent = [&] { return communicator.BytesSent(); };
    LYNX_RETURN_IF_ERROR(communicator.Barrier());
    int64_t before = sent();
    LYNX_RETURN_IF_ERROR(sends(kBytes, communicator.StartAllReduce(Group::kTensor, memory.data(), kCount), before));
    before = sent();
    LYNX_RETURN_IF_ERROR(sends(kBytes, communicator.StartAllGather(Group::kTensor, memory.data(), kCount), before));
    before = sent();
    LYNX_RETURN_IF_ERROR(sends(kBytes, communicator.StartReduceScatter(Group::kTensor, memory.data(), kCount), before));
    before = sent();
    LYNX_RETURN_IF_ERROR(first ? sends(kBytes, communicator.StartSend(Group::kNextStage, memory.data(), kCount), before)
                               : sends(0, communicator.StartRecv(Group::kPreviousStage, memory.data(), kCount), before));
    return communicator.Barrier();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

std::unique_ptr<Communicator> Alone() {
  CommunicatorOptions options;
  options.peers.resize(1);
  options.secret = NewConnectionSecret();
  return ConnectTcp(options).value();
}

TEST(NcclCommunicator, SaysWhichOptionsCannotBe) {
  const std::unique_ptr<Backend> backend = MakeCuda();
  for (const auto& [least, most] : {std::pair(4, 2), std::pair(-1, 2), std::pair(0, -3)}) {
    const std::unique_ptr<Communicator> host = Alone();
    const absl::Status status = Make({.min_ctas = least, .max_ctas = most}, *host, *backend);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("give two numbers in order, or 0"));
    EXPECT_EQ(host->Failure().code(), absl::StatusCode::kInvalidArgument) << "its peers must learn of it";
  }
}

TEST(NcclCommunicator, NeedsADevice) {
  TinyJob job = FaultyJob();
  job.make_backend = [] { return MakeCpuBackend(1); };
  for (const absl::Status& status : OnRanks(job, RunSteps)) {
    EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kUnimplemented, absl::StatusCode::kUnavailable));
    EXPECT_THAT(std::string(status.message()), HasSubstr("has no queues of work beside its ops"));
  }
}

TEST(NcclCommunicator, OfARankAloneIsDoneAtOnce) {
  const std::unique_ptr<Backend> backend = MakeCuda();
  const std::unique_ptr<Communicator> host = Alone();
  const auto communicator = MakeNcclCommunicator({}, *host, *backend).value();
  const std::span<float> memory = backend->Allocate(Bytes(64), "a buffer").value();
  std::vector<TransferTicket> tickets;
  for (int i = 0; i < 1000; ++i) {  // more transfers than the communicator has room for at first
    tickets.push_back(communicator->StartAllReduce(Group::kTensor, memory.data(), 16).value());
  }
  for (const TransferTicket ticket : tickets) EXPECT_TRUE(communicator->Wait(ticket)->completed.is_mark());
  EXPECT_EQ(communicator->StartSend(Group::kNextStage, memory.data(), 16).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(communicator->BytesSent(), 0);
}

TEST(NcclCommunicator, WaitsForItsPeersNoLongerThanItIsTold) {
  TinyJob job = FaultyJob();
  job.make_communicator = [layout = job.layout](int32_t rank, Communicator& host, Backend& backend) {
    NcclOptions options{.layout = layout, .rank = rank};
    if (rank == 3) options.connect_timeout = Nanos(1);
    return MakeNcclCommunicator(options, host, backend);
  };
  const std::vector<absl::Status> statuses = OnRanks(job, RunSteps);
  EXPECT_EQ(statuses[3].code(), absl::StatusCode::kDeadlineExceeded) << statuses[3];
  EXPECT_THAT(std::string(statuses[3].message()), HasSubstr("has waited 1 ns for NCCL to "));
  for (int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kUnavailable);
  EndCallsLeftBehind();
}

// NCCL's abort never ends. The rank must end nevertheless, and its process must know that it may not end in the usual way.
TEST(NcclCommunicator, LeavesAnAbortBehindThatDoesNotEnd) {
  TinyJob job = FaultyJob();
  job.make_communicator = [layout = job.layout](int32_t rank, Communicator& host,
                                                Backend& backend) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    LYNX_ASSIGN_OR_RETURN(
        auto nccl,
        MakeNcclCommunicator({.layout = layout, .rank = rank, .connect_timeout = Nanos(2'000'000'000)}, host, backend));
    if (rank != 3) return nccl;
    return std::make_unique<StartsUntil>(std::move(nccl), 10, [] { return absl::DataLossError("rank 3 has had enough"); });
  };
  cuda_on_host::HoldAborts(true);
  const std::vector<absl::Status> statuses = OnRanks(job, RunSteps);
  EXPECT_GT(BoundedCall::LeftBehind(), 0);
  cuda_on_host::HoldAborts(false);
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 3 has had enough"));
  }
  EndCallsLeftBehind();
  EXPECT_EQ(cuda_on_host::LiveCommunicators(), 0);
}

// The last rank connects, and then starts no transfer. The first transfer of the rank before it then waits in NCCL's call.
TEST(NcclCommunicator, EndsACallThatWaitsForAPeerTooLong) {
  const ParallelLayout layout{.pp = 2};
  TinyJob job = JobOf({TinyModel::kGpt, layout});
  job.make_communicator = [layout](int32_t rank, Communicator& host, Backend& backend) {
    return MakeNcclCommunicator(
        {.layout = layout, .rank = rank, .connect_timeout = Nanos(rank == 0 ? 200'000'000 : 60'000'000'000)}, host, backend);
  };
  cuda_on_host::HoldConnections(1);
  const std::vector<absl::Status> statuses = OnRanks(job, RunSteps);
  cuda_on_host::HoldConnections(-1);
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("for NCCL to start a transfer"));
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kUnavailable) << statuses[1];
  EndCallsLeftBehind();
  EXPECT_EQ(cuda_on_host::LiveCommunicators(), 0);
}

}  // namespace
}  // namespace lynx::worker
