#include "cli/spec/cluster_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/spec/measured_text.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

constexpr size_t kMaxName = 100;  // the longest name that the reader accepts, in bytes
constexpr const char* kCurveNames[] = {"gemm", "attention", "attentionBackward", "scores",
                                       "memory"};  // the index is the OpClass
static_assert(std::size(kCurveNames) == kOpClassCount);

// In double quotes, at most kMaxName bytes of it, cut between characters of UTF-8.
std::string Quoted(std::string text) {
  if (text.size() > kMaxName) {
    size_t end = kMaxName;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    text.resize(end);
  }
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&quoted, "\\x%02x", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string FlopText(int64_t flops) {
  constexpr int64_t kMega = 1'000'000;
  if (flops % kMega == 0) return absl::StrCat(flops / kMega, "MFLOP");
  return absl::StrFormat("%d.%06dMFLOP", flops / kMega, flops % kMega);
}
std::string FlopRateText(int64_t rate) { return FlopText(rate) + "/s"; }
std::string ByteRateText(int64_t rate) { return absl::StrCat(rate, "B/s"); }
std::string SizeText(Bytes size) { return absl::StrCat(size.value, "B"); }
std::string TimeText(Nanos time) { return absl::StrCat(time.value, "ns"); }
std::string PermilleText(int32_t permille) { return absl::StrFormat("%d.%03d", permille / 1000, permille % 1000); }

std::string LinkText(const LinkCost& link) {
  return absl::StrCat("latency: ", TimeText(link.latency), ", bandwidth: ", ByteRateText(link.bytes_per_second));
}

std::string CurveText(OpClass op_class, const EfficiencyCurve& curve) {
  return absl::StrJoin(curve, ", ", [&](std::string* out, const EfficiencyPoint& point) {
    std::string size = absl::StrCat(point.size);
    if (op_class == OpClass::kGemm) size = FlopText(point.size);
    if (op_class == OpClass::kScores || op_class == OpClass::kMemory) size = SizeText(Bytes(point.size));
    absl::StrAppend(out, "{size: ", size, ", share: ", PermilleText(point.permille), "}");
  });
}

std::string DeviceText(const NodeGroup& group) {
  const HardwareProfile& p = group.profile;
  std::string text = absl::StrCat("      kind: ", Quoted(p.device_kind), "\n      memory: ", SizeText(group.memory_per_device),
                                  "\n      peak: {float32: ", FlopRateText(p.flops_per_second));
  if (p.bfloat16_flops_per_second > 0) absl::StrAppend(&text, ", bfloat16: ", FlopRateText(p.bfloat16_flops_per_second));
  if (p.float8_flops_per_second > 0) absl::StrAppend(&text, ", float8: ", FlopRateText(p.float8_flops_per_second));
  if (p.float4_flops_per_second > 0) absl::StrAppend(&text, ", float4: ", FlopRateText(p.float4_flops_per_second));
  absl::StrAppend(&text, "}\n      memoryBandwidth: ", ByteRateText(p.memory_bytes_per_second),
                  "\n      opOverhead: ", TimeText(p.op_overhead), "\n");
  if (p.gemm_tiles != GemmTiles()) {
    absl::StrAppend(&text, "      gemmTiles: {units: ", p.gemm_tiles.units, ", rows: ", p.gemm_tiles.rows,
                    ", columns: ", p.gemm_tiles.columns, "}\n");
  }
  absl::StrAppend(&text, "      overlap: {slowdown: ", PermilleText(p.overlap_slowdown_permille),
                  ", communicationCompute: ", PermilleText(p.communication_compute_permille), "}\n");
  const bool curves = std::any_of(p.efficiency.begin(), p.efficiency.end(), [](const auto& curve) { return !curve.empty(); });
  if (curves) absl::StrAppend(&text, "      efficiency:\n");
  for (size_t i = 0; i < p.efficiency.size(); ++i) {
    if (p.efficiency[i].empty()) continue;
    absl::StrAppend(&text, "        ", kCurveNames[i], ": {points: [", CurveText(static_cast<OpClass>(i), p.efficiency[i]),
                    "]}\n");
  }
  if (!p.measured.empty()) absl::StrAppend(&text, "      measured:\n");
  for (const ShapeTimes& times : p.measured) {
    absl::StrAppend(&text, "        - shape: \"", ShapeText(times.shape),
                    "\"\n          optimizer: ", TimeText(times.optimizer_per_mega_parameter), "\n          ops: \"",
                    OpTimesText(times.ops), "\"\n");
  }
  return text;
}

std::string LinksText(const NodeGroup& group) {
  const HardwareProfile& p = group.profile;
  std::string text = "    links:\n";
  if (!p.inner_links.empty()) absl::StrAppend(&text, "      inner:\n");
  for (const LinkLevel& level : p.inner_links) {
    absl::StrAppend(&text, "        - {devices: ", level.devices, ", ", LinkText(level.link), "}\n");
  }
  absl::StrAppend(&text, "      node: {", LinkText(p.intra_node), "}\n      network: {", LinkText(p.inter_node),
                  ", adapters: ", p.adapters);
  if (p.pod_nodes > 0) {
    absl::StrAppend(&text, ", podNodes: ", p.pod_nodes, ", oversubscription: ", PermilleText(p.oversubscription_permille));
  }
  return text + "}\n";
}

std::string HostText(const NodeGroup& group) {
  std::string text;
  if (group.host_memory > Bytes(0)) absl::StrAppend(&text, "    hostMemory: ", SizeText(group.host_memory), "\n");
  if (group.host_is_device) absl::StrAppend(&text, "    hostIsDevice: true\n");
  const HostLink& host = group.profile.host;
  if (host == HostLink()) return text;
  absl::StrAppend(&text, "    hostCopy: {latency: ", TimeText(host.latency));
  for (const auto& [name, rate] :
       {std::pair("toHost", host.to_host_bytes_per_second), std::pair("fromHost", host.from_host_bytes_per_second),
        std::pair("both", host.both_bytes_per_second)}) {
    if (rate > 0) absl::StrAppend(&text, ", ", name, ": ", ByteRateText(rate));
  }
  absl::StrAppend(&text, ", slowdown: ", PermilleText(host.op_slowdown_permille), "}\n");
  return text;
}

// "0-3 8 10-11"
std::string RangesText(const std::vector<int32_t>& numbers) {
  std::string text;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : " ", numbers[first]);
    if (last > first) absl::StrAppend(&text, "-", numbers[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> ClusterText(const std::string& name, const std::string& comment, const ClusterTopology& cluster) {
  LYNX_RETURN_IF_ERROR(CheckCluster(cluster));
  std::string text =
      absl::StrCat("# ", comment, "\napiVersion: lynx/v1\nkind: Cluster\nname: ", Quoted(name), "\nnodeGroups:\n");
  for (const NodeGroup& group : cluster.groups) {
    if (group.memory_per_device.value <= 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("the memory of the devices of ", group.name, " is unknown, and a cluster file needs it"));
    }
    if (group.profile.device_kind.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the kind of the devices of ", group.name, " is unknown, and a cluster file needs it"));
    }
    absl::StrAppend(&text, "  - name: ", Quoted(group.name), "\n    nodes: ", group.nodes,
                    "\n    devicesPerNode: ", group.devices_per_node, "\n    device:\n", DeviceText(group), LinksText(group),
                    HostText(group));
  }
  if (!cluster.shared_cores.empty()) absl::StrAppend(&text, "sharedCores:\n");
  for (const SharedCores& shared : cluster.shared_cores) {
    absl::StrAppend(&text, "  - {devices: \"", RangesText(shared.devices),
                    "\", atOnce: ", PermilleText(shared.at_once_permille), "}\n");
  }
  if (text.size() > kMaxClusterText) {
    return absl::FailedPreconditionError(absl::StrCat("its cluster file would have ", text.size(), " bytes; at most ",
                                                      kMaxClusterText,
                                                      " are written: it has too many kinds of nodes, or too "
                                                      "many measured shapes"));
  }
  return text;
}

}  // namespace lynx::cli
