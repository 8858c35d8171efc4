// The time of one op, alone, on a device of which only rates are known: the analytic half of the cost model. The form is
// a roofline (Williams et al. 2009),
//
//     time = max(FLOPs / (peak * efficiency), traffic / (memory's rate * efficiency)) + overhead
//
// with the efficiency of the op's class at its size (OpClass, HardwareProfile::efficiency). A device with tiles
// (HardwareProfile::gemm_tiles) is a GPU. It differs in four ways from a CPU rank, which works through an op in cache:
//
// - Products. An incomplete last wave of tiles costs as much as a full one. A tile's result is written after its
//   products are done, with no products beside it:
//       time = max(padded FLOPs / (peak * efficiency), operands / rate) + result / rate + overhead.
//   Weight gradients are added to a 32-bit buffer: their result is read and written, 8 bytes per element. The gradient of a
//   bias is a separate kernel.
// - Unfused attention. Each step is a kernel over all scores: the first product writes A = b (a/t) (s/c) s elements
//   and softmax reads them; the same holds for their gradients in the backward pass. See KernelTraffic.
// - The loss. Each step of the cross entropy is a kernel over the 32-bit logits.
// - SwiGLU: the kernels of silu and swiglu read one half of fc1 each.
//
// Pure; integer arithmetic, so the same on every machine; thread-safe.
#ifndef LYNX_PLANNER_COST_OP_COST_H_
#define LYNX_PLANNER_COST_OP_COST_H_

#include <optional>

#include "common/units.h"
#include "planner/cost/hardware_profile.h"
#include "planner/problem/layer_graph.h"

namespace lynx {

// rows x depth times depth x columns. FLOPs: 2 * rows * columns * depth = OpFlops.
struct GemmShape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  bool accumulates = false;  // the product is added to a 32-bit buffer
  bool operator==(const GemmShape&) const = default;
};
// The product of a linear, logits included; nullopt for other ops and for passes that the op does not have.
std::optional<GemmShape> GemmOf(Op op, Pass pass, const LayerShape& shape);

OpClass ClassOf(Op op, Pass pass);

// Bytes that a GPU's kernels move for an op: OpTraffic, except for attention, loss and gate as the file comment says. Not
// for products.
Bytes KernelTraffic(Op op, Pass pass, const LayerShape& shape);

// FLOPs that the tiles of the product cost, with the idle units of the last wave included. The function tries the tile
// and its halvings down to 64 x 64, in both orientations, and takes the cheapest. Each halving computes a tenth slower
// (our assumption: smaller tiles reuse operands less, and libraries use them only where larger tiles leave units idle).
// Without tiles: the FLOPs of the product.
int64_t PaddedFlops(const GemmShape& gemm, const GemmTiles& tiles);

// `profile` must pass CheckProfile; its measured times are not used. Returns 0 for a pass in which the op does nothing,
// and at most kMaxTime.
Nanos OpCost(const HardwareProfile& profile, Op op, Pass pass, const LayerShape& shape);

// ceil(amount / per_second) in nanoseconds, at most kMaxTime. amount >= 0, per_second > 0.
Nanos TimeAtRate(int64_t amount, int64_t per_second);
// Time to move `bytes` at the memory's rate, with the efficiency of memory-bound ops at that size.
Nanos MemoryTime(const HardwareProfile& profile, Bytes bytes);

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_OP_COST_H_
