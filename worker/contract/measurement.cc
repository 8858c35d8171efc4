// Writes and reads the JSON of measurement.h.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/limits.h"
#include "common/status.h"
#include "worker/contract/measurement.h"

namespace lynx {
namespace {

using Json = nlohmann::ordered_json;

// Reads the fields of one object, and keeps the first error.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) Fail("", "an object");
  }

  template <class T>
  void Number(const char* name, T& value) {
    const auto field = Find(name);
    if (field == nullptr) return;
    if (!field->is_number()) return Fail(name, "a number");
    value = field->get<T>();
  }
  void Time(const char* name, Nanos& value) { Number(name, value.value); }
  void Text(const char* name, std::string& value) {
    const auto field = Find(name);
    if (field == nullptr) return;
    if (!field->is_string()) return Fail(name, "a string");
    value = field->get<std::string>();
  }
  void Truth(const char* name, bool& value) {
    const auto field = Find(name);
    if (field == nullptr) return;
    if (!field->is_boolean()) return Fail(name, "true or false");
    value = field->get<bool>();
  }
  void Numbers(const char* name, std::vector<int32_t>& values) {
    const auto field = Find(name);
    if (field == nullptr) return;
    if (!IsNumberList(*field)) return Fail(name, "a list of numbers");
    values = field->get<std::vector<int32_t>>();
  }
  void Texts(const char* name, std::vector<std::string>& values) {
    for (const Json& one : List(name)) {
      if (!one.is_string()) return Fail(name, "a list of strings");
      values.push_back(one.get<std::string>());
    }
  }
  void NumberLists(const char* name, std::vector<std::vector<int32_t>>& values) {
    for (const Json& one : List(name)) {
      if (!IsNumberList(one)) return Fail(name, "a list of lists of numbers");
      values.push_back(one.get<std::vector<int32_t>>());
    }
  }
  // Returns the list with the name `name`, or an empty list if there is none.
  const Json& List(const char* name) {
    static const Json& empty = *new Json(Json::array());
    const auto field = Find(name);
    if (field == nullptr) return empty;
    if (field->is_array()) return *field;
    Fail(name, "a list");
    return empty;
  }
  const Json& Object(const char* name) {
    static const Json& empty = *new Json(Json::object());
    const auto field = Find(name);
    if (field == nullptr) return empty;
    if (field->is_object()) return *field;
    Fail(name, "an object");
    return empty;
  }
  void Require(bool holds, const char* name, const char* expected) {
    if (!holds) Fail(name, expected);
  }
  std::string PathOf(const std::string& name) const { return path_.empty() ? name : absl::StrCat(path_, ".", name); }
  const absl::Status& status() const { return status_; }

 private:
  static bool IsNumberList(const Json& value) {
    return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& one) { return one.is_number_integer(); });
  }
  const Json* Find(const char* name) {
    if (!object_.is_object()) return nullptr;
    const auto field = object_.find(name);
    if (field != object_.end()) return &*field;
    Fail(name, "a value, but the field is missing");
    return nullptr;
  }
  void Fail(const std::string& name, const char* expected) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat("field '", PathOf(name), "' must be ", expected));
  }

  const Json& object_;
  const std::string path_;
  absl::Status status_;
};

absl::StatusOr<Json> ParseJson(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("not a JSON object");
  return json;
}

Json ShapeJson(const LayerShape& shape) {
  return {{"micro_batch", shape.micro_batch},
          {"seq", shape.seq},
          {"hidden", shape.hidden},
          {"heads", shape.heads},
          {"ffn", shape.ffn},
          {"vocab", shape.vocab},
          {"tp", shape.tp},
          {"dropout", shape.dropout},
          {"family", EnumName(shape.family)},
          {"kv_heads", shape.kv_heads},
          {"attention", EnumName(shape.attention)},
          {"dtype", EnumName(shape.dtype)},
          {"sequence_parallel", shape.sequence_parallel},
          {"head_dim", shape.head_dim},
          {"qkv_bias", shape.qkv_bias},
          {"qk_norm", shape.qk_norm},
          {"qk_norm_whole", shape.qk_norm_whole},
          {"rotary_dims", shape.rotary_dims},
          {"experts", shape.experts},
          {"top_k", shape.top_k},
          {"expert_ffn", shape.expert_ffn},
          {"ep", shape.ep},
          {"capacity_permille", shape.capacity_permille},
          {"skew_permille", shape.skew_permille},
          {"dropless", shape.dropless},
          {"shared_ffn", shape.shared_ffn},
          {"shared_gate", shape.shared_gate},
          {"query_rank", shape.query_rank},
          {"kv_rank", shape.kv_rank},
          {"value_dim", shape.value_dim}};
}

// Reads how the layers' experts work, and on how many ranks they are.
void ReadExperts(FieldReader& reader, LayerShape& shape) {
  reader.Number("experts", shape.experts);
  reader.Number("top_k", shape.top_k);
  reader.Number("expert_ffn", shape.expert_ffn);
  reader.Number("ep", shape.ep);
  reader.Number("capacity_permille", shape.capacity_permille);
  reader.Number("skew_permille", shape.skew_permille);
  reader.Truth("dropless", shape.dropless);
  reader.Number("shared_ffn", shape.shared_ffn);
  reader.Truth("shared_gate", shape.shared_gate);
  reader.Require(shape.experts >= 0 && shape.experts <= kMaxExperts, "experts",
                 absl::StrCat("from 0 to ", kMaxExperts).c_str());
  reader.Require(shape.ep >= 1, "ep", "positive");
  if (!shape.moe()) {
    reader.Require(shape.ep == 1, "ep", "1 without experts");
    reader.Require(shape.shared_ffn == 0, "shared_ffn", "0 without experts");
    reader.Require(!shape.shared_gate, "shared_gate", "false without experts");
    return;
  }
  reader.Require(shape.family == ModelFamily::kLlama, "family", "llama for experts");
  reader.Require(shape.top_k >= 1 && shape.top_k <= shape.experts, "top_k", "from 1 to experts");
  reader.Require(shape.expert_ffn >= 1, "expert_ffn", "positive");
  reader.Require(shape.shared_ffn >= 0, "shared_ffn", "0 or more");
  reader.Require(!shape.shared_gate || shape.shared_ffn > 0, "shared_gate", "false without shared_ffn");
  reader.Require(shape.ep < 1 || shape.experts % shape.ep == 0, "experts", "a multiple of ep");
  reader.Require(shape.capacity_permille >= 1, "capacity_permille", "positive: the engine gives each expert a room");
  reader.Require(shape.tp == 1 || shape.sequence_parallel, "sequence_parallel", "true for experts with tp above 1");
}

// Reads how latent attention works.
void ReadLatents(FieldReader& reader, LayerShape& shape) {
  reader.Number("query_rank", shape.query_rank);
  reader.Number("kv_rank", shape.kv_rank);
  reader.Number("value_dim", shape.value_dim);
  reader.Require(shape.kv_rank >= 0, "kv_rank", "0 or more");
  if (!shape.latent()) {
    reader.Require(shape.query_rank == 0, "query_rank", "0 without kv_rank");
    reader.Require(shape.value_dim == 0, "value_dim", "0 without kv_rank");
    return;
  }
  reader.Require(shape.query_rank >= 0, "query_rank", "0 or more");
  reader.Require(shape.value_dim >= 1, "value_dim", "positive");
  reader.Require(shape.family == ModelFamily::kLlama, "family", "llama for latent attention");
  reader.Require(shape.attention == AttentionKernel::kFused, "attention", "fused for latent attention");
  reader.Require(shape.key_heads() == shape.heads, "kv_heads", "heads, or 0, for latent attention");
  reader.Require(!shape.qk_norm && !shape.qkv_bias, "kv_rank", "0 with qk_norm or qkv_bias");
  reader.Require(shape.rotary_dims >= 2, "rotary_dims", "2 or more for latent attention");
}

absl::StatusOr<LayerShape> ReadShape(const Json& json, const std::string& path) {
  LayerShape shape;
  FieldReader reader(json, path);
  reader.Number("micro_batch", shape.micro_batch);
  reader.Number("seq", shape.seq);
  reader.Number("hidden", shape.hidden);
  reader.Number("heads", shape.heads);
  reader.Number("ffn", shape.ffn);
  reader.Number("vocab", shape.vocab);
  reader.Number("tp", shape.tp);
  reader.Truth("dropout", shape.dropout);
  std::string family, attention, dtype;
  reader.Text("family", family);
  reader.Number("kv_heads", shape.kv_heads);
  reader.Text("attention", attention);
  reader.Text("dtype", dtype);
  reader.Truth("sequence_parallel", shape.sequence_parallel);
  reader.Number("head_dim", shape.head_dim);
  reader.Truth("qkv_bias", shape.qkv_bias);
  reader.Truth("qk_norm", shape.qk_norm);
  reader.Truth("qk_norm_whole", shape.qk_norm_whole);
  reader.Number("rotary_dims", shape.rotary_dims);
  const auto positive = [&](const char* name, int32_t value) { reader.Require(value > 0, name, "positive"); };
  positive("micro_batch", shape.micro_batch);
  positive("seq", shape.seq);
  positive("hidden", shape.hidden);
  positive("heads", shape.heads);
  positive("ffn", shape.ffn);
  positive("vocab", shape.vocab);
  positive("tp", shape.tp);
  reader.Require(ParseEnum(family, shape.family), "family", "gpt or llama");
  reader.Require(ParseEnum(attention, shape.attention), "attention", "unfused or fused");
  reader.Require(ParseEnum(dtype, shape.dtype), "dtype", "float32 or bfloat16");
  reader.Require(shape.kv_heads >= 0, "kv_heads", "0 or more");
  ReadExperts(reader, shape);
  ReadLatents(reader, shape);
  LYNX_RETURN_IF_ERROR(reader.status());
  reader.Require(shape.head_dim >= 0, "head_dim", "0 or more");
  reader.Require(shape.head_dim > 0 || shape.hidden % shape.heads == 0, "hidden", "a multiple of heads");
  LYNX_RETURN_IF_ERROR(reader.status());
  const int32_t turning = shape.rotary_dims == 0 ? shape.head_size() : shape.rotary_dims;
  reader.Require(shape.rotary_dims >= 0 && shape.rotary_dims <= shape.head_size(), "rotary_dims", "0, or at most a head");
  reader.Require(shape.family == ModelFamily::kGpt || (turning % 2 == 0 && turning <= kMaxRotaryDims),
                 shape.head_dim == 0 ? "hidden" : "head_dim",
                 "such that an even number of at most 512 elements of a head turn");
  reader.Require(shape.heads % shape.tp == 0, "heads", "a multiple of tp");
  reader.Require(shape.heads % shape.key_heads() == 0, "kv_heads", "a divisor of heads");
  reader.Require(!shape.qk_norm_whole || (shape.qk_norm && shape.tp == 1 && shape.key_heads() == shape.heads), "qk_norm_whole",
                 "true only with qk_norm, tp 1 and as many heads of keys as of queries");
  reader.Require(shape.key_heads() % shape.tp == 0, "kv_heads", "a multiple of tp");
  reader.Require(shape.moe() || shape.ffn % shape.tp == 0, "ffn", "a multiple of tp");
  reader.Require(!shape.sequence_parallel || shape.seq % shape.tp == 0, "seq", "a multiple of tp");
  LYNX_RETURN_IF_ERROR(reader.status());
  return shape;
}

Json TimesJson(const ShapeTimes& times) {
  Json ops = Json::object();
  for (const OpInfo& info : LayerGraph::Of(times.shape).ops()) {
    const OpTimes& op = times.ops[static_cast<size_t>(info.op)];
    ops[std::string(EnumName(info.op))] = {
        {"forward_ns", op.forward.value}, {"backward_ns", op.backward.value}, {"weight_ns", op.weight.value}};
  }
  return {{"shape", ShapeJson(times.shape)},
          {"optimizer_per_mega_parameter_ns", times.optimizer_per_mega_parameter.value},
          {"ops", ops}};
}

absl::StatusOr<ShapeTimes> ReadTimes(const Json& json, const std::string& path) {
  ShapeTimes times;
  FieldReader reader(json, path);
  reader.Time("optimizer_per_mega_parameter_ns", times.optimizer_per_mega_parameter);
  const Json& shape = reader.Object("shape");
  const Json& ops = reader.Object("ops");
  LYNX_RETURN_IF_ERROR(reader.status());
  LYNX_ASSIGN_OR_RETURN(times.shape, ReadShape(shape, reader.PathOf("shape")));
  FieldReader ops_reader(ops, reader.PathOf("ops"));
  for (const OpInfo& info : LayerGraph::Of(times.shape).ops()) {
    const std::string name(EnumName(info.op));
    OpTimes& op = times.ops[static_cast<size_t>(info.op)];
    FieldReader op_reader(ops_reader.Object(name.c_str()), ops_reader.PathOf(name));
    LYNX_RETURN_IF_ERROR(ops_reader.status());
    op_reader.Time("forward_ns", op.forward);
    op_reader.Time("backward_ns", op.backward);
    op_reader.Time("weight_ns", op.weight);
    LYNX_RETURN_IF_ERROR(op_reader.status());
  }
  return times;
}

Json HostJson(const HostLink& host) {
  return {{"latency_ns", host.latency.value},
          {"to_host_bytes_per_second", host.to_host_bytes_per_second},
          {"from_host_bytes_per_second", host.from_host_bytes_per_second},
          {"both_bytes_per_second", host.both_bytes_per_second},
          {"op_slowdown_permille", host.op_slowdown_permille}};
}

absl::StatusOr<HostLink> ReadHost(const Json& json, const std::string& path) {
  HostLink host;
  FieldReader reader(json, path);
  reader.Time("latency_ns", host.latency);
  reader.Number("to_host_bytes_per_second", host.to_host_bytes_per_second);
  reader.Number("from_host_bytes_per_second", host.from_host_bytes_per_second);
  reader.Number("both_bytes_per_second", host.both_bytes_per_second);
  reader.Number("op_slowdown_permille", host.op_slowdown_permille);
  LYNX_RETURN_IF_ERROR(reader.status());
  return host;
}

void ReadLink(FieldReader& reader, LinkCost& link) {
  reader.Time("latency_ns", link.latency);
  reader.Number("bytes_per_second", link.bytes_per_second);
  reader.Require(link.latency >= Nanos(0), "latency_ns", "0 or more");
  reader.Require(link.bytes_per_second > 0, "bytes_per_second", "positive");
}

void ReadOverlap(FieldReader& reader, int32_t& slowdown_permille, int32_t& compute_permille) {
  reader.Number("overlap_slowdown_permille", slowdown_permille);
  reader.Number("communication_compute_permille", compute_permille);
  reader.Require(slowdown_permille >= 1000, "overlap_slowdown_permille", "1000 or more");
  reader.Require(compute_permille >= 0 && compute_permille <= 1000, "communication_compute_permille", "in 0..1000");
}

}  // namespace

std::string MeasureRequestText(const MeasureRequest& request) {
  Json shapes = Json::array();
  for (const LayerShape& shape : request.shapes) shapes.push_back(ShapeJson(shape));
  const Json json = {
      {"shapes", shapes},       {"device_kind", EnumName(request.device_kind)}, {"device_uuid", request.device_uuid},
      {"cores", request.cores}, {"repetitions", request.repetitions},           {"budget_seconds", request.budget_seconds}};
  return json.dump(2);
}

absl::StatusOr<MeasureRequest> ParseMeasureRequest(const std::string& text) {
  LYNX_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  MeasureRequest request;
  FieldReader reader(json, "");
  std::string kind;
  reader.Text("device_kind", kind);
  reader.Text("device_uuid", request.device_uuid);
  reader.Require(ParseEnum(kind, request.device_kind) && request.device_kind != DeviceKind::kAny, "device_kind", "cpu or cuda");
  reader.Require((request.device_kind == DeviceKind::kCuda) != request.device_uuid.empty(), "device_uuid",
                 "a GPU's, and empty for a CPU");
  reader.Numbers("cores", request.cores);
  reader.Number("repetitions", request.repetitions);
  reader.Number("budget_seconds", request.budget_seconds);
  reader.Require(request.repetitions >= 1 && request.repetitions <= 1000, "repetitions", "in 1..1000");
  reader.Require(request.budget_seconds > 0, "budget_seconds", "positive");
  for (const Json& one : reader.List("shapes")) {
    const std::string path = absl::StrCat("shapes[", request.shapes.size(), "]");
    LYNX_ASSIGN_OR_RETURN(const LayerShape shape, ReadShape(one, path));
    request.shapes.push_back(shape);
  }
  LYNX_RETURN_IF_ERROR(reader.status());
  return request;
}

std::string MeasureResultText(const MeasureResult& result) {
  Json measured = Json::array();
  for (const ShapeTimes& times : result.measured) measured.push_back(TimesJson(times));
  const Json json = {{"device_kind", result.device_kind},
                     {"flops_per_second", result.flops_per_second},
                     {"bfloat16_flops_per_second", result.bfloat16_flops_per_second},
                     {"memory_bytes_per_second", result.memory_bytes_per_second},
                     {"op_overhead_ns", result.op_overhead.value},
                     {"host", HostJson(result.host)},
                     {"measured", measured}};
  return json.dump(2);
}

absl::StatusOr<MeasureResult> ParseMeasureResult(const std::string& text) {
  LYNX_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  MeasureResult result;
  FieldReader reader(json, "");
  reader.Text("device_kind", result.device_kind);
  reader.Number("flops_per_second", result.flops_per_second);
  reader.Number("bfloat16_flops_per_second", result.bfloat16_flops_per_second);
  reader.Number("memory_bytes_per_second", result.memory_bytes_per_second);
  reader.Time("op_overhead_ns", result.op_overhead);
  const Json& host = reader.Object("host");
  reader.Require(result.flops_per_second > 0, "flops_per_second", "positive");
  reader.Require(result.bfloat16_flops_per_second > 0, "bfloat16_flops_per_second", "positive");
  reader.Require(result.memory_bytes_per_second > 0, "memory_bytes_per_second", "positive");
  for (const Json& one : reader.List("measured")) {
    const std::string path = absl::StrCat("measured[", result.measured.size(), "]");
    LYNX_ASSIGN_OR_RETURN(const ShapeTimes times, ReadTimes(one, path));
    result.measured.push_back(times);
  }
  LYNX_RETURN_IF_ERROR(reader.status());
  LYNX_ASSIGN_OR_RETURN(result.host, ReadHost(host, "host"));
  return result;
}

std::string LinkRequestText(const LinkRequest& request) {
  const Json json = {{"host", request.host},
                     {"cores", request.cores},
                     {"repetitions", request.repetitions},
                     {"budget_seconds", request.budget_seconds},
                     {"pacing_bytes_per_second", request.pacing_bytes_per_second},
                     {"encrypt", request.encrypt}};
  return json.dump(2);
}

absl::StatusOr<LinkRequest> ParseLinkRequest(const std::string& text) {
  LYNX_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  LinkRequest request;
  FieldReader reader(json, "");
  reader.Text("host", request.host);
  reader.Number("repetitions", request.repetitions);
  reader.Number("budget_seconds", request.budget_seconds);
  reader.Number("pacing_bytes_per_second", request.pacing_bytes_per_second);
  reader.Truth("encrypt", request.encrypt);
  reader.Require(request.repetitions >= 1 && request.repetitions <= 1000, "repetitions", "in 1..1000");
  reader.Require(request.budget_seconds > 0, "budget_seconds", "positive");
  reader.Require(request.pacing_bytes_per_second >= 0, "pacing_bytes_per_second", "0 or more");
  reader.NumberLists("cores", request.cores);
  reader.Require(request.cores.empty() || request.cores.size() == 2, "cores", "empty or of two ranks");
  LYNX_RETURN_IF_ERROR(reader.status());
  return request;
}

std::string LinkResultText(const LinkResult& result) {
  const Json json = {{"latency_ns", result.link.latency.value},
                     {"bytes_per_second", result.link.bytes_per_second},
                     {"overlap_slowdown_permille", result.overlap_slowdown_permille},
                     {"communication_compute_permille", result.communication_compute_permille}};
  return json.dump(2);
}

absl::StatusOr<LinkResult> ParseLinkResult(const std::string& text) {
  LYNX_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  LinkResult result;
  FieldReader reader(json, "");
  ReadLink(reader, result.link);
  ReadOverlap(reader, result.overlap_slowdown_permille, result.communication_compute_permille);
  LYNX_RETURN_IF_ERROR(reader.status());
  return result;
}

std::string GpuLinksRequestText(const GpuLinksRequest& request) {
  const Json json = {
      {"host", request.host},     {"device_uuids", request.device_uuids}, {"cores", request.cores},
      {"blocks", request.blocks}, {"repetitions", request.repetitions},   {"budget_seconds", request.budget_seconds}};
  return json.dump(2);
}

absl::StatusOr<GpuLinksRequest> ParseGpuLinksRequest(const std::string& text) {
  LYNX_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  GpuLinksRequest request;
  FieldReader reader(json, "");
  reader.Text("host", request.host);
  reader.Texts("device_uuids", request.device_uuids);
  reader.NumberLists("cores", request.cores);
  reader.Numbers("blocks", request.blocks);
  reader.Number("repetitions", request.repetitions);
  reader.Number("budget_seconds", request.budget_seconds);
  reader.Require(request.device_uuids.size() >= 2, "device_uuids", "of two GPUs or more");
  reader.Require(request.cores.empty() || request.cores.size() == request.device_uuids.size(), "cores",
                 "empty or of every GPU");
  int32_t smaller = 1;
  const auto gpus = static_cast<int32_t>(request.device_uuids.size());
  for (const int32_t block : request.blocks) {
    const bool divides = block > smaller && block % smaller == 0 && block < gpus && gpus % block == 0;
    reader.Require(divides, "blocks", "ascending, each a divisor of the next and of the number of GPUs");
    smaller = std::max(block, 1);
  }
  reader.Require(request.repetitions >= 1 && request.repetitions <= 1000, "repetitions", "in 1..1000");
  reader.Require(request.budget_seconds > 0, "budget_seconds", "positive");
  LYNX_RETURN_IF_ERROR(reader.status());
  return request;
}

std::string GpuLinksResultText(const GpuLinksResult& result) {
  Json inner = Json::array();
  for (const LinkLevel& level : result.inner_links) {
    inner.push_back({{"devices", level.devices},
                     {"latency_ns", level.link.latency.value},
                     {"bytes_per_second", level.link.bytes_per_second}});
  }
  const Json json = {{"latency_ns", result.link.latency.value},
                     {"bytes_per_second", result.link.bytes_per_second},
                     {"inner_links", inner},
                     {"overlap_slowdown_permille", result.overlap_slowdown_permille},
                     {"communication_compute_permille", result.communication_compute_permille},
                     {"nccl_bytes", result.nccl_memory.value},
                     {"route_bytes", result.route_memory.value}};
  return json.dump(2);
}

absl::StatusOr<GpuLinksResult> ParseGpuLinksResult(const std::string& text) {
  LYNX_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  GpuLinksResult result;
  FieldReader reader(json, "");
  ReadLink(reader, result.link);
  ReadOverlap(reader, result.overlap_slowdown_permille, result.communication_compute_permille);
  reader.Number("nccl_bytes", result.nccl_memory.value);
  reader.Number("route_bytes", result.route_memory.value);
  reader.Require(result.nccl_memory >= Bytes(0), "nccl_bytes", "0 or more");
  reader.Require(result.route_memory >= Bytes(0), "route_bytes", "0 or more");
  for (const Json& one : reader.List("inner_links")) {
    FieldReader inner(one, absl::StrCat("inner_links[", result.inner_links.size(), "]"));
    LinkLevel& level = result.inner_links.emplace_back();
    inner.Number("devices", level.devices);
    inner.Require(level.devices >= 2, "devices", "2 or more");
    ReadLink(inner, level.link);
    LYNX_RETURN_IF_ERROR(inner.status());
  }
  LYNX_RETURN_IF_ERROR(reader.status());
  return result;
}

}  // namespace lynx
