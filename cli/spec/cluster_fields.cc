#include "cli/spec/cluster_fields.h"

#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/spec/measured_text.h"
#include "cli/spec/scalar_text.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

// Makes a field of a record. `parse` turns the field's text into a StatusOr<Value>, and the value is stored in
// `member(record)`. `fallback`: the default as text, for the reference page.
template <class T, class Member, class Parse>
Field<T> Scalar(std::string path, std::string meaning, bool required, std::string fallback, Member member, Parse parse) {
  return {std::move(path), std::move(meaning), required,
          [=](const std::string& text, T& record) {
            auto value = parse(text);
            if (!value.ok()) return value.status();
            member(record) = *value;
            return absl::OkStatus();
          },
          [=](const T&) { return fallback; }};
}

absl::StatusOr<std::string> ParseName(const std::string& text) {
  if (text.empty() || text.size() > 100) return Expected("1 to 100 characters", text.substr(0, 100));
  return text;
}

absl::StatusOr<int32_t> ParseCount(const std::string& text) {
  int32_t value;
  LYNX_RETURN_IF_ERROR(ReadInt(text, value));
  if (value < 1) return Expected("a whole number above zero", text);
  return value;
}

absl::StatusOr<Bytes> ParseSize(const std::string& text) {
  LYNX_ASSIGN_OR_RETURN(const Bytes bytes, ParseByteSize(text));
  if (bytes.value == 0) return Expected("a size above zero", text);
  return bytes;
}

// Reads numbers of devices, such as "0-3 8": at most kMaxListed of them.
absl::StatusOr<std::vector<int32_t>> ParseRanges(const std::string& text) {
  constexpr int64_t kMaxListed = 1 << 20;
  std::vector<int32_t> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::vector<std::string> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int32_t first, last;
    const bool good = absl::SimpleAtoi(ends.front(), &first) && absl::SimpleAtoi(ends.back(), &last) && first >= 0 &&
                      last >= first && std::ssize(numbers) + int64_t{last} - first < kMaxListed;
    if (!good) return Expected("numbers of devices such as 0-3 8", text);
    for (int64_t number = first; number <= last; ++number) numbers.push_back(static_cast<int32_t>(number));
  }
  if (numbers.empty()) return Expected("numbers of devices such as 0-3 8", text);
  return numbers;
}

absl::StatusOr<int32_t> ParseAtOnce(const std::string& text) {
  double value;
  LYNX_RETURN_IF_ERROR(ReadReal(text, value));
  if (!(value >= 0.001 && value <= 1e6)) return Expected("a number from 0.001 to 1000000", text);
  return static_cast<int32_t>(std::lround(value * 1000));
}

std::vector<Field<LinkEntry>> LinkFields() {
  return {
      Scalar<LinkEntry>(
          "latency", "of one transfer", true, "", [](LinkEntry& l) -> Nanos& { return l.latency; }, ParseDuration),
      Scalar<LinkEntry>(
          "bandwidth", "what one device can send, in one direction", true, "",
          [](LinkEntry& l) -> int64_t& { return l.bandwidth; }, ParseByteRate),
      Scalar<LinkEntry>(
          "share", "of that bandwidth, what a ring collective reaches", false, "1",
          [](LinkEntry& l) -> int32_t& { return l.share_permille; }, ParseShare),
  };
}

// Adds the fields of a link below `section` of a group, which is "links.node" or "links.network".
void AddLink(const std::string& section, const std::string& what, LinkEntry GroupEntry::*link,
             std::vector<Field<GroupEntry>>& fields) {
  for (const Field<LinkEntry>& field : LinkFields()) {
    fields.push_back({absl::StrCat(section, ".", field.path), absl::StrCat(what, field.meaning), field.required,
                      [=](const std::string& text, GroupEntry& g) { return field.read(text, g.*link); },
                      [=](const GroupEntry& g) { return field.write(g.*link); }});
  }
}

// A curve as a cluster file gives it: the efficiency at some sizes.
struct CurveEntry {
  EfficiencyCurve points;
  std::string source;
};

Field<DeviceEntry> CurveField(const char* name, const char* meaning, OpClass op_class) {
  return {
      absl::StrCat("efficiency.", name),
      meaning,
      false,
      nullptr,
      nullptr,
      [=](YamlReader& reader, const YamlValue& value, const std::string& path, DeviceEntry& device) {
        const std::vector<Field<CurveEntry>> fields = {
            {"source", "where the shares come from", false, [](const std::string&, CurveEntry&) { return absl::OkStatus(); }},
            {"points", "sizes and shares", true, nullptr, nullptr,
             [=](YamlReader& r, const YamlValue& list, const std::string& at, CurveEntry& curve) {
               return r.ReadList(list, at, 1, PointFields(op_class), curve.points);
             }}};
        CurveEntry curve;
        LYNX_RETURN_IF_ERROR(reader.Read(value, path, fields, curve));
        if (curve.points.size() > kMaxEfficiencyPoints) {
          return reader.Error(value, path,
                              absl::StrCat("has ", curve.points.size(), " points; give at most ", kMaxEfficiencyPoints));
        }
        for (size_t i = 1; i < curve.points.size(); ++i) {
          if (curve.points[i].size > curve.points[i - 1].size) continue;
          return reader.Error(value.Find("points")->items[i], path, "sizes must rise from point to point");
        }
        device.profile.efficiency[static_cast<size_t>(op_class)] = std::move(curve.points);
        return absl::OkStatus();
      }};
}

std::vector<Field<DeviceEntry>> RateFields() {
  using D = DeviceEntry;
  return {
      Scalar<D>(
          "name", "what node groups call it", true, "", [](D& d) -> std::string& { return d.name; }, ParseName),
      Scalar<D>(
          "kind", "as agents report it, so that what they measure can replace these figures; default: the name", false, "",
          [](D& d) -> std::string& { return d.profile.device_kind; }, ParseName),
      Scalar<D>(
          "memory", "of one device", true, "", [](D& d) -> Bytes& { return d.memory; }, ParseSize),
      Scalar<D>(
          "reservedMemory", "what driver, runtime and communication library take of it", false, "0",
          [](D& d) -> Bytes& { return d.reserved_memory; }, ParseByteSize),
      Scalar<D>(
          "peak.float32", "of matrix products, in FLOP/s", true, "",
          [](D& d) -> int64_t& { return d.profile.flops_per_second; }, ParseFlopRate),
      Scalar<D>(
          "peak.bfloat16", "the same for 16-bit operands; default: as float32", false, "",
          [](D& d) -> int64_t& { return d.profile.bfloat16_flops_per_second; }, ParseFlopRate),
      Scalar<D>(
          "peak.float8", "of products of 8-bit operands (model.matmulType); default: none", false, "",
          [](D& d) -> int64_t& { return d.profile.float8_flops_per_second; }, ParseFlopRate),
      Scalar<D>(
          "peak.float4", "of products of 4-bit operands (model.matmulType nvfp4); default: none", false, "",
          [](D& d) -> int64_t& { return d.profile.float4_flops_per_second; }, ParseFlopRate),
      Scalar<D>(
          "memoryBandwidth", "of the device's own memory", true, "",
          [](D& d) -> int64_t& { return d.profile.memory_bytes_per_second; }, ParseByteRate),
      Scalar<D>(
          "opOverhead", "fixed cost of one op", false, "0", [](D& d) -> Nanos& { return d.profile.op_overhead; },
          ParseDuration),
      Scalar<D>(
          "gemmTiles.units", "compute units that share a product's tiles; given with rows and columns", false, "",
          [](D& d) -> int32_t& { return d.profile.gemm_tiles.units; }, ParseCount),
      Scalar<D>(
          "gemmTiles.rows", "of the result, in one tile", false, "", [](D& d) -> int32_t& { return d.profile.gemm_tiles.rows; },
          ParseCount),
      Scalar<D>(
          "gemmTiles.columns", "of the result, in one tile", false, "",
          [](D& d) -> int32_t& { return d.profile.gemm_tiles.columns; }, ParseCount),
      Scalar<D>(
          "overlap.slowdown", "how much longer an op takes while a collective runs beside it, 1 to 100", false, "1",
          [](D& d) -> int32_t& { return d.profile.overlap_slowdown_permille; }, ParseSlowdown),
      Scalar<D>(
          "overlap.communicationCompute", "share of a transfer's time that the device's compute spends on it", false, "0",
          [](D& d) -> int32_t& { return d.profile.communication_compute_permille; }, ParseShareOrZero),
  };
}

void AddHostFields(std::vector<Field<GroupEntry>>& fields) {
  using G = GroupEntry;
  fields.push_back(Scalar<G>(
      "hostMemory", "of a node, shared by its devices; default: unknown", false, "",
      [](G& g) -> Bytes& { return g.group.host_memory; }, ParseSize));
  fields.push_back(Scalar<G>(
      "hostIsDevice", "true: the devices use their node's memory, as ranks on CPUs do; hostMemory is then not used", false,
      "false", [](G& g) -> bool& { return g.group.host_is_device; },
      [](const std::string& text) -> absl::StatusOr<bool> {
        bool value;
        LYNX_RETURN_IF_ERROR(ReadSwitch(text, value));
        return value;
      }));
  fields.push_back(Scalar<G>(
      "hostCopy.latency", "of one copy between a device and its node's pinned memory", false, "0",
      [](G& g) -> Nanos& { return g.group.profile.host.latency; }, ParseDuration));
  fields.push_back(Scalar<G>(
      "hostCopy.toHost", "of one device, all devices copying; default: no offloading", false, "",
      [](G& g) -> int64_t& { return g.group.profile.host.to_host_bytes_per_second; }, ParseByteRate));
  fields.push_back(Scalar<G>(
      "hostCopy.fromHost", "the other way", false, "",
      [](G& g) -> int64_t& { return g.group.profile.host.from_host_bytes_per_second; }, ParseByteRate));
  fields.push_back(Scalar<G>(
      "hostCopy.both", "both directions together while both copy", false, "",
      [](G& g) -> int64_t& { return g.group.profile.host.both_bytes_per_second; }, ParseByteRate));
  fields.push_back(Scalar<G>(
      "hostCopy.slowdown", "how much longer an op takes while a copy runs beside it, 1 to 100", false, "1",
      [](G& g) -> int32_t& { return g.group.profile.host.op_slowdown_permille; }, ParseSlowdown));
}

std::vector<Field<GroupEntry>> MakeGroupFields() {
  using G = GroupEntry;
  std::vector<Field<G>> fields = {
      Scalar<G>(
          "name", "for messages", true, "", [](G& g) -> std::string& { return g.group.name; }, ParseName),
      Scalar<G>(
          "nodes", "how many", true, "", [](G& g) -> int32_t& { return g.group.nodes; }, ParseCount),
      Scalar<G>(
          "devicesPerNode", "of each node", true, "", [](G& g) -> int32_t& { return g.group.devices_per_node; }, ParseCount),
      {"device", "a name from devices, or the fields of one", true, nullptr, nullptr,
       [](YamlReader& reader, const YamlValue& value, const std::string& path, G& g) {
         if (value.IsScalar()) {
           g.device = value.scalar;
           return absl::OkStatus();
         }
         return reader.Read(value, path, DeviceFields(), g.inline_device.emplace_back(), {"name"});
       }},
      {"links.inner", "links closer than a node's, from the closest: switches, bridged pairs", false, nullptr, nullptr,
       [](YamlReader& reader, const YamlValue& value, const std::string& path, G& g) {
         return reader.ReadList(value, path, 1, InnerLinkFields(), g.inner_links);
       }},
  };
  AddLink("links.node", "between devices of a node: ", &G::node_link, fields);
  AddLink("links.network", "between nodes: ", &G::network_link, fields);
  fields.push_back(Scalar<G>(
      "links.network.adapters",
      "between nodes: network adapters of a node that the rings of one group use at the same time, each at that bandwidth",
      false, "1", [](G& g) -> int32_t& { return g.group.profile.adapters; }, ParseCount));
  fields.push_back(Scalar<G>(
      "links.network.podNodes",
      "between nodes: nodes on switches of their own (a pod), over which each has the whole bandwidth; default: all nodes",
      false, "", [](G& g) -> int32_t& { return g.group.profile.pod_nodes; }, ParseCount));
  fields.push_back(Scalar<G>(
      "links.network.oversubscription",
      "between nodes: bandwidth of a pod's nodes together over that of its links to other pods, 1 to 100; needs podNodes",
      false, "1", [](G& g) -> int32_t& { return g.group.profile.oversubscription_permille; }, ParseSlowdown));
  AddHostFields(fields);
  return fields;
}

}  // namespace

LinkCost LinkEntry::cost() const {
  return {latency, static_cast<int64_t>(static_cast<__int128>(bandwidth) * share_permille / 1000)};
}

const std::vector<Field<EfficiencyPoint>>& PointFields(OpClass op_class) {
  const auto make = [](const char* meaning, auto parse) {
    const auto size = [=](const std::string& text) -> absl::StatusOr<int64_t> {
      LYNX_ASSIGN_OR_RETURN(const int64_t value, parse(text));
      if (value < 1) return Expected("a size above zero", text);
      return value;
    };
    using P = EfficiencyPoint;
    return new std::vector<Field<P>>{
        Scalar<P>(
            "size", meaning, true, "", [](P& p) -> int64_t& { return p.size; }, size),
        Scalar<P>(
            "share", "of the peak, above 0 to 1", true, "", [](P& p) -> int32_t& { return p.permille; }, ParseShare)};
  };
  static const auto& flops = *make("FLOPs of the product, such as 10GFLOP", ParseFlops);
  static const auto& tokens = *make("tokens of the sequence", [](const std::string& text) -> absl::StatusOr<int64_t> {
    int64_t value;
    LYNX_RETURN_IF_ERROR(ReadInt(text, value));
    return value;
  });
  static const auto& bytes = *make("bytes moved, such as 64MiB", [](const std::string& text) -> absl::StatusOr<int64_t> {
    LYNX_ASSIGN_OR_RETURN(const Bytes value, ParseByteSize(text));
    return value.value;
  });
  switch (op_class) {
    case OpClass::kGemm: return flops;
    case OpClass::kAttention:
    case OpClass::kAttentionBackward: return tokens;
    case OpClass::kScores:
    case OpClass::kMemory: return bytes;
  }
  return bytes;
}

const std::vector<Field<DeviceEntry>>& DeviceFields() {
  static const auto& fields = *new std::vector<Field<DeviceEntry>>([] {
    std::vector<Field<DeviceEntry>> all = RateFields();
    all.push_back(
        CurveField("gemm", "share of the peak that matrix products reach, by FLOPs; default: all of it", OpClass::kGemm));
    all.push_back(CurveField("attention", "the same of fused attention, by tokens of the sequence", OpClass::kAttention));
    all.push_back(CurveField("attentionBackward", "the same of its backward pass", OpClass::kAttentionBackward));
    all.push_back(CurveField("scores",
                             "share of memoryBandwidth that the kernels of unfused attention between its products reach, by "
                             "bytes moved",
                             OpClass::kScores));
    all.push_back(CurveField("memory", "the same of all other ops", OpClass::kMemory));
    all.push_back({"measured", "op times that were measured for some shapes; in files that Lynx writes", false, nullptr,
                   nullptr, [](YamlReader& reader, const YamlValue& value, const std::string& path, DeviceEntry& device) {
                     return reader.ReadList(value, path, 1, MeasuredFields(), device.profile.measured);
                   }});
    return all;
  }());
  return fields;
}

const std::vector<Field<LinkEntry>>& InnerLinkFields() {
  static const auto& fields = *new std::vector<Field<LinkEntry>>([] {
    std::vector<Field<LinkEntry>> all = LinkFields();
    all.insert(all.begin(), Scalar<LinkEntry>(
                                "devices", "neighbours that share such a link; divides devicesPerNode", true, "",
                                [](LinkEntry& l) -> int32_t& { return l.devices; }, ParseCount));
    return all;
  }());
  return fields;
}

const std::vector<Field<ShapeTimes>>& MeasuredFields() {
  using S = ShapeTimes;
  static const auto& fields =
      *new std::vector<Field<S>>{Scalar<S>(
                                     "shape", "of a layer, as NAME=VALUE with blanks between them", true, "",
                                     [](S& s) -> LayerShape& { return s.shape; }, ParseShape),
                                 Scalar<S>(
                                     "optimizer", "time of the update, for 2^20 parameters", false, "0",
                                     [](S& s) -> Nanos& { return s.optimizer_per_mega_parameter; }, ParseDuration),
                                 Scalar<S>(
                                     "ops", "times in ns as OP=FORWARD,INPUT_GRADIENT,WEIGHT_GRADIENT with blanks between them",
                                     true, "", [](S& s) -> TimesOfOps& { return s.ops; }, ParseOpTimes)};
  return fields;
}

const std::vector<Field<SharedCores>>& SharedCoresFields() {
  using S = SharedCores;
  static const auto& fields =
      *new std::vector<Field<S>>{Scalar<S>(
                                     "devices", "their numbers over all groups, ascending, such as 0-3 8", true, "",
                                     [](S& s) -> std::vector<int32_t>& { return s.devices; }, ParseRanges),
                                 Scalar<S>(
                                     "atOnce", "how many of them can run at full speed at once, such as 2.5", true, "",
                                     [](S& s) -> int32_t& { return s.at_once_permille; }, ParseAtOnce)};
  return fields;
}

const std::vector<Field<GroupEntry>>& GroupFields() {
  static const auto& fields = *new std::vector<Field<GroupEntry>>(MakeGroupFields());
  return fields;
}

const std::vector<Field<ClusterEntry>>& ClusterFields() {
  using C = ClusterEntry;
  static const auto& fields = *new std::vector<Field<C>>{
      Scalar<C>(
          "name", "of the cluster", true, "", [](C& c) -> std::string& { return c.name; }, ParseName),
      {"devices", "kinds of device, each with the fields below", false, nullptr, nullptr,
       [](YamlReader& reader, const YamlValue& value, const std::string& path, C& c) {
         return reader.ReadList(value, path, 1, DeviceFields(), c.devices);
       }},
      {"nodeGroups",
       "nodes that are alike, each with the fields below; ranks fill them in this order, or in a faster one (search.md)", true,
       nullptr, nullptr,
       [](YamlReader& reader, const YamlValue& value, const std::string& path, C& c) {
         return reader.ReadList(value, path, 1, GroupFields(), c.groups);
       }},
      {"sharedCores", "sets of CPU ranks that cannot all run at full speed at once, each with the fields below", false, nullptr,
       nullptr, [](YamlReader& reader, const YamlValue& value, const std::string& path, C& c) {
         return reader.ReadList(value, path, 1, SharedCoresFields(), c.shared_cores);
       }}};
  return fields;
}

}  // namespace lynx::cli
