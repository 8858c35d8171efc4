#include "planner/problem/narrow_products.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

constexpr int64_t kWideBytes = 2;  // bytes of an element before it is quantised

struct Format {
  int64_t elements_of_byte;   // elements in a byte
  int64_t elements_of_scale;  // elements that share a scale of one byte; 0 = one scale for the tensor, whose bytes do not count
  int64_t unit;               // dimensions of operands are multiples of it
  int64_t expert_rows;        // the rows of an expert are padded to a multiple of it
  int64_t reads;              // times that an element is read to quantise it
};

Format FormatOf(MatmulType type) {
  switch (type) {
    case MatmulType::kMxfp8: return {1, 32, 32, 32, 1};
    case MatmulType::kNvfp4: return {2, 16, 32, 128, 2};
    default: return {1, 0, 16, 16, 2};
  }
}

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
  return Bytes(elements * kWideBytes * FormatOf(type).reads) + NarrowBytes(elements, type) * copies;
}

}  // namespace

bool IsNarrowProduct(Op op, const LayerShape& shape) {
  if (shape.matmul_type == MatmulType::kModel) return false;
  return op == Op::kQkv || op == Op::kProj || op == Op::kFc1 || op == Op::kFc2;
}

bool IsNarrowTensor(Tensor tensor, const LayerShape& shape) {
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

Bytes NarrowBytes(int64_t elements, MatmulType type) {
  const Format format = FormatOf(type);
  const auto up = [&](int64_t of) { return (elements + of - 1) / of; };
  return Bytes(up(format.elements_of_byte) + (format.elements_of_scale > 0 ? up(format.elements_of_scale) : 0));
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

Bytes QuantizeWeightBytes(int64_t weights, MatmulType type) {
  return type == MatmulType::kModel ? Bytes(0) : KernelBytes(weights, 2, type);
}

Bytes NarrowWorkspace(Op op, Pass pass, const LayerShape& shape) {
  const MatmulType type = shape.matmul_type;
  if (type == MatmulType::kModel) return Bytes(0);
  const OperandElements elements = ElementsOf(op, shape);
  switch (pass) {
    case Pass::kForward: {
      // The fc1 of experts quantises the rows that the dispatch wrote, so permute itself writes no quantised copy.
      if (op == Op::kPermute) return Bytes(0);
      const int64_t wide = op == Op::kFc1 && shape.moe() ? elements.input : InputsMadeBy(op, shape);
      return NarrowBytes(elements.input, type) + Bytes(wide * kWideBytes);
    }
    case Pass::kBackward: return NarrowBytes(elements.output, type) * 2;
    case Pass::kWeight: return NarrowBytes(elements.output, type) + NarrowBytes(op == Op::kProj ? elements.input : 0, type);
  }
  return Bytes(0);
}

int64_t WeightsOfNarrowProducts(const LayerShape& shape) {
  if (shape.matmul_type == MatmulType::kModel) return 0;
  const int64_t mlp_widths = (shape.fc1_width() + shape.mlp_width()) * shape.own_experts();
  return shape.hidden * (shape.qkv_width() + shape.context_width() + mlp_widths);
}

Bytes NarrowWeights(const LayerShape& shape) { return NarrowBytes(WeightsOfNarrowProducts(shape), shape.matmul_type) * 2; }

int64_t PaddedExpertRows(int64_t rows, MatmulType type) {
  if (type == MatmulType::kModel) return rows;
  const int64_t unit = FormatOf(type).expert_rows;
  return (rows + unit - 1) / unit * unit;
}

absl::Status CheckNarrowSizes(const ModelSpec& model, const ParallelLayout& layout) {
  if (model.matmul_type == MatmulType::kModel) return absl::OkStatus();
  const LayerShape shape = ShapeOf(model, layout, 1);
  const int64_t unit = FormatOf(model.matmul_type).unit;
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
