#include "worker/rank/measure/measure_gpu_links.h"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "common/bfloat16.h"
#include "common/status.h"
#include "worker/collectives/nccl_communicator.h"
#include "worker/collectives/peer_proof.h"
#include "worker/rank/measure/measure_link.h"
#include "worker/rank/measure/stopwatch.h"
#include "worker/rank/process/pinning.h"

namespace lynx::worker {
namespace {

constexpr int64_t kFloat = sizeof(float);
// The number of transfers that follow each other in one measurement. As in training, the host issues a transfer while the
// device is busy with another one.
constexpr int64_t kTrain = 4;
constexpr Nanos kConnectTimeout{20'000'000'000};
constexpr int32_t kMaxSlowdown = 100'000;  // permille; the limit in a valid profile

// The results of one rank in one layout.
struct Findings {
  std::vector<TransferSample> samples;
  int32_t overlap_slowdown_permille = 1000, communication_compute_permille = 0;
  Bytes memory;  // GPU memory that NCCL took for the routes
};

// A layout in which the ranks measure, and the addresses at which they connect.
struct Round {
  ParallelLayout layout;
  std::vector<ListeningSocket> sockets;
  std::vector<PeerAddress> peers;
  std::string secret = NewConnectionSecret();
};

absl::StatusOr<Round> MakeRound(const ParallelLayout& layout, const std::string& host) {
  Round round{.layout = layout};
  for (int32_t rank = 0; rank < layout.ranks(); ++rank) {
    LYNX_ASSIGN_OR_RETURN(const ListeningSocket socket, ListenTcp(host));
    round.sockets.push_back(socket);
    round.peers.push_back({host, socket.port});
  }
  return round;
}

int64_t MostFloats(const GpuLinkSizes& sizes) { return sizes.transfers.back().value / kFloat; }
int64_t MatrixElements(const GpuLinkSizes& sizes) { return sizes.product_side * sizes.product_side; }
// The number of floats in the memory of three matrices of bfloat16.
int64_t ProductFloats(const GpuLinkSizes& sizes) { return (3 * MatrixElements(sizes) + 1) / 2; }

// What is measured: the request, the sizes, and the layouts.
struct Setting {
  const GpuLinksRequest& request;
  const GpuLinkSizes& sizes;
  const std::vector<Round>& rounds;  // kRings, kMessages, then from kBlocks on a round for each of request.blocks
};

// Indices of the rounds, in the order in which they run. kRings: all GPUs are in one ring; this round also measures transfers
// at the same time as products. kMessages: neighbours send messages. kBlocks: the first of the rounds for blocks.
constexpr size_t kRings = 0, kMessages = 1, kBlocks = 2;

// Measures the GPU links of one rank in one layout. All ranks run the same transfers, because their number is a constant or the
// ranks agree on it.
class GpuLinkBench {
 public:
  // `memory`: room for MostFloats floats and three matrices.
  GpuLinkBench(const Setting& setting, const Stopwatch& stopwatch, const Round& round, int32_t rank, Backend& backend,
               std::span<float> memory)
      : setting_(setting), stopwatch_(stopwatch), round_(round), rank_(rank), backend_(backend), memory_(memory) {}

  absl::StatusOr<Findings> Run(bool with_overlap) {
    LYNX_RETURN_IF_ERROR(Connect());
    absl::Status status = round_.layout.tp > 1 ? MeasureRings() : MeasureMessages();
    if (status.ok() && with_overlap) status = MeasureOverlap();
    if (status.ok()) status = backend_.Finish();
    if (status.ok()) return findings_;
    devices_->Abort(status);
    return status;
  }

 private:
  absl::Status Connect() {
    CommunicatorOptions options;
    options.job = JobId("measure-gpu-links");
    options.generation = Generation(1);
    options.secret = round_.secret;
    options.layout = round_.layout;
    options.rank = rank_;
    options.listen_fd = round_.sockets[static_cast<size_t>(rank_)].fd;
    options.peers = round_.peers;
    options.connect_timeout = kConnectTimeout;
    LYNX_ASSIGN_OR_RETURN(hosts_, ConnectTcp(options));
    LYNX_ASSIGN_OR_RETURN(const Bytes before, backend_.FreeMemory());
    LYNX_ASSIGN_OR_RETURN(devices_, MakeNcclCommunicator({.layout = round_.layout, .rank = rank_}, *hosts_, backend_));
    LYNX_ASSIGN_OR_RETURN(const Bytes after, backend_.FreeMemory());
    findings_.memory = std::max(before - after, Bytes(0));
    return absl::OkStatus();
  }

  // True if any rank has used up its time budget. The answer is the same on all ranks.
  absl::StatusOr<bool> AnyExpired() {
    float expired = stopwatch_.expired() ? 1 : 0;
    LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket, hosts_->StartAllReduce(Group::kWorld, &expired, 1));
    LYNX_RETURN_IF_ERROR(hosts_->Wait(ticket).status());
    return expired > 0;
  }
  // Returns the largest value of all ranks.
  absl::StatusOr<Nanos> Largest(Nanos own) {
    const auto ranks = static_cast<size_t>(round_.layout.ranks());
    std::vector<float> times(ranks, 0.0f);
    times[static_cast<size_t>(rank_)] = static_cast<float>(own.value);
    LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket,
                          hosts_->StartAllReduce(Group::kWorld, times.data(), static_cast<int64_t>(ranks)));
    LYNX_RETURN_IF_ERROR(hosts_->Wait(ticket).status());
    return Nanos(static_cast<int64_t>(*std::max_element(times.begin(), times.end())));
  }

  // Repeats `once`, and returns the median of the times that it returns.
  template <class Once>
  absl::StatusOr<Nanos> MedianOf(const Once& once) {
    std::vector<Nanos> times;
    LYNX_RETURN_IF_ERROR(once().status());  // the first run only warms up
    for (bool enough = false; !enough && static_cast<int32_t>(times.size()) < setting_.request.repetitions;) {
      LYNX_RETURN_IF_ERROR(hosts_->Barrier());
      LYNX_ASSIGN_OR_RETURN(const Nanos time, once());
      times.push_back(std::max(time, Nanos(1)));
      LYNX_ASSIGN_OR_RETURN(enough, AnyExpired());
    }
    return Largest(Median(times));
  }

  // Measures the time of one transfer. `start` starts a transfer; kTrain of them follow each other.
  template <class Start>
  absl::Status Sample(int64_t steps, int64_t bytes, const Start& start) {
    const auto once = [&]() -> absl::StatusOr<Nanos> {
      backend_.BeginMarks();
      const Moment begin = backend_.Mark();
      for (int64_t i = 0; i < kTrain; ++i) {
        const absl::StatusOr<TransferTicket> ticket = start();
        LYNX_RETURN_IF_ERROR(ticket.status());
        LYNX_RETURN_IF_ERROR(devices_->Wait(*ticket).status());
      }
      const Moment end = backend_.Mark();
      LYNX_RETURN_IF_ERROR(backend_.Finish());
      return (backend_.TimeOf(end) - backend_.TimeOf(begin)) / kTrain;
    };
    LYNX_ASSIGN_OR_RETURN(const Nanos time, MedianOf(once));
    findings_.samples.push_back({steps, Bytes(bytes), time});
    return absl::OkStatus();
  }

  // True if the ranks should stop here, with the sizes that have been measured so far.
  absl::StatusOr<bool> Enough(Bytes size) {
    LYNX_ASSIGN_OR_RETURN(const bool expired, AnyExpired());
    return expired && size > setting_.sizes.transfers[1];
  }

  absl::Status MeasureRings() {
    const int64_t ranks = round_.layout.tp;
    for (const Bytes size : setting_.sizes.transfers) {
      LYNX_ASSIGN_OR_RETURN(const bool enough, Enough(size));
      if (enough) break;
      const int64_t slot = size.value / kFloat / ranks;
      const int64_t sent = (ranks - 1) * slot * kFloat;
      float* const data = memory_.data();
      LYNX_RETURN_IF_ERROR(
          Sample(2 * (ranks - 1), 2 * sent, [&] { return devices_->StartAllReduce(Group::kTensor, data, slot * ranks); }));
      LYNX_RETURN_IF_ERROR(Sample(ranks - 1, sent, [&] { return devices_->StartAllGather(Group::kTensor, data, slot); }));
      LYNX_RETURN_IF_ERROR(Sample(ranks - 1, sent, [&] { return devices_->StartReduceScatter(Group::kTensor, data, slot); }));
    }
    return absl::OkStatus();
  }

  // Measures messages: each rank of an even stage sends to the next stage.
  absl::Status MeasureMessages() {
    const bool sends = rank_ % 2 == 0, alone = sends && rank_ + 1 == round_.layout.pp;
    for (const Bytes size : setting_.sizes.transfers) {
      LYNX_ASSIGN_OR_RETURN(const bool enough, Enough(size));
      if (enough) break;
      const int64_t count = size.value / kFloat;
      LYNX_RETURN_IF_ERROR(Sample(1, size.value, [&]() -> absl::StatusOr<TransferTicket> {
        // If the number of ranks is odd, the last rank has no partner. It only takes part in what the ranks agree on.
        if (alone) return devices_->StartAllReduce({Group::kTensor}, memory_.data(), 1);
        return sends ? devices_->StartSend({Group::kNextStage, rank_}, memory_.data(), count)
                     : devices_->StartRecv({Group::kPreviousStage, rank_}, memory_.data(), count);
      }));
    }
    return absl::OkStatus();
  }

  void Multiply(int64_t products) {
    auto* const x = reinterpret_cast<Bfloat16*>(memory_.data() + MostFloats(setting_.sizes));
    const int64_t side = setting_.sizes.product_side, matrix = MatrixElements(setting_.sizes);
    for (int64_t i = 0; i < products; ++i) {
      backend_.bfloat16().LinearForward(x, x + matrix, nullptr, side, side, side, x + 2 * matrix);
    }
  }

  struct Times {
    Nanos products, all;
  };
  // Measures the time of `products` products. If `transfers` is true, an all-reduce of the largest size runs at the same time.
  absl::StatusOr<Times> Beside(int64_t products, bool transfers) {
    Times times;
    const auto once = [&]() -> absl::StatusOr<Nanos> {
      backend_.BeginMarks();
      const Moment begin = backend_.Mark();
      std::optional<TransferTicket> ticket;
      if (transfers) {
        LYNX_ASSIGN_OR_RETURN(ticket, devices_->StartAllReduce(Group::kTensor, memory_.data(), MostFloats(setting_.sizes)));
      }
      Multiply(products);
      const Moment computed = backend_.Mark();
      if (ticket.has_value()) LYNX_RETURN_IF_ERROR(devices_->Wait(*ticket).status());
      const Moment all = backend_.Mark();
      LYNX_RETURN_IF_ERROR(backend_.Finish());
      times.products = backend_.TimeOf(computed) - backend_.TimeOf(begin);
      return backend_.TimeOf(all) - backend_.TimeOf(begin);
    };
    std::vector<Nanos> of_products;
    LYNX_ASSIGN_OR_RETURN(times.all, MedianOf([&]() -> absl::StatusOr<Nanos> {
                            LYNX_ASSIGN_OR_RETURN(const Nanos all, once());
                            of_products.push_back(times.products);
                            return all;
                          }));
    LYNX_ASSIGN_OR_RETURN(times.products, Largest(Median(of_products)));
    return times;
  }

  // Measures how much matrix products and a transfer slow each other down, with two numbers of products. `half` products take
  // half the time of the transfer; they show how much longer ops take during a transfer. `whole` products take as long as the
  // transfer; they show how much time is lost although both run at the same time. If the transfer takes T, the products take P,
  // and both together take M, then P + T - M was hidden.
  absl::Status MeasureOverlap() {
    backend_.Fill(memory_.data(), static_cast<int64_t>(memory_.size()), 0.5f);
    LYNX_ASSIGN_OR_RETURN(const Times transfer, Beside(0, true));
    LYNX_ASSIGN_OR_RETURN(const Times product, Beside(1, false));
    const int64_t whole = std::max<int64_t>(1, transfer.all.value / std::max<int64_t>(1, product.products.value));
    const int64_t half = std::max<int64_t>(1, whole / 2);
    LYNX_ASSIGN_OR_RETURN(const Times half_alone, Beside(half, false));
    LYNX_ASSIGN_OR_RETURN(const Times half_beside, Beside(half, true));
    LYNX_ASSIGN_OR_RETURN(const Times whole_alone, Beside(whole, false));
    LYNX_ASSIGN_OR_RETURN(const Times whole_beside, Beside(whole, true));
    const OverlapCost cost = OverlapOf({.transfer = transfer.all,
                                        .few = half_alone.products,
                                        .few_beside = half_beside.products,
                                        .many = whole_alone.products,
                                        .both = whole_beside.all});
    findings_.overlap_slowdown_permille = cost.slowdown_permille;
    findings_.communication_compute_permille = cost.lost_permille;
    return absl::OkStatus();
  }

  const Setting& setting_;
  const Stopwatch& stopwatch_;
  const Round& round_;
  const int32_t rank_;
  Backend& backend_;
  const std::span<float> memory_;
  std::unique_ptr<Communicator> hosts_, devices_;  // hosts_ is made first
  Findings findings_;
};

// Runs all rounds on one rank. The rounds start when all ranks have their backends.
class GpuRank {
 public:
  absl::Status Prepare(const Setting& setting, int32_t rank, const MakeGpuBackend& make_backend) {
    const std::vector<std::vector<int32_t>>& cores = setting.request.cores;
    if (!cores.empty()) LYNX_RETURN_IF_ERROR(PinCallingThread(cores[static_cast<size_t>(rank)]).status());
    LYNX_ASSIGN_OR_RETURN(backend_, make_backend(rank));
    const Bytes bytes((MostFloats(setting.sizes) + ProductFloats(setting.sizes)) * kFloat);
    LYNX_ASSIGN_OR_RETURN(memory_, backend_->Allocate(bytes, "transfers and products"));
    return backend_->Finish();
  }

  absl::Status Run(const Setting& setting, int32_t rank) {
    const Stopwatch stopwatch(setting.request.repetitions, setting.request.budget_seconds);
    for (size_t i = 0; i < setting.rounds.size(); ++i) {
      LYNX_ASSIGN_OR_RETURN(
          Findings found,
          GpuLinkBench(setting, stopwatch, setting.rounds[i], rank, *backend_, memory_).Run(/*with_overlap=*/i == kRings));
      findings_.push_back(std::move(found));
    }
    return absl::OkStatus();
  }

  void End() { backend_.reset(); }  // call it on the thread that made the backend
  const std::vector<Findings>& findings() const { return findings_; }

 private:
  std::unique_ptr<Backend> backend_;
  std::span<float> memory_;
  std::vector<Findings> findings_;
};

// Runs every rank on a thread of its own. The ranks connect only if Prepare succeeded on all of them.
absl::Status RunRanks(const Setting& setting, const MakeGpuBackend& make_backend, std::vector<GpuRank>& ranks) {
  std::vector<absl::Status> statuses(ranks.size());
  std::barrier prepared(static_cast<std::ptrdiff_t>(ranks.size()));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto rank = static_cast<int32_t>(i);
      statuses[i] =
          Annotate(ranks[i].Prepare(setting, rank, make_backend), absl::StrCat("GPU ", setting.request.device_uuids[i]));
      prepared.arrive_and_wait();
      const bool all = std::all_of(statuses.begin(), statuses.end(), [](const absl::Status& one) { return one.ok(); });
      prepared.arrive_and_wait();  // after this, all threads have read the statuses
      if (all) statuses[i] = ranks[i].Run(setting, rank);
      ranks[i].End();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) LYNX_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

// Fits a link to the samples of one rank. The samples are the same on all ranks.
LinkCost LinkOf(const Findings& rings, const Findings* messages) {
  std::vector<TransferSample> samples = rings.samples;
  if (messages != nullptr) samples.insert(samples.end(), messages->samples.begin(), messages->samples.end());
  return FitLink(samples);
}

}  // namespace

OverlapCost OverlapOf(const OverlapTimes& times) {
  const auto ratio = [](Nanos a, Nanos b) {
    return static_cast<double>(a.value) / static_cast<double>(std::max<int64_t>(b.value, 1));
  };
  const double slowdown = std::clamp(ratio(times.few_beside, times.few), 1.0, kMaxSlowdown / 1000.0);
  const Nanos hidden = std::clamp(times.many + times.transfer - times.both, Nanos(0), std::min(times.many, times.transfer));
  // The part of the shorter one, products or transfer, that ran while the other one ran.
  const double share = ratio(hidden, std::min(times.many, times.transfer));
  return {.slowdown_permille = static_cast<int32_t>(std::lround(1000 * slowdown)),
          .lost_permille = static_cast<int32_t>(std::lround(1000 * std::clamp(1 - share * slowdown, 0.0, 1.0)))};
}

absl::StatusOr<GpuLinksResult> MeasureGpuLinks(const GpuLinksRequest& request, const MakeGpuBackend& make_backend,
                                               const GpuLinkSizes& sizes) {
  if (NcclName().empty()) {
    return absl::UnimplementedError("lynx-rank was built without NCCL, by which the links between GPUs are measured");
  }
  const auto gpus = static_cast<int32_t>(request.device_uuids.size());
  std::vector<ParallelLayout> layouts(kBlocks);
  layouts[kRings] = {.tp = gpus};
  layouts[kMessages] = {.pp = gpus};
  for (const int32_t block : request.blocks) layouts.push_back({.tp = block, .dp = gpus / block});
  std::vector<Round> rounds;
  for (const ParallelLayout& layout : layouts) {
    LYNX_ASSIGN_OR_RETURN(Round round, MakeRound(layout, request.host));
    rounds.push_back(std::move(round));
  }
  std::vector<GpuRank> ranks(static_cast<size_t>(gpus));
  LYNX_RETURN_IF_ERROR(RunRanks({request, sizes, rounds}, make_backend, ranks));
  const std::vector<Findings>& found = ranks.front().findings();
  GpuLinksResult result;
  result.link = LinkOf(found[kRings], &found[kMessages]);
  for (size_t i = 0; i < request.blocks.size(); ++i) {
    result.inner_links.push_back({request.blocks[i], LinkOf(found[kBlocks + i], nullptr)});
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Findings &own = ranks[i].findings()[kRings], &messages = ranks[i].findings()[kMessages];
    // Each rank has two routes for each neighbour, one in each direction. The first and the last rank have one neighbour, and
    // one more route for the tied embedding.
    const int64_t routes = i == 0 || i + 1 == ranks.size() ? 3 : 4;
    const Bytes route = messages.memory / routes;
    result.overlap_slowdown_permille = std::max(result.overlap_slowdown_permille, own.overlap_slowdown_permille);
    result.communication_compute_permille = std::max(result.communication_compute_permille, own.communication_compute_permille);
    result.route_memory = std::max(result.route_memory, route);
    // NCCL itself is created together with the first route.
    result.nccl_memory = std::max(result.nccl_memory, own.memory - route);
  }
  return result;
}

}  // namespace lynx::worker
