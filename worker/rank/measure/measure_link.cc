#include "worker/rank/measure/measure_link.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <thread>

#include "common/check.h"
#include "common/status.h"
#include "worker/backend/backend.h"
#include "worker/collectives/communicator.h"
#include "worker/collectives/peer_proof.h"
#include "worker/rank/measure/stopwatch.h"
#include "worker/rank/process/pinning.h"

namespace lynx::worker {
namespace {

constexpr int32_t kRanks = 2;
constexpr std::array<int64_t, 6> kSizes = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};  // bytes
constexpr int64_t kMaxFloats = kSizes.back() / 4;
// The number of transfers that follow each other in one measurement.
constexpr int32_t kTrain = 4;
// Before each measurement, this many bytes are transferred and not measured. On many links (those that a token bucket limits)
// the first bytes after a pause are faster than the rest. In a training step transfers follow each other, so only few of them
// gain from this.
constexpr Bytes kLead = kKiB * 256;
// The sizes of the product that runs at the same time as the transfers: (256, 768) and (768, 768), which takes some
// milliseconds. Like a layer's product it does not fit into a core's own cache. So a transfer that uses this cache slows both
// products equally.
constexpr int64_t kRows = 256, kSide = 768;
// The approximate time of the transfer that is measured with products. It lasts many time slices of the scheduler.
constexpr double kOverlapSeconds = 0.1;
constexpr int64_t kMinOverlapBytes = 1 << 20, kMaxOverlapBytes = 64 << 20;

int32_t Permille(double share) { return static_cast<int32_t>(std::llround(1000 * share)); }

// The results of one rank.
struct Findings {
  std::vector<TransferSample> samples;
  int32_t overlap_slowdown_permille = 1000;
  int32_t communication_compute_permille = 0;
};

// One of the two ranks. Both run the same sequence of transfers, because every number that determines the sequence is a
// constant, or the ranks agree on it by an all-reduce.
class LinkRank {
 public:
  LinkRank(Communicator& communicator, const LinkRequest& request)
      : communicator_(communicator), stopwatch_(request.repetitions, request.budget_seconds), repetitions_(request.repetitions),
        backend_(MakeCpuBackend(1)), data_(kMaxFloats, 0.0f), matrices_(2 * kRows * kSide + kSide * kSide, 0.5f) {}

  absl::StatusOr<Findings> Run() {
    for (int64_t bytes : kSizes) {
      LYNX_ASSIGN_OR_RETURN(const bool enough, EitherExpired());
      if (enough && findings_.samples.size() >= 2) break;
      LYNX_RETURN_IF_ERROR(MeasureSize(Bytes(bytes)));
    }
    LYNX_RETURN_IF_ERROR(MeasureOverlap());
    return findings_;
  }

 private:
  absl::Status AllReduce(int64_t count) {
    LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket, communicator_.StartAllReduce(Group::kTensor, data_.data(), count));
    return communicator_.Wait(ticket).status();
  }

  // True if one of the ranks has used up its time budget. The answer is the same on both.
  absl::StatusOr<bool> EitherExpired() {
    data_[0] = stopwatch_.expired() ? 1 : 0;
    LYNX_RETURN_IF_ERROR(AllReduce(1));
    return data_[0] > 0;
  }

  // Returns the mean of the values of both ranks.
  absl::StatusOr<double> Mean(double own) {
    data_[0] = static_cast<float>(own);
    LYNX_RETURN_IF_ERROR(AllReduce(1));
    return data_[0] / kRanks;
  }

  absl::Status MeasureSize(Bytes bytes) {
    LYNX_RETURN_IF_ERROR(AllReduce(bytes.value / 4));
    std::vector<Nanos> times;
    for (int32_t i = 0; i < repetitions_; ++i) {
      LYNX_RETURN_IF_ERROR(AllReduce(kLead.value / 4));
      const Nanos begin = stopwatch_.Now();
      for (int32_t k = 0; k < kTrain; ++k) LYNX_RETURN_IF_ERROR(AllReduce(bytes.value / 4));
      times.push_back((stopwatch_.Now() - begin) / kTrain);
      LYNX_ASSIGN_OR_RETURN(const bool enough, EitherExpired());
      if (enough) break;
    }
    // An all-reduce of two ranks has two steps, each with half of the bytes.
    findings_.samples.push_back({2, bytes, Median(times)});
    return absl::OkStatus();
  }

  void Multiply(int64_t times) {
    float* const x = matrices_.data();
    float* const y = x + kRows * kSide;
    float* const w = y + kRows * kSide;
    for (int64_t i = 0; i < times; ++i) backend_->LinearForward(x, w, nullptr, kRows, kSide, kSide, y);
  }

  // Measures two things: the processor time of the communication thread as a share of the time of a transfer, and how much more
  // processor time products take while a transfer runs. Processor times are used, because other work on the machine has little
  // influence on them.
  absl::Status MeasureOverlap() {
    const LinkCost link = FitLink(findings_.samples);
    LYNX_ASSIGN_OR_RETURN(const double rate, Mean(static_cast<double>(link.bytes_per_second)));
    const int64_t bytes = std::clamp<int64_t>(std::llround(rate * kOverlapSeconds), kMinOverlapBytes, kMaxOverlapBytes);
    data_.resize(std::max<size_t>(data_.size(), bytes / 4));
    Multiply(1);
    const Nanos product = std::max(CpuTimeOf([&] { Multiply(1); }), Nanos(1));
    // The products take half as long as the transfer, so that the transfer ends last.
    const double product_nanos = 0.5 * 1e9 * static_cast<double>(bytes) / rate;
    const int64_t products = std::max<int64_t>(1, std::llround(product_nanos / static_cast<double>(product.value)));
    std::vector<double> shares, slowdowns;
    for (bool enough = false; !enough && static_cast<int32_t>(shares.size()) < repetitions_;) {
      LYNX_ASSIGN_OR_RETURN(const double share, CommunicationShare(bytes / 4));
      shares.push_back(share);
      const Nanos alone = std::max(CpuTimeOf([&] { Multiply(products); }), Nanos(1));
      LYNX_ASSIGN_OR_RETURN(const Nanos beside, ProductsBeside(bytes / 4, products));
      slowdowns.push_back(static_cast<double>(beside.value) / static_cast<double>(alone.value));
      LYNX_ASSIGN_OR_RETURN(enough, EitherExpired());
    }
    findings_.communication_compute_permille = std::clamp(Permille(Median(shares)), 0, 1000);
    findings_.overlap_slowdown_permille = std::max(1000, Permille(Median(slowdowns)));
    return absl::OkStatus();
  }

  // Returns the processor time of the communication thread during a transfer, divided by the time of the transfer.
  absl::StatusOr<double> CommunicationShare(int64_t count) {
    LYNX_RETURN_IF_ERROR(communicator_.Barrier());
    const Nanos cpu_before = communicator_.ThreadCpuTime();
    const Nanos begin = stopwatch_.Now();
    LYNX_RETURN_IF_ERROR(AllReduce(count));
    const Nanos time = std::max(stopwatch_.Now() - begin, Nanos(1));
    return static_cast<double>((communicator_.ThreadCpuTime() - cpu_before).value) / static_cast<double>(time.value);
  }

  absl::StatusOr<Nanos> ProductsBeside(int64_t count, int64_t products) {
    LYNX_RETURN_IF_ERROR(communicator_.Barrier());
    LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket, communicator_.StartAllReduce(Group::kTensor, data_.data(), count));
    const Nanos time = CpuTimeOf([&] { Multiply(products); });
    LYNX_RETURN_IF_ERROR(communicator_.Wait(ticket).status());
    return time;
  }

  Communicator& communicator_;
  const Stopwatch stopwatch_;
  const int32_t repetitions_;
  const std::unique_ptr<Backend> backend_;
  std::vector<float> data_;
  std::vector<float> matrices_;
  Findings findings_;
};

absl::StatusOr<Findings> RunRank(const LinkRequest& request, int32_t rank, int listen_fd, const std::vector<PeerAddress>& peers,
                                 const std::string& secret) {
  if (!request.cores.empty()) LYNX_RETURN_IF_ERROR(PinCallingThread(request.cores[rank]).status());
  CommunicatorOptions options;
  options.job = JobId("measure-link");
  options.generation = Generation(1);
  options.secret = secret;
  options.layout = {.tp = kRanks, .pp = 1, .dp = 1};
  options.rank = rank;
  options.listen_fd = listen_fd;
  options.peers = peers;
  options.pacing_bytes_per_second = request.pacing_bytes_per_second;
  options.encrypt = request.encrypt;
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> communicator, ConnectTcp(options));
  absl::StatusOr<Findings> findings = LinkRank(*communicator, request).Run();
  if (!findings.ok()) communicator->Abort(findings.status());
  return findings;
}

}  // namespace

LinkCost FitLink(const std::vector<TransferSample>& samples) {
  LYNX_CHECK(samples.size() >= 2);
  // Finds a, the time of a step, and b, the time per byte. Minimizes the sum of ((a s + b x - t) / t)^2 over all samples (s
  // steps, x bytes, time t), by the normal equations with weights 1 / t^2.
  double ss = 0, sx = 0, xx = 0, st = 0, xt = 0;
  for (const TransferSample& sample : samples) {
    const auto s = static_cast<double>(sample.steps), x = static_cast<double>(sample.bytes.value);
    const double t = std::max(1.0, static_cast<double>(sample.time.value));
    const double weight = 1 / (t * t);
    ss += weight * s * s;
    sx += weight * s * x;
    xx += weight * x * x;
    st += weight * s * t;
    xt += weight * x * t;
  }
  const double determinant = ss * xx - sx * sx;
  double nanos_per_byte = determinant > 0 ? (ss * xt - sx * st) / determinant : 0;
  double latency = (st - nanos_per_byte * sx) / ss;
  if (latency < 0) {  // uses a line through the origin instead
    latency = 0;
    nanos_per_byte = xt / xx;
  }
  constexpr double kFastestNanosPerByte = 1e-3;  // 1 TB/s; used if noise hides the slope
  nanos_per_byte = std::max(nanos_per_byte, kFastestNanosPerByte);
  return {.latency = Nanos(std::llround(latency)),
          .bytes_per_second = std::max<int64_t>(1, std::llround(1e9 / nanos_per_byte))};
}

absl::StatusOr<LinkResult> MeasureLink(const LinkRequest& request) {
  return MeasureLink(request, {{request.host, request.host}, [](int32_t) { return absl::OkStatus(); }});
}

absl::StatusOr<LinkResult> MeasureLink(const LinkRequest& request, const LinkPlaces& places) {
  std::array<absl::StatusOr<ListeningSocket>, kRanks> sockets;
  std::array<absl::StatusOr<Findings>, kRanks> findings;
  std::array<std::thread, kRanks> threads;
  const auto for_both = [&](const std::function<absl::Status(int32_t rank)>& body) {
    std::array<absl::Status, kRanks> results;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      threads[rank] = std::thread([&, rank] {
        results[rank] = places.enter(rank);
        if (results[rank].ok()) results[rank] = body(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& result : results) LYNX_RETURN_IF_ERROR(result);
    return absl::OkStatus();
  };
  LYNX_RETURN_IF_ERROR(for_both([&](int32_t rank) {
    sockets[rank] = ListenTcp(places.hosts[rank]);
    return sockets[rank].status();
  }));
  std::vector<PeerAddress> peers;
  for (int32_t rank = 0; rank < kRanks; ++rank) peers.push_back({places.hosts[rank], sockets[rank]->port});
  const std::string secret = NewConnectionSecret();
  LYNX_RETURN_IF_ERROR(for_both([&](int32_t rank) {
    findings[rank] = RunRank(request, rank, sockets[rank]->fd, peers, secret);
    return findings[rank].status();
  }));

  // For each sample, takes the time of the slower rank.
  std::vector<TransferSample> samples = findings[0]->samples;
  for (size_t i = 0; i < samples.size(); ++i) samples[i].time = std::max(samples[i].time, findings[1]->samples[i].time);
  LinkResult result;
  result.link = FitLink(samples);
  result.overlap_slowdown_permille = std::max(findings[0]->overlap_slowdown_permille, findings[1]->overlap_slowdown_permille);
  result.communication_compute_permille =
      std::max(findings[0]->communication_compute_permille, findings[1]->communication_compute_permille);
  return result;
}

}  // namespace lynx::worker
