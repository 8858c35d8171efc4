#include "planner/cost/core_sharing.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace lynx {
namespace {

// The limit that CheckProfile sets for slowdowns.
constexpr int64_t kMaxSlowdown = 100'000;

int32_t SlowdownOf(int64_t ranks, int32_t at_once_permille) {
  return static_cast<int32_t>(std::clamp<int64_t>(ranks * 1'000'000 / at_once_permille, 1000, kMaxSlowdown));
}

}  // namespace

CoreSharing::CoreSharing(const ClusterTopology& cluster, const ParallelLayout& layout) {
  const size_t stages = static_cast<size_t>(layout.pp);
  for (const SharedCores& shared : cluster.shared_cores) {
    Pool pool{shared.at_once_permille, std::vector<int32_t>(stages)};
    int64_t ranks = 0;
    for (const int32_t device : shared.devices) {
      if (device >= layout.ranks()) break;
      ++pool.ranks[static_cast<size_t>(CoordinatesOf(layout, device).stage)];
      ++ranks;
    }
    if (ranks * 1000 > shared.at_once_permille) pools_.push_back(std::move(pool));
  }
  if (pools_.empty()) return;
  own_.assign(stages, 1000);
  for (const Pool& pool : pools_) {
    int32_t there = 0;
    for (size_t stage = 0; stage < stages; ++stage) {
      if (pool.ranks[stage] == 0) continue;
      ++there;
      own_[stage] = std::max(own_[stage], SlowdownOf(pool.ranks[stage], pool.at_once_permille));
    }
    between_stages_ = between_stages_ || there > 1;
  }
}

int32_t CoreSharing::Slowdown(int32_t stage, const std::vector<uint8_t>& computing) const {
  int32_t slowest = 1000;
  for (const Pool& pool : pools_) {
    if (pool.ranks[static_cast<size_t>(stage)] == 0) continue;
    int64_t ranks = 0;
    for (size_t other = 0; other < computing.size(); ++other) ranks += computing[other] != 0 ? pool.ranks[other] : 0;
    slowest = std::max(slowest, SlowdownOf(ranks, pool.at_once_permille));
  }
  return slowest;
}

HardwareProfile OnSharedCores(HardwareProfile profile, int32_t slowdown) {
  if (slowdown <= 1000) return profile;
  SlowCompute(profile, slowdown / 1000.0);
  const auto slower = [slowdown](int64_t rate) {
    return rate == 0 ? 0 : std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(rate) * 1000 / slowdown));
  };
  HostLink& host = profile.host;
  host.latency = std::min(kMaxTime, host.latency * slowdown / 1000);
  host.to_host_bytes_per_second = slower(host.to_host_bytes_per_second);
  host.from_host_bytes_per_second = slower(host.from_host_bytes_per_second);
  host.both_bytes_per_second = slower(host.both_bytes_per_second);
  profile.communication_compute_permille =
      static_cast<int32_t>(std::min<int64_t>(1000, int64_t{profile.communication_compute_permille} * slowdown / 1000));
  return profile;
}

SharedCompute::SharedCompute(const CoreSharing& sharing, int32_t stages)
    : sharing_(sharing), computing_(static_cast<size_t>(stages)), left_(computing_.size()), slowdown_(computing_.size(), 1000) {
}

void SharedCompute::Begin(int32_t stage, Nanos now, Nanos work) {
  AdvanceTo(now);
  LYNX_CHECK(computing_[static_cast<size_t>(stage)] == 0);
  computing_[static_cast<size_t>(stage)] = 1;
  left_[static_cast<size_t>(stage)] = work;
  FindSlowdowns();
}

std::optional<SharedCompute::End> SharedCompute::Next() const {
  std::optional<End> first;
  for (size_t i = 0; i < computing_.size(); ++i) {
    if (computing_[i] == 0) continue;
    const int64_t own = sharing_.OwnSlowdown(static_cast<int32_t>(i));
    const auto takes = static_cast<int64_t>((static_cast<__int128>(left_[i].value) * slowdown_[i] + own - 1) / own);
    if (!first || now_ + Nanos(takes) < first->at) first = End{static_cast<int32_t>(i), now_ + Nanos(takes)};
  }
  return first;
}

void SharedCompute::Finish(const End& end) {
  AdvanceTo(end.at);
  computing_[static_cast<size_t>(end.stage)] = 0;
  FindSlowdowns();
}

void SharedCompute::AdvanceTo(Nanos now) {
  if (now <= now_) return;
  for (size_t i = 0; i < computing_.size(); ++i) {
    if (computing_[i] == 0) continue;
    const int64_t own = sharing_.OwnSlowdown(static_cast<int32_t>(i));
    const Nanos done(static_cast<int64_t>(static_cast<__int128>((now - now_).value) * own / slowdown_[i]));
    left_[i] = std::max(Nanos(0), left_[i] - done);
  }
  now_ = now;
}

void SharedCompute::FindSlowdowns() {
  for (size_t i = 0; i < computing_.size(); ++i) {
    if (computing_[i] != 0) slowdown_[i] = sharing_.Slowdown(static_cast<int32_t>(i), computing_);
  }
}

}  // namespace lynx
