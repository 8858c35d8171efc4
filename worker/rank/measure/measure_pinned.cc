#include "worker/rank/measure/measure_pinned.h"

#include <algorithm>
#include <memory>
#include <span>

#include "common/bfloat16.h"
#include "common/status.h"
#include "worker/rank/measure/measure_host.h"

namespace lynx::worker {
namespace {

constexpr int64_t kCopied = 4 << 20;  // number of floats in each direction
// The products that run at the same time as copies are of square matrices of bfloat16, as in training. Their side is the
// smallest one between these two with which a product takes kLeastProduct. A smaller product leaves a part of a GPU idle.
constexpr int64_t kLeastSide = 256, kMaxSide = 4096;
constexpr Nanos kLeastProduct{20'000};

enum class Direction : uint8_t { kNone, kToHost, kFromHost, kBoth };

class PinnedBench {
 public:
  static absl::StatusOr<HostLink> Measure(Backend& backend, const Stopwatch& stopwatch) {
    constexpr Bytes kHalf(kCopied * static_cast<int64_t>(sizeof(float)));
    PinnedBench bench(backend, stopwatch);
    LYNX_ASSIGN_OR_RETURN(bench.device_, backend.Allocate(kHalf * 2, "copies to the host"));
    LYNX_ASSIGN_OR_RETURN(bench.pinned_, backend.AllocatePinned(kHalf * 2, "copies from the device"));
    constexpr Bytes kMatrices(3 * kMaxSide * kMaxSide * static_cast<int64_t>(sizeof(Bfloat16)));
    LYNX_ASSIGN_OR_RETURN(bench.products_, backend.Allocate(kMatrices, "products beside copies"));
    LYNX_ASSIGN_OR_RETURN(bench.out_, backend.MakeQueue());
    LYNX_ASSIGN_OR_RETURN(bench.back_, backend.MakeQueue());
    backend.Fill(bench.products_.data(), static_cast<int64_t>(bench.products_.size()), 0.5f);
    const HostLink link = bench.Run(kHalf);
    LYNX_RETURN_IF_ERROR(backend.Finish());
    return link;
  }

 private:
  PinnedBench(Backend& backend, const Stopwatch& stopwatch) : backend_(backend), stopwatch_(stopwatch) {}

  HostLink Run(Bytes half) {
    while (side_ < kMaxSide && TimeOf(Direction::kNone, Bytes(0), 1) < kLeastProduct) side_ *= 2;
    HostLink link;
    link.latency = TimeOf(Direction::kToHost, Bytes(sizeof(float)), 0);
    link.to_host_bytes_per_second = RateOf(half, TimeOf(Direction::kToHost, half, 0));
    link.from_host_bytes_per_second = RateOf(half, TimeOf(Direction::kFromHost, half, 0));
    const Nanos both = TimeOf(Direction::kBoth, half, 0);
    // In a valid profile, the rate of both directions together lies between these limits. Noise in the measurements could give
    // a value outside of them.
    const auto [slower, faster] = std::minmax(link.to_host_bytes_per_second, link.from_host_bytes_per_second);
    link.both_bytes_per_second = std::clamp(RateOf(half * 2, both), faster, slower + faster);
    // The products take twice as long as the copies that run at the same time.
    const Nanos product = TimeOf(Direction::kNone, Bytes(0), 1);
    const int64_t products = std::max<int64_t>(1, both.value * 2 / product.value);
    const Nanos cost = TimeOf(Direction::kBoth, half, products) - TimeOf(Direction::kNone, Bytes(0), products);
    link.op_slowdown_permille = SlowdownBesideCopies(both, cost);
    return link;
  }

  static int64_t RateOf(Bytes bytes, Nanos time) {
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(bytes.value) / Seconds(time)));
  }

  Nanos TimeOf(Direction direction, Bytes bytes, int64_t products) const {
    return std::max(stopwatch_.MedianTime([&] { return Once(direction, bytes, products); }), Nanos(1));
  }

  // Measures once, with copies in the given direction. Returns the time of the products; without products, returns the time of
  // the copies.
  Nanos Once(Direction direction, Bytes bytes, int64_t products) const {
    backend_.BeginMarks();
    const Moment begin = backend_.Mark();
    const bool out = direction == Direction::kToHost || direction == Direction::kBoth;
    const bool back = direction == Direction::kFromHost || direction == Direction::kBoth;
    if (out) {
      out_->Follow(begin);
      out_->Copy(device_.data(), bytes, pinned_.data());
    }
    if (back) {
      back_->Follow(begin);
      back_->Copy(pinned_.data() + kCopied, bytes, device_.data() + kCopied);
    }
    auto* const matrices = reinterpret_cast<Bfloat16*>(products_.data());
    for (int64_t i = 0; i < products; ++i) {
      backend_.bfloat16().LinearForward(matrices, matrices + side_ * side_, nullptr, side_, side_, side_,
                                        matrices + 2 * side_ * side_);
    }
    const Moment computed = backend_.Mark();
    if (out) backend_.Follow(out_->Mark());
    if (back) backend_.Follow(back_->Mark());
    const Moment all = backend_.Mark();
    (void)backend_.Finish();  // the error is ignored here; the last Finish returns it
    return backend_.TimeOf(products > 0 ? computed : all) - backend_.TimeOf(begin);
  }

  Backend& backend_;
  const Stopwatch& stopwatch_;
  std::span<float> device_, pinned_, products_;
  std::unique_ptr<DeviceQueue> out_, back_;
  int64_t side_ = kLeastSide;
};

}  // namespace

absl::StatusOr<HostLink> MeasurePinned(Backend& backend, const Stopwatch& stopwatch) {
  return PinnedBench::Measure(backend, stopwatch);
}

}  // namespace lynx::worker
