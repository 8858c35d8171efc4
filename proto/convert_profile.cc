// Converts shapes and hardware profiles. See convert.h.
#include <algorithm>
#include <limits>
#include <utility>

#include "common/status.h"
#include "planner/problem/latents.h"
#include "planner/problem/model_rules.h"
#include "proto/bounds.h"
#include "proto/convert.h"

namespace lynx {
namespace {

constexpr int kMaxMeasured = 64;
constexpr int kMaxKindLength = 256;
constexpr size_t kMaxGroups = 1 << 14;  // each node may be a group of its own
constexpr size_t kMaxSharedCores = 1 << 16;
constexpr size_t kMaxSharing = 4096;  // maximum number of devices that share cores

absl::StatusOr<Nanos> NanosFrom(const std::string& path, int64_t value) {
  LYNX_RETURN_IF_ERROR(CheckRange(path, value, 0, kMaxWireNanos));
  return Nanos(value);
}

absl::Status CheckMultiple(const std::string& path, int64_t value, const char* of, int64_t divisor) {
  if (value % divisor == 0) return absl::OkStatus();
  return BadField(path, absl::StrCat(value), absl::StrCat("must be a multiple of ", of, ", which is ", divisor));
}

v1::LinkCost LinkToProto(const LinkCost& link) {
  v1::LinkCost message;
  message.set_latency_ns(link.latency.value);
  message.set_bytes_per_second(link.bytes_per_second);
  return message;
}

absl::StatusOr<LinkCost> LinkFromProto(const v1::LinkCost& message, const std::string& path) {
  LinkCost link;
  LYNX_ASSIGN_OR_RETURN(link.latency, NanosFrom(FieldPath(path, "latency_ns"), message.latency_ns()));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "bytes_per_second"), message.bytes_per_second(), 1, kMaxWireRate));
  link.bytes_per_second = message.bytes_per_second();
  return link;
}

v1::EfficiencyCurve CurveToProto(const EfficiencyCurve& curve) {
  v1::EfficiencyCurve message;
  for (const EfficiencyPoint& point : curve) {
    v1::EfficiencyPoint& to = *message.add_points();
    to.set_size(point.size);
    to.set_permille(point.permille);
  }
  return message;
}

v1::HostLink HostLinkToProto(const HostLink& host) {
  v1::HostLink message;
  message.set_latency_ns(host.latency.value);
  message.set_to_host_bytes_per_second(host.to_host_bytes_per_second);
  message.set_from_host_bytes_per_second(host.from_host_bytes_per_second);
  message.set_both_bytes_per_second(host.both_bytes_per_second);
  message.set_op_slowdown_permille(host.op_slowdown_permille);
  return message;
}

// Converts the bfloat16 rate, the efficiency curves, the GEMM tiles, the inner links and the host link. When a message is read,
// this file checks sizes and single values; CheckProfile checks whether the values are consistent.
void DescriptionToProto(const HardwareProfile& profile, v1::HardwareProfile& message) {
  message.set_bfloat16_flops_per_second(profile.bfloat16_flops_per_second);
  message.set_float8_flops_per_second(profile.float8_flops_per_second);
  message.set_float4_flops_per_second(profile.float4_flops_per_second);
  for (const EfficiencyCurve& curve : profile.efficiency) *message.add_efficiency() = CurveToProto(curve);
  if (profile.gemm_tiles != GemmTiles{}) {
    message.mutable_gemm_tiles()->set_units(profile.gemm_tiles.units);
    message.mutable_gemm_tiles()->set_rows(profile.gemm_tiles.rows);
    message.mutable_gemm_tiles()->set_columns(profile.gemm_tiles.columns);
  }
  for (const LinkLevel& level : profile.inner_links) {
    v1::LinkLevel& to = *message.add_inner_links();
    to.set_devices(level.devices);
    *to.mutable_link() = LinkToProto(level.link);
  }
  if (profile.host != HostLink{}) *message.mutable_host() = HostLinkToProto(profile.host);
}

absl::StatusOr<EfficiencyCurve> CurveFromProto(const v1::EfficiencyCurve& message, const std::string& path) {
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "points"), message.points().size(), 0, kMaxEfficiencyPoints, "entries"));
  EfficiencyCurve curve;
  for (int i = 0; i < message.points_size(); ++i) {
    const std::string at = FieldPath(path, "points", i);
    const v1::EfficiencyPoint& point = message.points(i);
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "size"), point.size(), i == 0 ? 1 : curve.back().size + 1,
                                    std::numeric_limits<int64_t>::max()));
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "permille"), point.permille(), 1, 1000));
    curve.push_back({point.size(), point.permille()});
  }
  return curve;
}

absl::StatusOr<HostLink> HostLinkFromProto(const v1::HostLink& message, const std::string& path) {
  HostLink host;
  LYNX_ASSIGN_OR_RETURN(host.latency, NanosFrom(FieldPath(path, "latency_ns"), message.latency_ns()));
  const auto rate = [&](const char* field, int64_t from, int64_t& to) {
    to = from;
    return CheckRange(FieldPath(path, field), from, 0, kMaxWireRate);
  };
  LYNX_RETURN_IF_ERROR(rate("to_host_bytes_per_second", message.to_host_bytes_per_second(), host.to_host_bytes_per_second));
  LYNX_RETURN_IF_ERROR(
      rate("from_host_bytes_per_second", message.from_host_bytes_per_second(), host.from_host_bytes_per_second));
  LYNX_RETURN_IF_ERROR(rate("both_bytes_per_second", message.both_bytes_per_second(), host.both_bytes_per_second));
  if (message.op_slowdown_permille() == 0) return host;
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "op_slowdown_permille"), message.op_slowdown_permille(), 1000, 100'000));
  host.op_slowdown_permille = message.op_slowdown_permille();
  return host;
}

absl::Status DescriptionFromProto(const v1::HardwareProfile& message, const std::string& path, HardwareProfile& profile) {
  LYNX_RETURN_IF_ERROR(
      CheckRange(FieldPath(path, "bfloat16_flops_per_second"), message.bfloat16_flops_per_second(), 0, kMaxWireRate));
  profile.bfloat16_flops_per_second = message.bfloat16_flops_per_second();
  LYNX_RETURN_IF_ERROR(
      CheckRange(FieldPath(path, "float8_flops_per_second"), message.float8_flops_per_second(), 0, kMaxWireRate));
  profile.float8_flops_per_second = message.float8_flops_per_second();
  LYNX_RETURN_IF_ERROR(
      CheckRange(FieldPath(path, "float4_flops_per_second"), message.float4_flops_per_second(), 0, kMaxWireRate));
  profile.float4_flops_per_second = message.float4_flops_per_second();
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "efficiency"), message.efficiency().size(), 0, kOpClassCount, "entries"));
  for (int i = 0; i < message.efficiency_size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(profile.efficiency[i], CurveFromProto(message.efficiency(i), FieldPath(path, "efficiency", i)));
  }
  const v1::GemmTiles& tiles = message.gemm_tiles();
  for (const auto& [field, value] : {std::pair{"units", tiles.units()}, {"rows", tiles.rows()}, {"columns", tiles.columns()}}) {
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(FieldPath(path, "gemm_tiles"), field), value, 0, 1 << 20));
  }
  profile.gemm_tiles = {tiles.units(), tiles.rows(), tiles.columns()};
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "inner_links"), message.inner_links().size(), 0, kMaxLinkLevels, "entries"));
  for (int i = 0; i < message.inner_links_size(); ++i) {
    const std::string at = FieldPath(path, "inner_links", i);
    LinkLevel level{.devices = message.inner_links(i).devices()};
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "devices"), level.devices, 2, kMaxWireRanks));
    LYNX_ASSIGN_OR_RETURN(level.link, LinkFromProto(message.inner_links(i).link(), FieldPath(at, "link")));
    profile.inner_links.push_back(level);
  }
  LYNX_ASSIGN_OR_RETURN(profile.host, HostLinkFromProto(message.host(), FieldPath(path, "host")));
  return absl::OkStatus();
}

v1::ShapeTimes ShapeTimesToProto(const ShapeTimes& times) {
  v1::ShapeTimes message;
  *message.mutable_shape() = ToProto(times.shape);
  for (const OpInfo& info : LayerGraph::Of(times.shape).ops()) {
    const OpTimes& from = times.ops[static_cast<size_t>(info.op)];
    v1::OpTimes& op = *message.add_ops();
    op.set_op(std::string(EnumName(info.op)));
    op.set_forward_ns(from.forward.value);
    op.set_backward_ns(from.backward.value);
    op.set_weight_ns(from.weight.value);
  }
  message.set_optimizer_ns_per_mega_parameter(times.optimizer_per_mega_parameter.value);
  return message;
}

absl::StatusOr<ShapeTimes> ShapeTimesFromProto(const v1::ShapeTimes& message, const std::string& path) {
  ShapeTimes times;
  LYNX_ASSIGN_OR_RETURN(times.shape, FromProto(message.shape(), FieldPath(path, "shape")));
  const LayerGraph& graph = LayerGraph::Of(times.shape);
  OpSet seen = 0;
  for (int i = 0; i < message.ops_size(); ++i) {
    const v1::OpTimes& from = message.ops(i);
    const std::string at = FieldPath(path, "ops", i);
    Op op;
    if (!ParseEnum(from.op(), op) || !graph.Has(op)) {
      return BadField(FieldPath(at, "op"), absl::StrCat("\"", from.op().substr(0, 64), "\""),
                      "the shape's layers have no op of this name");
    }
    if (Contains(seen, op)) {
      return BadField(FieldPath(at, "op"), absl::StrCat("\"", from.op(), "\""), "must appear once");
    }
    seen |= Bit(op);
    OpTimes& to = times.ops[static_cast<size_t>(op)];
    LYNX_ASSIGN_OR_RETURN(to.forward, NanosFrom(FieldPath(at, "forward_ns"), from.forward_ns()));
    LYNX_ASSIGN_OR_RETURN(to.backward, NanosFrom(FieldPath(at, "backward_ns"), from.backward_ns()));
    LYNX_ASSIGN_OR_RETURN(to.weight, NanosFrom(FieldPath(at, "weight_ns"), from.weight_ns()));
  }
  for (const OpInfo& info : graph.ops()) {
    if (Contains(seen, info.op)) continue;
    return BadField(FieldPath(path, "ops"), "incomplete", absl::StrCat("op ", EnumName(info.op), " is missing"));
  }
  LYNX_ASSIGN_OR_RETURN(times.optimizer_per_mega_parameter, NanosFrom(FieldPath(path, "optimizer_ns_per_mega_parameter"),
                                                                      message.optimizer_ns_per_mega_parameter()));
  return times;
}

void ExpertsToProto(const LayerShape& shape, v1::ExpertShape& message) {
  message.set_experts(shape.experts);
  message.set_top_k(shape.top_k);
  message.set_ffn(shape.expert_ffn);
  message.set_ep(shape.ep);
  message.set_capacity_permille(shape.capacity_permille);
  message.set_skew_permille(shape.skew_permille);
  message.set_dropless(shape.dropless);
  message.set_shared_ffn(shape.shared_ffn);
  message.set_shared_gate(shape.shared_gate);
}

absl::Status ExpertsFromProto(const v1::ExpertShape& message, const std::string& path, LayerShape& shape) {
  // The same limits as for a model (planner/problem/job_spec.cc).
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "experts"), message.experts(), 2, 1 << 12));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "top_k"), message.top_k(), 1, message.experts()));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "ffn"), message.ffn(), 1, 1 << 20));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "ep"), message.ep(), 1, kMaxWireRanks));
  LYNX_RETURN_IF_ERROR(CheckMultiple(FieldPath(path, "experts"), message.experts(), "ep", message.ep()));
  const int64_t most = int64_t{1000} * message.experts();
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "capacity_permille"), message.capacity_permille(), 0, most));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "skew_permille"), message.skew_permille(), 1000, most));
  shape.experts = message.experts();
  shape.top_k = message.top_k();
  shape.expert_ffn = message.ffn();
  shape.ep = message.ep();
  shape.capacity_permille = message.capacity_permille();
  shape.skew_permille = message.skew_permille();
  shape.dropless = message.dropless();
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "shared_ffn"), message.shared_ffn(), 0, 1 << 20));
  shape.shared_ffn = message.shared_ffn();
  shape.shared_gate = message.shared_gate();
  if (shape.shared_gate && shape.shared_ffn == 0) {
    return BadField(FieldPath(path, "shared_gate"), "true", "must be false without shared_ffn");
  }
  if (!shape.dropless || shape.capacity_permille > 0) return absl::OkStatus();
  return BadField(FieldPath(path, "dropless"), "true", "must be false without a capacity");
}

absl::Status LatentsFromProto(const v1::LatentShape& message, const std::string& path, LayerShape& shape) {
  // The same limits as for a model (planner/problem/model_rules.cc).
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "query_rank"), message.query_rank(), 0, kMaxHidden));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "kv_rank"), message.kv_rank(), 1, kMaxHidden));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "value_dim"), message.value_dim(), 1, kMaxHidden));
  shape.query_rank = message.query_rank();
  shape.kv_rank = message.kv_rank();
  shape.value_dim = message.value_dim();
  if (FitsLatents(shape)) return absl::OkStatus();
  return BadField(path, "present",
                  "must be in a llama with fused attention, keys for every head and rotary_dims of at least 2, and without "
                  "qk_norm and qkv_bias");
}

}  // namespace

v1::LayerShape ToProto(const LayerShape& shape) {
  v1::LayerShape message;
  message.set_micro_batch(shape.micro_batch);
  message.set_seq(shape.seq);
  message.set_hidden(shape.hidden);
  message.set_heads(shape.heads);
  message.set_ffn(shape.ffn);
  message.set_vocab(shape.vocab);
  message.set_tp(shape.tp);
  message.set_dropout(shape.dropout);
  message.set_family(shape.family == ModelFamily::kLlama ? v1::MODEL_FAMILY_LLAMA : v1::MODEL_FAMILY_GPT);
  message.set_kv_heads(shape.kv_heads);
  message.set_attention(shape.attention == AttentionKernel::kFused ? v1::ATTENTION_KERNEL_FUSED : v1::ATTENTION_KERNEL_UNFUSED);
  message.set_dtype(shape.dtype == DataType::kBfloat16 ? v1::DATA_TYPE_BFLOAT16 : v1::DATA_TYPE_FLOAT32);
  message.set_stored_masks(shape.stored_masks);
  message.set_sequence_parallel(shape.sequence_parallel);
  message.set_cp(shape.cp);
  message.set_head_dim(shape.head_dim);
  message.set_qkv_bias(shape.qkv_bias);
  message.set_qk_norm(shape.qk_norm);
  message.set_qk_norm_whole(shape.qk_norm_whole);
  message.set_rotary_dims(shape.rotary_dims);
  if (shape.moe()) ExpertsToProto(shape, *message.mutable_experts());
  if (shape.latent()) {
    message.mutable_latent()->set_query_rank(shape.query_rank);
    message.mutable_latent()->set_kv_rank(shape.kv_rank);
    message.mutable_latent()->set_value_dim(shape.value_dim);
  }
  return message;
}

absl::StatusOr<LayerShape> FromProto(const v1::LayerShape& message, const std::string& path) {
  // The same limits as for a model (planner/problem/job_spec.cc).
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "micro_batch"), message.micro_batch(), 1, 1 << 20));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "seq"), message.seq(), 1, 1 << 20));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "hidden"), message.hidden(), 1, 1 << 17));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "heads"), message.heads(), 1, 1 << 12));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "ffn"), message.ffn(), 1, 1 << 20));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "vocab"), message.vocab(), 2, 1 << 24));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "tp"), message.tp(), 1, kMaxWireRanks));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "head_dim"), message.head_dim(), 0, 1 << 12));
  if (message.head_dim() == 0) {
    LYNX_RETURN_IF_ERROR(CheckMultiple(FieldPath(path, "hidden"), message.hidden(), "heads", message.heads()));
  }
  const int32_t head = message.head_dim() == 0 ? message.hidden() / message.heads() : message.head_dim();
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "rotary_dims"), message.rotary_dims(), 0, head));
  LYNX_RETURN_IF_ERROR(CheckMultiple(FieldPath(path, "heads"), message.heads(), "tp", message.tp()));
  if (!message.has_experts()) {  // tensor parallelism does not shard experts
    LYNX_RETURN_IF_ERROR(CheckMultiple(FieldPath(path, "ffn"), message.ffn(), "tp", message.tp()));
  }
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "kv_heads"), message.kv_heads(), 0, message.heads()));
  const int32_t key_heads = message.kv_heads() == 0 ? message.heads() : message.kv_heads();
  LYNX_RETURN_IF_ERROR(CheckMultiple(FieldPath(path, "heads"), message.heads(), "kv_heads", key_heads));
  LYNX_RETURN_IF_ERROR(CheckMultiple(FieldPath(path, "kv_heads"), key_heads, "tp", message.tp()));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "cp"), message.cp(), 0, kMaxWireRanks));
  const int32_t cp = std::max(1, message.cp());
  LYNX_RETURN_IF_ERROR(CheckMultiple(FieldPath(path, "seq"), message.seq(), "cp", cp));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "family"), message.family(), 0, 1));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "attention"), message.attention(), 0, 1));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "dtype"), message.dtype(), 0, 1));
  LayerShape shape{.micro_batch = message.micro_batch(),
                   .seq = message.seq(),
                   .hidden = message.hidden(),
                   .heads = message.heads(),
                   .ffn = message.ffn(),
                   .vocab = message.vocab(),
                   .tp = message.tp(),
                   .dropout = message.dropout(),
                   .family = static_cast<ModelFamily>(message.family()),
                   .kv_heads = message.kv_heads(),
                   .attention = static_cast<AttentionKernel>(message.attention()),
                   .dtype = static_cast<DataType>(message.dtype()),
                   .stored_masks = message.stored_masks() && message.dropout(),
                   .sequence_parallel = message.sequence_parallel() && message.tp() > 1,
                   .cp = cp,
                   .head_dim = message.head_dim(),
                   .qkv_bias = message.qkv_bias(),
                   .qk_norm = message.qk_norm(),
                   .qk_norm_whole = message.qk_norm_whole() && message.qk_norm(),
                   .rotary_dims = message.rotary_dims()};
  if (message.has_experts()) {
    LYNX_RETURN_IF_ERROR(ExpertsFromProto(message.experts(), FieldPath(path, "experts"), shape));
  }
  if (message.has_latent()) {
    LYNX_RETURN_IF_ERROR(LatentsFromProto(message.latent(), FieldPath(path, "latent"), shape));
  }
  return shape;
}

v1::HardwareProfile ToProto(const HardwareProfile& profile, ProfileShapes shapes) {
  v1::HardwareProfile message;
  message.set_device_kind(profile.device_kind);
  if (shapes == ProfileShapes::kIncluded) {
    for (const ShapeTimes& times : profile.measured) *message.add_measured() = ShapeTimesToProto(times);
  }
  message.set_flops_per_second(profile.flops_per_second);
  message.set_memory_bytes_per_second(profile.memory_bytes_per_second);
  message.set_op_overhead_ns(profile.op_overhead.value);
  *message.mutable_intra_node() = LinkToProto(profile.intra_node);
  *message.mutable_inter_node() = LinkToProto(profile.inter_node);
  if (profile.adapters > 1) message.set_adapters(profile.adapters);
  message.set_pod_nodes(profile.pod_nodes);
  if (profile.oversubscription_permille > 1000) message.set_oversubscription_permille(profile.oversubscription_permille);
  message.set_overlap_slowdown_permille(profile.overlap_slowdown_permille);
  message.set_communication_compute_permille(profile.communication_compute_permille);
  DescriptionToProto(profile, message);
  return message;
}

absl::StatusOr<HardwareProfile> FromProto(const v1::HardwareProfile& message, const std::string& path) {
  HardwareProfile profile;
  LYNX_RETURN_IF_ERROR(
      CheckSize(FieldPath(path, "device_kind"), message.device_kind().size(), 0, kMaxKindLength, "characters"));
  profile.device_kind = message.device_kind();
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "measured"), message.measured().size(), 0, kMaxMeasured, "entries"));
  for (int i = 0; i < message.measured_size(); ++i) {
    const std::string at = FieldPath(path, "measured", i);
    LYNX_ASSIGN_OR_RETURN(ShapeTimes times, ShapeTimesFromProto(message.measured(i), at));
    const bool repeated = std::any_of(profile.measured.begin(), profile.measured.end(),
                                      [&](const ShapeTimes& other) { return other.shape == times.shape; });
    if (repeated) return BadField(FieldPath(at, "shape"), "repeated", "must appear once in the profile");
    profile.measured.push_back(std::move(times));
  }
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "flops_per_second"), message.flops_per_second(), 1, kMaxWireRate));
  LYNX_RETURN_IF_ERROR(
      CheckRange(FieldPath(path, "memory_bytes_per_second"), message.memory_bytes_per_second(), 1, kMaxWireRate));
  profile.flops_per_second = message.flops_per_second();
  profile.memory_bytes_per_second = message.memory_bytes_per_second();
  LYNX_ASSIGN_OR_RETURN(profile.op_overhead, NanosFrom(FieldPath(path, "op_overhead_ns"), message.op_overhead_ns()));
  LYNX_ASSIGN_OR_RETURN(profile.intra_node, LinkFromProto(message.intra_node(), FieldPath(path, "intra_node")));
  LYNX_ASSIGN_OR_RETURN(profile.inter_node, LinkFromProto(message.inter_node(), FieldPath(path, "inter_node")));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "adapters"), message.adapters(), 0, kMaxAdapters));
  profile.adapters = std::max(1, message.adapters());
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "pod_nodes"), message.pod_nodes(), 0, kMaxPodNodes));
  profile.pod_nodes = message.pod_nodes();
  profile.oversubscription_permille = message.oversubscription_permille() == 0 ? 1000 : message.oversubscription_permille();
  LYNX_RETURN_IF_ERROR(
      CheckRange(FieldPath(path, "oversubscription_permille"), profile.oversubscription_permille, 1000, 100'000));
  LYNX_RETURN_IF_ERROR(
      CheckRange(FieldPath(path, "overlap_slowdown_permille"), message.overlap_slowdown_permille(), 1000, 1'000'000));
  LYNX_RETURN_IF_ERROR(
      CheckRange(FieldPath(path, "communication_compute_permille"), message.communication_compute_permille(), 0, 1000));
  profile.overlap_slowdown_permille = message.overlap_slowdown_permille();
  profile.communication_compute_permille = message.communication_compute_permille();
  LYNX_RETURN_IF_ERROR(DescriptionFromProto(message, path, profile));
  return profile;
}

v1::ClusterTopology ToProto(const ClusterTopology& cluster) {
  v1::ClusterTopology message;
  for (const NodeGroup& group : cluster.groups) {
    v1::NodeGroup& to = *message.add_groups();
    to.set_name(group.name);
    to.set_nodes(group.nodes);
    to.set_devices_per_node(group.devices_per_node);
    to.set_memory_per_device_bytes(group.memory_per_device.value);
    to.set_host_memory_bytes(group.host_memory.value);
    to.set_host_is_device(group.host_is_device);
    *to.mutable_profile() = ToProto(group.profile);
  }
  for (const SharedCores& shared : cluster.shared_cores) {
    v1::SharedCores& to = *message.add_shared_cores();
    to.mutable_devices()->Assign(shared.devices.begin(), shared.devices.end());
    to.set_at_once_permille(shared.at_once_permille);
  }
  return message;
}

absl::StatusOr<ClusterTopology> FromProto(const v1::ClusterTopology& message, const std::string& path) {
  ClusterTopology cluster;
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "groups"), message.groups().size(), 1, kMaxGroups, "entries"));
  for (int i = 0; i < message.groups_size(); ++i) {
    const v1::NodeGroup& m = message.groups(i);
    const std::string at = FieldPath(path, "groups", i);
    NodeGroup group{.name = m.name(), .nodes = m.nodes(), .devices_per_node = m.devices_per_node()};
    LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(at, "name"), m.name().size(), 0, kMaxKindLength, "characters"));
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "memory_per_device_bytes"), m.memory_per_device_bytes(), 0, kMaxWireBytes));
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "host_memory_bytes"), m.host_memory_bytes(), 0, kMaxWireBytes));
    group.memory_per_device = Bytes(m.memory_per_device_bytes());
    group.host_memory = Bytes(m.host_memory_bytes());
    group.host_is_device = m.host_is_device();
    LYNX_ASSIGN_OR_RETURN(group.profile, FromProto(m.profile(), FieldPath(at, "profile")));
    cluster.groups.push_back(std::move(group));
  }
  LYNX_RETURN_IF_ERROR(
      CheckSize(FieldPath(path, "shared_cores"), message.shared_cores().size(), 0, kMaxSharedCores, "entries"));
  for (int i = 0; i < message.shared_cores_size(); ++i) {
    const v1::SharedCores& m = message.shared_cores(i);
    LYNX_RETURN_IF_ERROR(
        CheckSize(FieldPath(FieldPath(path, "shared_cores", i), "devices"), m.devices().size(), 1, kMaxSharing, "entries"));
    cluster.shared_cores.push_back({{m.devices().begin(), m.devices().end()}, m.at_once_permille()});
  }
  LYNX_RETURN_IF_ERROR(Annotate(CheckCluster(cluster), path));
  return cluster;
}

}  // namespace lynx
