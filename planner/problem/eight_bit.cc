#include "planner/problem/eight_bit.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

constexpr int64_t kScaledElements = 32;  // elements of MXFP8 that share a scale
constexpr int64_t kFloat8Unit = 16;      // dimensions of float8 operands are multiples of it
constexpr int64_t kWideBytes = 2;        // bytes of an element before it is quantised

int64_t UnitOf(MatmulType type) { return type == MatmulType::kMxfp8 ? kScaledElements : kFloat8Unit; }

// Number of elements of the operands of a linear on one rank: the whole input of its product, and the gradient of its output.
struct OperandElements {
  int64_t input = 0, output = 0;
};

OperandElements ElementsOf(Op op, const LayerShape& shape) {
  const int64_t hidden = shape.tokens() * shape.hidden;
  switch (op) {
    case Op::kQkv: return {hidden, shape.tokens() * shape.qkv_width()};
    case Op::kProj: return {shape.tokens() * shape.context_width(), hidden};
    case Op::kFc1: return {shape.mlp_rows() * shape.hidden, shape.mlp_rows() * shape.fc1_width()};
    case Op::kFc2: return {shape.mlp_rows() * shape.mlp_width(), shape.mlp_rows() * shape.hidden};
    default: return {};
  }
}

// Number of elements of the op's output if only a linear reads it; 0 for all other ops.
int64_t InputsMadeBy(Op op, const LayerShape& shape) {
  switch (op) {
    case Op::kLn1: return shape.shard_tokens() * shape.hidden;
    case Op::kLn2: return shape.moe() ? 0 : shape.shard_tokens() * shape.hidden;
    case Op::kPermute: return shape.expert_rows() * shape.hidden;
    case Op::kGelu:
    case Op::kSwiglu: return shape.mlp_rows() * shape.mlp_width();
    default: return 0;
  }
}

// Number of bytes that a kernel reads and writes to quantise `elements` elements and to write `copies` copies of them.
Bytes KernelBytes(int64_t elements, int64_t copies, MatmulType type) {
  const int64_t reads = type == MatmulType::kFloat8 ? 2 : 1;
  return Bytes(elements * kWideBytes * reads) + EightBitBytes(elements, type) * copies;
}

}  // namespace

bool IsEightBitProduct(Op op, const LayerShape& shape) {
  if (shape.matmul_type == MatmulType::kModel) return false;
  return op == Op::kQkv || op == Op::kProj || op == Op::kFc1 || op == Op::kFc2;
}

bool IsEightBitTensor(Tensor tensor, const LayerShape& shape) {
  if (shape.matmul_type == MatmulType::kModel) return false;
  switch (tensor) {
    case Tensor::kLn2:
    case Tensor::kLn2Full: return !shape.moe();
    case Tensor::kLn1:
    case Tensor::kLn1Full:
    case Tensor::kExpertRows:
    case Tensor::kGelu:
    case Tensor::kSwiglu: return true;
    default: return false;
  }
}

Bytes EightBitBytes(int64_t elements, MatmulType type) {
  const int64_t scales = type == MatmulType::kMxfp8 ? (elements + kScaledElements - 1) / kScaledElements : 0;
  return Bytes(elements + scales);
}

Bytes QuantizeTraffic(Op op, Pass pass, const LayerShape& shape) {
  const MatmulType type = shape.matmul_type;
  if (type == MatmulType::kModel) return Bytes(0);
  const int64_t made = InputsMadeBy(op, shape);
  if (pass == Pass::kForward && made > 0) return KernelBytes(made, 2, type);
  const OperandElements elements = ElementsOf(op, shape);
  switch (pass) {
    case Pass::kForward:
    case Pass::kWeight: return op == Op::kProj ? KernelBytes(elements.input, 1, type) : Bytes(0);
    case Pass::kBackward: return KernelBytes(elements.output, 2, type);
  }
  return Bytes(0);
}

int64_t QuantizeWeightBytes(MatmulType type) { return type == MatmulType::kModel ? 0 : KernelBytes(1, 0, type).value + 2; }

Bytes EightBitWorkspace(Op op, Pass pass, const LayerShape& shape) {
  const MatmulType type = shape.matmul_type;
  if (type == MatmulType::kModel) return Bytes(0);
  const OperandElements elements = ElementsOf(op, shape);
  switch (pass) {
    case Pass::kForward: {
      // The fc1 of experts quantises the rows that the dispatch wrote, so permute itself writes no 8-bit copy.
      if (op == Op::kPermute) return Bytes(0);
      const int64_t wide = op == Op::kFc1 && shape.moe() ? elements.input : InputsMadeBy(op, shape);
      return EightBitBytes(elements.input, type) + Bytes(wide * kWideBytes);
    }
    case Pass::kBackward: return EightBitBytes(elements.output, type) * 2;
    case Pass::kWeight: return EightBitBytes(elements.output, type) + EightBitBytes(op == Op::kProj ? elements.input : 0, type);
  }
  return Bytes(0);
}

int64_t WeightsInEightBits(const LayerShape& shape) {
  if (shape.matmul_type == MatmulType::kModel) return 0;
  const int64_t mlp_widths = (shape.fc1_width() + shape.mlp_width()) * shape.own_experts();
  return shape.hidden * (shape.qkv_width() + shape.context_width() + mlp_widths);
}

Bytes EightBitWeights(const LayerShape& shape) { return EightBitBytes(WeightsInEightBits(shape), shape.matmul_type) * 2; }

int64_t PaddedExpertRows(int64_t rows, MatmulType type) {
  if (type == MatmulType::kModel) return rows;
  const int64_t unit = UnitOf(type);
  return (rows + unit - 1) / unit * unit;
}

absl::Status CheckEightBitSizes(const ModelSpec& model, const ParallelLayout& layout) {
  if (model.matmul_type == MatmulType::kModel) return absl::OkStatus();
  const LayerShape shape = ShapeOf(model, layout, 1);
  const int64_t unit = UnitOf(model.matmul_type);
  const std::pair<const char*, int64_t> sizes[] = {
      {"the hidden size", shape.hidden},
      {"the width of queries, keys and values on a rank", shape.qkv_width()},
      {"the width of attention's output on a rank", shape.context_width()},
      {shape.moe() ? "the width of an expert" : "the feed-forward width of a rank", shape.mlp_width()},
      {"the tokens of a sample on a rank", shape.shard_tokens()}};
  for (const auto& [what, size] : sizes) {
    if (size % unit == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("model.matmulType ", EnumName(model.matmul_type), ": ", what, " is ", size,
                                                   ", and must be a multiple of ", unit, " with parallel.tp ", layout.tp,
                                                   " and parallel.cp ", layout.cp,
                                                   ": change the model's sizes or these, or set model.matmulType: model"));
  }
  return absl::OkStatus();
}

}  // namespace lynx
