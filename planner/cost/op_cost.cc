#include "planner/cost/op_cost.h"

#include <algorithm>
#include <limits>

#include "common/check.h"
#include "planner/problem/narrow_products.h"

namespace lynx {
namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;
constexpr int64_t kFloatBytes = 4;
constexpr int32_t kSmallestTile = 64;
constexpr int64_t kHalvingPermille = 900;  // speed of a tile, relative to a tile of twice its size

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t Saturated(__int128 value) {
  return static_cast<int64_t>(std::min<__int128>(value, std::numeric_limits<int64_t>::max()));
}

// Returns `rate` times the efficiency of `curve` at `size`; at least 1.
int64_t RateAt(int64_t rate, const EfficiencyCurve& curve, int64_t size) {
  return std::max<int64_t>(1, Saturated(static_cast<__int128>(rate) * EfficiencyAt(curve, size) / 1000));
}

const EfficiencyCurve& CurveOf(const HardwareProfile& profile, OpClass op_class) {
  return profile.efficiency[static_cast<size_t>(op_class)];
}

bool HasTiles(const HardwareProfile& profile) { return profile.gemm_tiles.units > 0; }

Nanos Limited(__int128 nanos) { return Nanos(static_cast<int64_t>(std::min<__int128>(nanos, kMaxTime.value))); }

Nanos Sum(Nanos a, Nanos b) { return std::min(kMaxTime, a + b); }

int64_t TiledFlops(const GemmShape& gemm, const GemmTiles& tiles, int64_t rows, int64_t columns, int halvings) {
  const int64_t waves = CeilDiv(CeilDiv(gemm.rows, rows) * CeilDiv(gemm.columns, columns) * gemm.count, tiles.units);
  __int128 flops = static_cast<__int128>(2) * waves * tiles.units * rows * columns * gemm.depth;
  for (int i = 0; i < halvings; ++i) flops = flops * 1000 / kHalvingPermille;
  return Saturated(flops);
}

// `operands` are the bytes of the operands that a product reads. `alone` are the bytes that move while nothing is multiplied:
// the result that the product writes or adds to, and, for the gradient of the bias (a separate kernel), the output's gradient
// once more.
struct GemmBytes {
  int64_t operands;
  int64_t alone;
};

GemmBytes BytesOf(const GemmShape& gemm, Op op, Pass pass, const LayerShape& shape) {
  const int64_t element = shape.element_bytes();
  // Scales stand in tiles of their own and are not counted.
  const auto bytes = [&](int64_t elements, int64_t each) {
    if (!IsNarrowProduct(op, shape)) return elements * each;
    return shape.matmul_type == MatmulType::kNvfp4 ? (elements + 1) / 2 : elements;
  };
  // Logits and their gradient are 32-bit. They are the result in the forward pass, and an operand in the other passes.
  const int64_t wide = gemm.logits ? kFloatBytes : element;
  const int64_t left = gemm.rows * gemm.depth * gemm.count, right = gemm.depth * gemm.columns * gemm.count;
  const int64_t result = gemm.rows * gemm.columns * gemm.count;
  switch (pass) {
    case Pass::kForward: return {bytes(left + right, element), result * wide};
    case Pass::kBackward: return {bytes(left, wide) + bytes(right, element), result * element};
    case Pass::kWeight: {
      const bool bias = op == Op::kQkv ? shape.has_qkv_bias() : op == Op::kFc1 && shape.family == ModelFamily::kGpt;
      return {bytes(left, wide) + bytes(right, element), result * 2 * kFloatBytes + (bias ? left * element : 0)};
    }
  }
  LYNX_CHECK(!"unknown pass");
  return {};
}

// Time of one of an op's products, which has `flops` FLOPs.
Nanos TiledGemmTime(const HardwareProfile& profile, const GemmShape& gemm, int64_t flops, Op op, Pass pass,
                    const LayerShape& shape) {
  const GemmBytes bytes = BytesOf(gemm, op, pass, shape);
  const bool narrow = IsNarrowProduct(op, shape);
  LYNX_CHECK(!narrow || profile.NarrowFlopsPerSecond(shape.matmul_type) > 0);
  const int64_t peak = narrow ? profile.NarrowFlopsPerSecond(shape.matmul_type) : profile.FlopsPerSecond(shape.dtype);
  const int64_t rate = RateAt(peak, CurveOf(profile, OpClass::kGemm), flops);
  const Nanos products = TimeAtRate(PaddedFlops(gemm, profile.gemm_tiles), rate);
  return Sum(std::max(products, MemoryTime(profile, Bytes(bytes.operands))), MemoryTime(profile, Bytes(bytes.alone)));
}

// Time of the kernel that quantises operands of narrow products in this pass of the op; 0 if there is none.
Nanos QuantizeTime(const HardwareProfile& profile, Op op, Pass pass, const LayerShape& shape) {
  const Bytes moved = QuantizeTraffic(op, pass, shape);
  return moved.value == 0 ? Nanos(0) : Sum(MemoryTime(profile, moved), profile.op_overhead);
}

// Bytes that the kernels over the scores move, one kernel after another. Forward pass: the first product writes the scores.
// Softmax reads the scores and writes probabilities. Dropout reads the probabilities and writes the mask and its result. The
// last product reads this result. Backward pass: the gradients of the probabilities are written, pass through dropout and
// softmax, and are read for the gradients of Q and K. The dropped probabilities are read for the gradient of V.
int64_t ScoreKernelBytes(Op op, Pass pass, const LayerShape& shape) {
  const int64_t scores = TensorBytes(Tensor::kProbs, shape).value;
  const int64_t dropout = shape.dropout && !shape.stored_masks ? scores * 2 : 0;  // the mask is drawn again, in a separate
                                                                                  // kernel
  const bool forward = pass == Pass::kForward;
  switch (op) {
    case Op::kProbs: return scores * (forward ? 3 : 5);
    case Op::kDrop: return scores * 2 + TensorBytes(Tensor::kProbsMask, shape).value;
    case Op::kContext: return scores * (forward ? 1 : 2) + dropout * (forward ? 1 : 2);
    default: break;
  }
  LYNX_CHECK(!"no op over the scores");
  return 0;
}

}  // namespace

Nanos TimeAtRate(int64_t amount, int64_t per_second) {
  LYNX_CHECK(amount >= 0 && per_second > 0);
  return Limited((static_cast<__int128>(amount) * kNanosPerSecond + per_second - 1) / per_second);
}

Nanos MemoryTime(const HardwareProfile& profile, Bytes bytes) {
  return TimeAtRate(bytes.value, RateAt(profile.memory_bytes_per_second, CurveOf(profile, OpClass::kMemory), bytes.value));
}

std::vector<GemmShape> GemmsOf(Op op, Pass pass, const LayerShape& shape) {
  int64_t in = shape.hidden, out = 0, rows = shape.tokens(), count = 1;
  if (shape.moe() && (op == Op::kFc1 || op == Op::kFc2)) {
    count = shape.own_experts();
    rows = CeilDiv(shape.filled_rows(), count);
  }
  if (op == Op::kSharedFc1 || op == Op::kSharedFc2) rows = shape.shard_tokens();
  const auto product = [&](int64_t depth, int64_t columns) -> GemmShape {
    switch (pass) {
      case Pass::kForward: return {rows, columns, depth, false, count};
      case Pass::kBackward: return {rows, depth, columns, false, count};
      case Pass::kWeight: return {columns, depth, rows, true, count};
    }
    LYNX_CHECK(!"unknown pass");
    return {};
  };
  if (op == Op::kQkv && shape.latent()) {
    const int64_t heads = shape.heads / shape.tp, plain = shape.head_size() - shape.rotary_dims;
    const int64_t queries = shape.query_rank == 0 ? shape.hidden : shape.query_rank;
    return {product(queries, heads * shape.head_size()), product(shape.kv_rank, heads * (plain + shape.value_dim))};
  }
  if (op == Op::kLogits && shape.encoder) {
    std::vector<GemmShape> products = {product(in, shape.vocab_shard())};
    products.front().logits = true;
    rows = shape.shard_tokens();
    products.push_back(product(in, in));
    return products;
  }
  switch (op) {
    case Op::kLatent: out = shape.latent_width(); break;
    case Op::kQkv: out = shape.qkv_width(); break;
    case Op::kProj: in = shape.context_width(), out = shape.hidden; break;
    case Op::kFc1: out = shape.fc1_width(); break;
    case Op::kFc2: in = shape.mlp_width(), out = shape.hidden; break;
    case Op::kSharedFc1: out = int64_t{2} * shape.shared_ffn; break;
    case Op::kSharedFc2: in = shape.shared_ffn, out = shape.hidden; break;
    case Op::kLogits: out = shape.vocab_shard(); break;
    default: return {};
  }
  GemmShape gemm = product(in, out);
  gemm.logits = op == Op::kLogits;
  return {gemm};
}

OpClass ClassOf(Op op, Pass pass) {
  switch (op) {
    case Op::kLatent:
    case Op::kQkv:
    case Op::kProj:
    case Op::kFc1:
    case Op::kFc2:
    case Op::kSharedFc1:
    case Op::kSharedFc2:
    case Op::kLogits: return OpClass::kGemm;
    case Op::kFlash: return pass == Pass::kForward ? OpClass::kAttention : OpClass::kAttentionBackward;
    case Op::kProbs:
    case Op::kDrop:
    case Op::kContext: return OpClass::kScores;
    default: return OpClass::kMemory;
  }
}

Bytes KernelTraffic(Op op, Pass pass, const LayerShape& shape) {
  if (pass != Pass::kWeight && ClassOf(op, pass) == OpClass::kScores) {
    const Bytes linear = op == Op::kDrop ? Bytes(0) : TensorBytes(Tensor::kQkv, shape);
    return linear + Bytes(ScoreKernelBytes(op, pass, shape));
  }
  const Bytes traffic = OpTraffic(op, pass, shape);
  if (op == Op::kLoss && pass != Pass::kWeight) {
    // The steps, in 32 bits, are maximum, difference, exponential, sum and quotient. The backward pass scales and rounds.
    const Bytes logits = TensorBytes(Tensor::kLogits, shape);
    return pass == Pass::kForward ? logits * 8 : logits * 7 / 2;
  }
  if ((op != Op::kSilu && op != Op::kSwiglu) || pass == Pass::kWeight) return traffic;
  // silu reads the half of fc1 that is the gate, and in the backward pass updates that half of the gradient. swiglu reads the
  // other half.
  const int64_t halves = op == Op::kSilu && pass == Pass::kBackward ? 3 : 1;
  return traffic - Bytes(TensorBytes(Tensor::kFc1, shape).value / 2 * halves);
}

int64_t PaddedFlops(const GemmShape& gemm, const GemmTiles& tiles) {
  if (tiles.units == 0) {
    return Saturated(static_cast<__int128>(2) * gemm.rows * gemm.columns * gemm.depth * gemm.count);
  }
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t rows = std::max(tiles.rows, tiles.columns), columns = std::min(tiles.rows, tiles.columns);
  for (int halvings = 0;; ++halvings) {
    least =
        std::min({least, TiledFlops(gemm, tiles, rows, columns, halvings), TiledFlops(gemm, tiles, columns, rows, halvings)});
    if (rows <= kSmallestTile) return least;
    rows /= 2;
    if (rows < columns) std::swap(rows, columns);
  }
}

Nanos OpCost(const HardwareProfile& profile, Op op, Pass pass, const LayerShape& shape) {
  const int64_t flops = OpFlops(op, pass, shape);
  const Bytes traffic = OpTraffic(op, pass, shape);
  if (flops == 0 && traffic.value == 0) return Nanos(0);
  const OpClass op_class = ClassOf(op, pass);
  const Nanos overhead = Sum(profile.op_overhead, QuantizeTime(profile, op, pass, shape));
  if (HasTiles(profile) && op_class == OpClass::kGemm) {
    Nanos time = overhead;
    const std::vector<GemmShape> gemms = GemmsOf(op, pass, shape);
    for (const GemmShape& gemm : gemms) {
      const int64_t own = gemms.size() == 1 ? flops : 2 * gemm.rows * gemm.columns * gemm.depth;
      time = Sum(TiledGemmTime(profile, gemm, own, op, pass, shape), time);
    }
    return gemms.size() > 1 ? Sum(time, profile.op_overhead) : time;
  }
  const Bytes moved = HasTiles(profile) ? KernelTraffic(op, pass, shape) : traffic;
  const bool attention = op_class == OpClass::kAttention || op_class == OpClass::kAttentionBackward;
  const EfficiencyCurve& flops_curve = CurveOf(profile, attention ? op_class : OpClass::kGemm);
  const DataType dtype = op == Op::kRouter ? DataType::kFloat32 : shape.dtype;
  const int64_t rate = RateAt(profile.FlopsPerSecond(dtype), flops_curve, attention ? shape.seq : flops);
  const EfficiencyCurve& memory_curve = CurveOf(profile, op_class == OpClass::kScores ? OpClass::kScores : OpClass::kMemory);
  const int64_t memory_rate = RateAt(profile.memory_bytes_per_second, memory_curve, moved.value);
  return Sum(std::max(TimeAtRate(flops, rate), TimeAtRate(moved.value, memory_rate)), overhead);
}

}  // namespace lynx
