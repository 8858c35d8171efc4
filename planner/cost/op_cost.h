// The time of one op while nothing else runs, computed from the rates of the device. The cost model uses this time for shapes
// that were not measured. It is a roofline (Williams et al. 2009):
//
//     time = max(FLOPs / (peak * efficiency), traffic / (memory's rate * efficiency)) + overhead
//
// The efficiency is that of the op's class at the op's size (OpClass, HardwareProfile::efficiency). This formula is for a CPU
// rank, which works through an op in cache. A device with tiles (HardwareProfile::gemm_tiles) is a GPU. Its times differ in
// seven ways:
//
// - Products. An incomplete last wave of tiles costs as much as a full one. A tile's result is written after its
//   multiplications; nothing is multiplied during the write: time = max(padded FLOPs / (peak * efficiency), operands / rate) +
//   result / rate + overhead. Weight gradients are added to a 32-bit buffer: their result is read and written, 8 bytes per
//   element. The gradient of a bias is a separate kernel.
// - Unfused attention. Each step is a kernel over all scores: the first product writes the scores and softmax reads them, and
//   the same for their gradients in the backward pass. There are b (a/t) (s/c) s scores: micro-batch, heads per tensor-parallel
//   rank, the rank's queries, keys. See KernelTraffic.
// - Products in 8 or 4 bits (planner/problem/narrow_products.h) run at their own peak, with the efficiency of 16-bit products
//   of the same FLOPs. Operands have one byte or half a byte an element, results have the model's data type. Operands are
//   quantised by a kernel of its own, which is part of the op that makes them, or else of the linear. Only devices with tiles
//   have such products.
// - Experts. The products of all experts of a rank are one kernel: their tiles fill the same waves. The rows are spread evenly
//   over the experts of a rank.
// - Latent attention. qkv is counted as two kernels, one for the queries and one for keys and values, although the engine
//   runs the keys of each head and the values apart. latent, which makes the latents of queries, keys and values, is one.
// - The loss. Each step of the cross entropy is a kernel over the 32-bit logits.
// - SwiGLU: the kernels of silu and swiglu read one half of fc1 each.
//
// The router's product is computed in 32 bits, whatever the model's data type.
//
// Pure; integer arithmetic, so the same on every machine; thread-safe.
#ifndef LYNX_PLANNER_COST_OP_COST_H_
#define LYNX_PLANNER_COST_OP_COST_H_

#include <vector>

#include "common/units.h"
#include "planner/cost/hardware_profile.h"
#include "planner/problem/layer_graph.h"

namespace lynx {

// The product of a matrix of rows x depth and one of depth x columns. FLOPs: 2 * rows * columns * depth * count = OpFlops, up
// to rounding where the rows are shared out to experts.
struct GemmShape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  bool accumulates = false;  // the product is added to a 32-bit buffer
  int64_t count = 1;         // this number of products of this shape runs at the same time: one for each expert of the rank
  bool logits = false;       // the product makes the logits, which are 32-bit, or takes their gradient
  bool operator==(const GemmShape&) const = default;
};
// The shapes of the matrix products of a linear layer, which run one after the other. The linears are latent, qkv, proj, fc1,
// fc2, shared_fc1, shared_fc2 and logits. qkv of latent attention has two products, one for the queries and one for keys and
// values; logits of an encoder has two, one of which makes its input; every other linear has one. All other ops have none.
std::vector<GemmShape> GemmsOf(Op op, Pass pass, const LayerShape& shape);

OpClass ClassOf(Op op, Pass pass);

// Bytes that a GPU's kernels move for an op. The result is OpTraffic, except for unfused attention, the loss and SwiGLU (see
// the top of this file). The op must not be a matrix product: OpCost counts the traffic of products by their tiles.
Bytes KernelTraffic(Op op, Pass pass, const LayerShape& shape);

// FLOPs that the tiles of the product cost; the idle units of the last wave are included. The function tries the tile and its
// halvings down to 64 x 64, also with rows and columns exchanged, and takes the cheapest tile. Each halving computes a tenth
// slower. This is Lynx's assumption: smaller tiles reuse operands less, and libraries use them only where larger tiles leave
// units idle. If the device has no tiles: the FLOPs of the product.
int64_t PaddedFlops(const GemmShape& gemm, const GemmTiles& tiles);

// The time of one pass of an op, at most kMaxTime; 0 if the op does nothing in this pass. `profile` must pass CheckProfile; its
// measured times are not used.
Nanos OpCost(const HardwareProfile& profile, Op op, Pass pass, const LayerShape& shape);

// ceil(amount / per_second) in nanoseconds, at most kMaxTime. `amount` must be at least 0, `per_second` above 0.
Nanos TimeAtRate(int64_t amount, int64_t per_second);
// Time to move `bytes` at the memory's rate, with the efficiency of memory-bound ops at that size.
Nanos MemoryTime(const HardwareProfile& profile, Bytes bytes);

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_OP_COST_H_
