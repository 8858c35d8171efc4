#include "planner/cost/hardware_profile.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

bool IsTime(Nanos time) { return time.value >= 0 && time <= kMaxTime; }

bool AreTimes(const ShapeTimes& times) {
  return IsTime(times.optimizer_per_mega_parameter) && std::all_of(times.ops.begin(), times.ops.end(), [](const OpTimes& op) {
           return IsTime(op.forward) && IsTime(op.backward) && IsTime(op.weight);
         });
}

bool IsSlowdown(int32_t permille) { return permille >= 1000 && permille <= 100'000; }

// Computes log2(value) in units of 2^-kLogBits, rounded down. Each squaring of the mantissa gives one bit of the fraction.
constexpr int kLogBits = 24;
int64_t Log2(uint64_t value) {
  const int whole = std::bit_width(value) - 1;
  uint64_t mantissa = value << (63 - whole) >> 32;  // in [2^31, 2^32)
  int64_t log = whole;
  for (int i = 0; i < kLogBits; ++i) {
    mantissa = mantissa * mantissa >> 31;
    const bool carries = mantissa >> 32 != 0;
    if (carries) mantissa >>= 1;
    log = log * 2 + (carries ? 1 : 0);
  }
  return log;
}

// Returns what is wrong with the curve, or "" if the curve is right.
std::string CurveFault(const EfficiencyCurve& curve) {
  if (curve.size() > kMaxEfficiencyPoints) {
    return absl::StrCat("an efficiency curve has ", curve.size(), " points, more than ", kMaxEfficiencyPoints);
  }
  for (size_t i = 0; i < curve.size(); ++i) {
    if (curve[i].permille < 1 || curve[i].permille > 1000) {
      return absl::StrCat("an efficiency is ", curve[i].permille, " permille, not within 1 and 1000");
    }
    if (curve[i].size < 1) return absl::StrCat("an efficiency stands at size ", curve[i].size, ", which is below 1");
    if (i > 0 && curve[i].size <= curve[i - 1].size) {
      return absl::StrCat("an efficiency at size ", curve[i].size, " follows one at size ", curve[i - 1].size,
                          ": sort them by size");
    }
  }
  return "";
}

std::string TilesFault(const GemmTiles& tiles) {
  if (tiles == GemmTiles{}) return "";
  const int32_t least = std::min({tiles.units, tiles.rows, tiles.columns});
  const int32_t most = std::max({tiles.units, tiles.rows, tiles.columns});
  if (least >= 1 && most <= 1 << 20) return "";
  return absl::StrCat("products are tiled ", tiles.rows, " x ", tiles.columns, " over ", tiles.units,
                      " units: all must be from 1 to 1048576, or all 0");
}

std::string LinkLevelsFault(const std::vector<LinkLevel>& levels) {
  if (levels.size() > kMaxLinkLevels) {
    return absl::StrCat("there are ", levels.size(), " levels of inner links, more than ", kMaxLinkLevels);
  }
  int32_t inner = 1;
  for (const LinkLevel& level : levels) {
    if (level.devices <= inner || level.devices > 1 << 16 || level.devices % inner != 0) {
      return absl::StrCat("an inner link joins ", level.devices, " devices: must be a larger multiple of ", inner,
                          ", and at most 65536");
    }
    if (level.link.bytes_per_second <= 0 || !IsTime(level.link.latency)) {
      return absl::StrCat("the link among ", level.devices, " devices has ", level.link.bytes_per_second,
                          " bytes/s and a latency of ", FormatDuration(level.link.latency));
    }
    inner = level.devices;
  }
  return "";
}

std::string HostFault(const HostLink& host) {
  const int64_t sum = host.to_host_bytes_per_second + host.from_host_bytes_per_second;
  const int64_t least = std::min({host.to_host_bytes_per_second, host.from_host_bytes_per_second, host.both_bytes_per_second});
  const int64_t most = std::max(host.to_host_bytes_per_second, host.from_host_bytes_per_second);
  const bool none = most == 0 && host.both_bytes_per_second == 0;
  // The common rate of the two directions is at least the rate of the faster direction and at most the sum of both rates.
  if (least < 0 || most > int64_t{1} << 60 ||
      (!none && (least == 0 || host.both_bytes_per_second < most || host.both_bytes_per_second > sum))) {
    return absl::StrCat("copies to the host run at ", host.to_host_bytes_per_second, " bytes/s, from it at ",
                        host.from_host_bytes_per_second, ", both together at ", host.both_bytes_per_second,
                        ": all must be positive, the last from the larger of the others to their sum, or all 0");
  }
  if (!IsTime(host.latency)) return "the latency of copies to the host is no time";
  if (IsSlowdown(host.op_slowdown_permille)) return "";
  return absl::StrCat("ops beside a copy to the host take ", host.op_slowdown_permille,
                      " permille of their time, not within 1000 and 100000");
}

absl::Status Unusable(const HardwareProfile& profile, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("the hardware profile of \"", profile.device_kind, "\" is unusable: ", why, "; measure the nodes again"));
}

}  // namespace

int32_t EfficiencyAt(const EfficiencyCurve& curve, int64_t size) {
  if (curve.empty()) return 1000;
  const auto above = std::find_if(curve.begin(), curve.end(), [&](const EfficiencyPoint& p) { return p.size > size; });
  if (above == curve.begin()) return curve.front().permille;
  if (above == curve.end()) return curve.back().permille;
  const EfficiencyPoint& low = *(above - 1);
  const int64_t start = Log2(static_cast<uint64_t>(low.size));
  const int64_t whole = Log2(static_cast<uint64_t>(above->size)) - start;
  if (whole == 0) return low.permille;  // the logarithms of the two points differ by less than their last bit
  const int64_t part = Log2(static_cast<uint64_t>(size)) - start;
  return static_cast<int32_t>(low.permille + (above->permille - low.permille) * part / whole);
}

absl::Status CheckProfile(const HardwareProfile& profile) {
  const int64_t rate = std::min({profile.flops_per_second, profile.memory_bytes_per_second, profile.intra_node.bytes_per_second,
                                 profile.inter_node.bytes_per_second});
  if (rate <= 0) {
    return Unusable(profile, absl::StrCat("rates and bandwidths must be positive, and one is ", rate));
  }
  if (profile.bfloat16_flops_per_second < 0) {
    return Unusable(profile, absl::StrCat("its 16-bit rate is ", profile.bfloat16_flops_per_second, " FLOP/s"));
  }
  if (profile.float8_flops_per_second < 0) {
    return Unusable(profile, absl::StrCat("its 8-bit rate is ", profile.float8_flops_per_second, " FLOP/s"));
  }
  if (profile.float4_flops_per_second < 0) {
    return Unusable(profile, absl::StrCat("its 4-bit rate is ", profile.float4_flops_per_second, " FLOP/s"));
  }
  const bool times = IsTime(profile.op_overhead) && IsTime(profile.intra_node.latency) && IsTime(profile.inter_node.latency) &&
                     std::all_of(profile.measured.begin(), profile.measured.end(), AreTimes);
  if (!times) {
    return Unusable(profile, absl::StrCat("a time in it is negative or longer than ", FormatDuration(kMaxTime)));
  }
  std::string fault = TilesFault(profile.gemm_tiles);
  for (const EfficiencyCurve& curve : profile.efficiency) fault = fault.empty() ? CurveFault(curve) : fault;
  if (fault.empty()) fault = LinkLevelsFault(profile.inner_links);
  if (fault.empty()) fault = HostFault(profile.host);
  if (!fault.empty()) return Unusable(profile, fault);
  if (profile.adapters < 1 || profile.adapters > kMaxAdapters) {
    return Unusable(profile, absl::StrCat("a node has ", profile.adapters, " network adapters, not 1 to ", kMaxAdapters));
  }
  if (profile.pod_nodes < 0 || profile.pod_nodes > kMaxPodNodes || !IsSlowdown(profile.oversubscription_permille)) {
    return Unusable(profile, absl::StrCat("a pod has ", profile.pod_nodes, " nodes, not 0 to ", kMaxPodNodes,
                                          ", or its network is oversubscribed by ", profile.oversubscription_permille,
                                          " permille, not within 1000 and 100000"));
  }
  if (profile.oversubscription_permille > 1000 && profile.pod_nodes == 0) {
    return Unusable(profile, "its network is oversubscribed, but between which nodes is not said: give the nodes of a pod");
  }
  if (!IsSlowdown(profile.overlap_slowdown_permille)) {
    return Unusable(profile, absl::StrCat("the overlap slowdown is ", profile.overlap_slowdown_permille,
                                          " permille, not within 1000 and 100000"));
  }
  if (profile.communication_compute_permille < 0 || profile.communication_compute_permille > 1000) {
    return Unusable(profile, absl::StrCat("communication takes ", profile.communication_compute_permille,
                                          " permille of the core, not 0 to 1000"));
  }
  return absl::OkStatus();
}

void SlowCompute(HardwareProfile& profile, double factor) {
  const auto times = [factor](Nanos time) {
    return std::min(kMaxTime, Nanos(static_cast<int64_t>(static_cast<double>(time.value) * factor)));
  };
  const auto divided = [factor](int64_t rate) {
    return rate == 0 ? 0 : std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(rate) / factor));
  };
  for (ShapeTimes& shape : profile.measured) {
    for (OpTimes& op : shape.ops) op = {times(op.forward), times(op.backward), times(op.weight)};
    shape.optimizer_per_mega_parameter = times(shape.optimizer_per_mega_parameter);
  }
  profile.flops_per_second = divided(profile.flops_per_second);
  profile.bfloat16_flops_per_second = divided(profile.bfloat16_flops_per_second);
  profile.float8_flops_per_second = divided(profile.float8_flops_per_second);
  profile.float4_flops_per_second = divided(profile.float4_flops_per_second);
  profile.memory_bytes_per_second = divided(profile.memory_bytes_per_second);
  profile.op_overhead = times(profile.op_overhead);
}

HardwareProfile StatedCpuProfile() {
  HardwareProfile profile;
  profile.device_kind = "cpu: stated, not measured";
  profile.flops_per_second = 40'000'000'000;
  profile.memory_bytes_per_second = 8'000'000'000;
  profile.op_overhead = Nanos(5'000);
  profile.intra_node = {Nanos(60'000), 1'500'000'000};
  profile.inter_node = {Nanos(150'000), 115'000'000};  // one gigabit per second, minus what the frames of the network take
  profile.overlap_slowdown_permille = 1100;
  profile.communication_compute_permille = 300;
  return profile;
}

}  // namespace lynx
