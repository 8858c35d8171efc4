#include "worker/rank/measure/measure_host.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "common/status.h"
#include "worker/engine/copy_thread.h"

namespace lynx::worker {
namespace {

constexpr int64_t kCopied = 4 << 20;  // number of elements; more than fit into caches
// The sizes of the products that run at the same time as copies: (128, 256) and (256, 256).
constexpr int64_t kRows = 128, kSide = 256;
constexpr size_t kCopiesBeside = 4;
constexpr int32_t kMaxSlowdown = 100'000;  // permille; the limit in a valid profile

class HostBench {
 public:
  HostBench(Backend& backend, const Stopwatch& stopwatch, float* device, float* products)
      : backend_(backend), stopwatch_(stopwatch), device_(device), products_(products), host_(kCopied, 0.0f), copies_(1) {}

  HostLink Run() {
    HostLink link;
    const HostCopy one{device_, host_.data(), Bytes(sizeof(float))};
    link.latency = TimeOf(std::span(&one, 1));
    const HostCopy out{device_, host_.data(), Bytes(kCopied * sizeof(float))};
    const HostCopy back{host_.data(), device_, out.bytes};
    link.to_host_bytes_per_second = RateOf(out);
    link.from_host_bytes_per_second = RateOf(back);
    // On the CPU, one thread makes the copies of both directions, one after another. So both directions together are no faster
    // than one. The larger rate is used, because a valid profile has no smaller value here.
    link.both_bytes_per_second = std::max(link.to_host_bytes_per_second, link.from_host_bytes_per_second);
    link.op_slowdown_permille = Slowdown(out);
    return link;
  }

 private:
  Nanos TimeOf(std::span<const HostCopy> copies) {
    return std::max(stopwatch_.MedianOf([&] { copies_.Wait(copies_.Start(copies)); }), Nanos(1));
  }

  int64_t RateOf(const HostCopy& copy) {
    const double seconds = 1e-9 * static_cast<double>(TimeOf(std::span(&copy, 1)).value);
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(copy.bytes.value) / seconds));
  }

  void Multiply(int64_t times) {
    float* const y = products_ + kRows * kSide;
    float* const w = y + kRows * kSide;
    for (int64_t i = 0; i < times; ++i) backend_.LinearForward(products_, w, nullptr, kRows, kSide, kSide, y);
  }

  // Measures how much copies slow down ops. The products take twice as long as the copies. The cost of the copies is the time
  // of both together minus the time of the products alone. On one core this cost is the whole time of the copies, in whatever
  // order the two run.
  int32_t Slowdown(const HostCopy& copy) {
    std::array<HostCopy, kCopiesBeside> copies;
    copies.fill(copy);
    const Nanos copying = TimeOf(copies);
    const Nanos product = std::max(stopwatch_.MedianOf([&] { Multiply(1); }), Nanos(1));
    const int64_t times = std::max<int64_t>(1, copying.value * 2 / product.value);
    const Nanos alone = stopwatch_.MedianOf([&] { Multiply(times); });
    const Nanos beside = stopwatch_.MedianOf([&] {
      const CopyThread::Ticket ticket = copies_.Start(copies);
      Multiply(times);
      copies_.Wait(ticket);
    });
    return SlowdownBesideCopies(copying, beside - alone);
  }

  Backend& backend_;
  const Stopwatch& stopwatch_;
  float* const device_;
  float* const products_;
  std::vector<float> host_;
  CopyThread copies_;
};

}  // namespace

int32_t SlowdownBesideCopies(Nanos copying, Nanos cost) {
  if (cost <= Nanos(0)) return 1000;
  if (cost >= copying) return kMaxSlowdown;
  return static_cast<int32_t>(std::min<int64_t>(1000 * copying.value / (copying - cost).value, kMaxSlowdown));
}

absl::StatusOr<HostLink> MeasureHost(Backend& backend, const Stopwatch& stopwatch) {
  LYNX_ASSIGN_OR_RETURN(const std::span<float> device, backend.Allocate(Bytes(kCopied * 4), "copies to the host"));
  LYNX_ASSIGN_OR_RETURN(const std::span<float> products,
                        backend.Allocate(Bytes((2 * kRows * kSide + kSide * kSide) * 4), "products beside copies"));
  std::fill(device.begin(), device.end(), 0.5f);
  std::fill(products.begin(), products.end(), 0.5f);
  return HostBench(backend, stopwatch, device.data(), products.data()).Run();
}

}  // namespace lynx::worker
