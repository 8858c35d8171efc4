#include "cli/spec/measured_text.h"

#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/enum_names.h"
#include "common/status.h"
#include "planner/problem/latents.h"
#include "planner/problem/model_rules.h"

namespace lynx::cli {
namespace {

absl::Status NotExpected(const std::string& what, const std::string& got) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", what, ", found '", got, "'"));
}

// A field of a shape as text. `read` returns false if the text is no value of the field.
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
                                                           Word("gradientDtype", &S::gradient_dtype),
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
                                                           Count("valueDim", &S::value_dim),
                                                           Truth("encoder", &S::encoder)};
  return fields;
}

// What makes the shape one that no layer has; "" if nothing does. The limits are those of a model
// (planner/problem/job_spec.cc).
std::string FaultOf(const LayerShape& s) {
  struct Range {
    const char* name;
    int64_t value, low, high;
  };
  for (const Range& range :
       {Range{"microBatch", s.micro_batch, 1, 1 << 20}, Range{"seq", s.seq, 1, 1 << 20}, Range{"hidden", s.hidden, 1, 1 << 17},
        Range{"heads", s.heads, 1, 1 << 12}, Range{"ffn", s.ffn, 1, 1 << 20}, Range{"vocab", s.vocab, 2, 1 << 24},
        Range{"tp", s.tp, 1, 1 << 20}, Range{"cp", s.cp, 1, 1 << 20}, Range{"ep", s.ep, 1, 1 << 20},
        Range{"headDim", s.head_dim, 0, 1 << 12}, Range{"kvHeads", s.kv_heads, 0, s.heads},
        Range{"experts", s.experts, 0, 1 << 16}, Range{"topK", s.top_k, s.experts > 0 ? 1 : 0, s.experts},
        Range{"expertFfn", s.expert_ffn, s.experts > 0 ? 1 : 0, 1 << 20}, Range{"sharedFfn", s.shared_ffn, 0, 1 << 20},
        Range{"skewPermille", s.skew_permille, 1, 1 << 26}, Range{"queryRank", s.query_rank, 0, s.latent() ? kMaxHidden : 0},
        Range{"kvRank", s.kv_rank, 0, kMaxHidden},
        Range{"valueDim", s.value_dim, s.latent() ? 1 : 0, s.latent() ? kMaxHidden : 0}}) {
    if (range.value < range.low || range.value > range.high)
      return absl::StrCat(range.name, " from ", range.low, " to ", range.high);
  }
  struct Multiple {
    const char *name, *of;
    int64_t value, divisor;
  };
  const int32_t key_heads = s.key_heads();
  for (const Multiple& multiple :
       {Multiple{"hidden", "heads", s.head_dim == 0 ? s.hidden : 0, s.heads}, Multiple{"heads", "tp", s.heads, s.tp},
        Multiple{"heads", "kvHeads", s.heads, key_heads}, Multiple{"kvHeads", "tp", key_heads, s.tp},
        Multiple{"ffn", "tp", s.experts > 0 ? 0 : s.ffn, s.tp}, Multiple{"seq", "cp", s.seq, s.cp},
        Multiple{"experts", "ep", s.experts, s.ep}}) {
    if (multiple.value % multiple.divisor != 0) return absl::StrCat(multiple.name, " to be a multiple of ", multiple.of);
  }
  if (s.rotary_dims > s.head_size()) return "rotaryDims of at most a head";
  if (!s.latent() || FitsLatents(s)) return "";
  return "family=llama, attention=fused, as many kvHeads as heads, rotaryDims of at least 2, and no qkNorm, qkvBias and "
         "matmulType, which latent attention (kvRank) needs";
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
  if (const std::string fault = FaultOf(shape); !fault.empty()) return NotExpected(fault, text);
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
    return good ? absl::OkStatus()
                : NotExpected("three times in nanoseconds, such as qkv=10,20,5", absl::StrCat(name, "=", value));
  }));
  return times;
}

}  // namespace lynx::cli
