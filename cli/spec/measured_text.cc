#include "cli/spec/measured_text.h"

#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/enum_names.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

absl::Status NotExpected(const std::string& what, const std::string& got) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", what, ", found '", got, "'"));
}

// A field of a shape as text, both ways. `read` returns false if the text is no value of the field.
struct ShapeField {
  const char* name;
  std::function<std::string(const LayerShape&)> write;
  std::function<bool(const std::string&, LayerShape&)> read;
};

ShapeField Count(const char* name, int32_t LayerShape::*member) {
  return {name, [=](const LayerShape& shape) { return absl::StrCat(shape.*member); },
          [=](const std::string& text, LayerShape& shape) {
            return absl::SimpleAtoi(text, &(shape.*member)) && shape.*member >= 0;
          }};
}

ShapeField Truth(const char* name, bool LayerShape::*member) {
  return {name, [=](const LayerShape& shape) { return shape.*member ? "true" : "false"; },
          [=](const std::string& text, LayerShape& shape) {
            shape.*member = text == "true";
            return text == "true" || text == "false";
          }};
}

template <class Enum>
ShapeField Word(const char* name, Enum LayerShape::*member) {
  return {name, [=](const LayerShape& shape) { return std::string(EnumName(shape.*member)); },
          [=](const std::string& text, LayerShape& shape) { return ParseEnum(text, shape.*member); }};
}

const std::vector<ShapeField>& ShapeFields() {
  using S = LayerShape;
  static const auto& fields = *new std::vector<ShapeField>{Count("microBatch", &S::micro_batch),
                                                           Count("seq", &S::seq),
                                                           Count("hidden", &S::hidden),
                                                           Count("heads", &S::heads),
                                                           Count("ffn", &S::ffn),
                                                           Count("vocab", &S::vocab),
                                                           Count("tp", &S::tp),
                                                           Truth("dropout", &S::dropout),
                                                           Word("family", &S::family),
                                                           Count("kvHeads", &S::kv_heads),
                                                           Word("attention", &S::attention),
                                                           Word("dtype", &S::dtype),
                                                           Truth("storedMasks", &S::stored_masks),
                                                           Truth("sequenceParallel", &S::sequence_parallel),
                                                           Count("cp", &S::cp),
                                                           Count("headDim", &S::head_dim),
                                                           Truth("qkvBias", &S::qkv_bias),
                                                           Truth("qkNorm", &S::qk_norm),
                                                           Truth("qkNormWhole", &S::qk_norm_whole),
                                                           Count("rotaryDims", &S::rotary_dims),
                                                           Word("matmulType", &S::matmul_type),
                                                           Count("experts", &S::experts),
                                                           Count("topK", &S::top_k),
                                                           Count("expertFfn", &S::expert_ffn),
                                                           Count("ep", &S::ep),
                                                           Count("capacityPermille", &S::capacity_permille),
                                                           Count("skewPermille", &S::skew_permille),
                                                           Truth("dropless", &S::dropless),
                                                           Count("sharedFfn", &S::shared_ffn),
                                                           Truth("sharedGate", &S::shared_gate),
                                                           Count("queryRank", &S::query_rank),
                                                           Count("kvRank", &S::kv_rank),
                                                           Count("valueDim", &S::value_dim)};
  return fields;
}

// Calls `take(name, value)` for each NAME=VALUE of the text.
absl::Status ForEachPair(const std::string& text,
                         const std::function<absl::Status(const std::string& name, const std::string& value)>& take) {
  for (const absl::string_view part : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::vector<std::string> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.size() != 2) return NotExpected("NAME=VALUE", std::string(part));
    LYNX_RETURN_IF_ERROR(take(pair[0], pair[1]));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ShapeText(const LayerShape& shape) {
  std::string text;
  const LayerShape defaults;
  for (const ShapeField& field : ShapeFields()) {
    const std::string value = field.write(shape);
    if (value != field.write(defaults)) absl::StrAppend(&text, text.empty() ? "" : " ", field.name, "=", value);
  }
  return text;
}

absl::StatusOr<LayerShape> ParseShape(const std::string& text) {
  LayerShape shape;
  LYNX_RETURN_IF_ERROR(ForEachPair(text, [&](const std::string& name, const std::string& value) {
    for (const ShapeField& field : ShapeFields()) {
      if (name != field.name) continue;
      return field.read(value, shape) ? absl::OkStatus()
                                      : NotExpected(absl::StrCat("a value of ", name), absl::StrCat(name, "=", value));
    }
    return NotExpected("a field of a shape, such as seq=2048", absl::StrCat(name, "=", value));
  }));
  return shape;
}

std::string OpTimesText(const TimesOfOps& times) {
  std::string text;
  for (size_t op = 0; op < times.size(); ++op) {
    const OpTimes& t = times[op];
    if (t == OpTimes()) continue;
    absl::StrAppend(&text, text.empty() ? "" : " ", EnumName(static_cast<Op>(op)), "=", t.forward.value, ",", t.backward.value,
                    ",", t.weight.value);
  }
  return text;
}

absl::StatusOr<TimesOfOps> ParseOpTimes(const std::string& text) {
  TimesOfOps times;
  LYNX_RETURN_IF_ERROR(ForEachPair(text, [&](const std::string& name, const std::string& value) {
    Op op;
    if (!ParseEnum(name, op)) return NotExpected("the name of an op, such as qkv", name);
    const std::vector<std::string> parts = absl::StrSplit(value, ',');
    OpTimes& t = times[static_cast<size_t>(op)];
    const bool good = parts.size() == 3 && absl::SimpleAtoi(parts[0], &t.forward.value) &&
                      absl::SimpleAtoi(parts[1], &t.backward.value) && absl::SimpleAtoi(parts[2], &t.weight.value);
    return good ? absl::OkStatus() : NotExpected("three times in nanoseconds, such as qkv=10,20,5", absl::StrCat(name, "=", value));
  }));
  return times;
}

}  // namespace lynx::cli
