// Narrow products: products of operands of 8 or 4 bits (ModelSpec::matmul_type). What is quantised when, what is kept, and how
// many bytes that moves. The planner counts them as Transformer Engine computes them; the engine of Lynx does not.
//
// - Which products: those of the linears qkv, proj, fc1 and fc2, in all three passes. The head, the embedding, attention, norms
//   and activations stay in 16 bits, as in the recipes of Transformer Engine and of DeepSeek-V3 (arXiv 2412.19437, section
//   3.3.1). Results of products, gradients of weights and what ranks send stay as they are, too, except for the gathers below.
// - Uses. The input x, the weight w and the output's gradient dy are each read along rows by one product and along columns by
//   another: the forward pass reads x and w by rows, the input gradient dy by rows and w by columns, the weight gradient dy and
//   x by columns. Each use is a copy: Hopper multiplies only rows, and in MXFP8 the scales of rows and columns differ
//   (Transformer Engine, Low Precision Training, "Performance Considerations" and "MXFP8"). Blackwell needs one copy of float8
//   for both, which is not counted. In NVFP4 the copies of x and dy by columns are turned by a Hadamard transform before they
//   are quantised, and weights have one scale for 16 x 16 elements, but both copies are kept
//   (transformer_engine/pytorch/tensor/nvfp4_tensor.py; arXiv 2509.25149, section 4).
// - Bytes. An element takes 1 byte in float8, 33/32 in MXFP8 with its scales, and 9/16 in NVFP4 (4 bits, and 1 byte for 16).
// - What is kept. Of ln1, ln2 and the activation (gelu or swiglu), only the columns' copy is kept, since only weight gradients
//   read them. The context stays in 16 bits, since the backward pass of attention reads it, and is quantised again for proj's
//   weight gradient (save_original_input of Megatron-LM's linear_proj). dy is quantised in the backward pass and not kept.
//   Weights have both copies beside their 16-bit values; they are made once a step (is_first_microbatch).
// - Gathers. With sequence parallelism, the shares of ln1 and ln2 are gathered quantised ("quantized all-gather").
// - Experts. The products fc1 and fc2 of a rank's experts are quantised as a whole, with the rows of each expert padded with
//   zeros (PaddedExpertRows; get_align_size_for_quantization in megatron/core/transformer/moe/moe_utils.py, and
//   get_fp4_align_size in megatron/core/fp4_utils.py). Both inputs are quantised in both directions and kept by columns
//   (Transformer Engine, GroupedLinear: update_usage with columnwise alone): expert_rows and swiglu are kept quantised. ln2
//   stays in 16 bits, since the router and permute read it, and rows travel in 16 bits in both directions. The router is
//   computed in 32 bits.
// - Traffic. Quantising is a kernel of its own, bound by memory. It reads 2 bytes an element, in float8 and NVFP4 twice, since
//   the scale of the tensor needs the largest value first ("FP8 Current Scaling", performance analysis), and writes each copy.
//
// Pure; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_NARROW_PRODUCTS_H_
#define LYNX_PLANNER_PROBLEM_NARROW_PRODUCTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/units.h"
#include "planner/problem/layer_graph.h"

namespace lynx {

// True for the linears of a transformer layer if the shape's products are narrow.
bool IsNarrowProduct(Op op, const LayerShape& shape);
// True if the tensor is kept quantised.
bool IsNarrowTensor(Tensor tensor, const LayerShape& shape);
// Bytes of `elements` quantised, with their scales.
Bytes NarrowBytes(int64_t elements, MatmulType type);
// Bytes that quantising moves in one pass of an op: of ln1, ln2, gelu, swiglu and expert_rows in the forward pass of the op
// that makes them (permute: although the rows are quantised where they arrive), of the other operands in the pass of the linear
// that needs them. 0 if the pass quantises nothing.
Bytes QuantizeTraffic(Op op, Pass pass, const LayerShape& shape);
// Bytes that quantising weights moves, once a step: the reads and both copies.
Bytes QuantizeWeightBytes(int64_t weights, MatmulType type);
// Memory that a pass uses while it runs: 16-bit results before they are quantised, and copies that are not kept.
Bytes NarrowWorkspace(Op op, Pass pass, const LayerShape& shape);
// Number of weights of a transformer layer's linears on one rank, if products are narrow; otherwise 0.
int64_t WeightsOfNarrowProducts(const LayerShape& shape);
// Bytes of both quantised copies of the weights of a transformer layer's linears on one rank. 0 without narrow products.
Bytes NarrowWeights(const LayerShape& shape);
// Rows of one expert with their padding: a multiple of 16 in float8, of 32 in MXFP8 and of 128 in NVFP4. Without narrow
// products: `rows`.
int64_t PaddedExpertRows(int64_t rows, MatmulType type);
// Checks that every dimension of the operands is a multiple of what the format needs: 16 for float8, otherwise 32 (the
// assertions of Transformer Engine). Returns InvalidArgument with the dimension, its size and what to do.
absl::Status CheckNarrowSizes(const ModelSpec& model, const ParallelLayout& layout);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_NARROW_PRODUCTS_H_
