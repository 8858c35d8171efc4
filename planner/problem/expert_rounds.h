// Rounds: how rows of experts that find no room are computed, in a model that drops none (MoeSpec::dropless).
//
// The main dispatch fills the rooms of the experts, and its rows are sent, stored and recomputed as in any model with a
// capacity. If rows of any rank of an expert group have no room, the group then runs rounds: in each, every rank has a small
// room for each expert (LayerShape::round_room), fills it with its next rows without room, in the order of its choices, sends
// the rows, and adds what comes back to its tokens. All ranks of a group run the same number of rounds: enough for the largest
// number of rows of one expert that found no room on one rank. The backward pass runs the same rounds again.
//
// A round keeps nothing for later. It works in the workspace of unpermute (forward pass) or of permute (backward pass). This
// file gives the size of that workspace, which does not depend on the load: so memory is known in advance. Pure; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_EXPERT_ROUNDS_H_
#define LYNX_PLANNER_PROBLEM_EXPERT_ROUNDS_H_

#include "common/units.h"
#include "planner/problem/layer_graph.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// Where the tensors of a round are in the workspace: bytes from its beginning. r: experts * round_room() rows, which is what a
// rank sends and what its experts receive; h: hidden size; w: width of an expert. Tensors that a pass does not have are at 0.
// Elements have the model's data type unless a comment says otherwise.
struct RoundScratch {
  Bytes late;    // (b, n, top_k) 32-bit; gradients of the weights of the rows without room. At 0, where the router reads it
  Bytes route;   // (b, n, top_k, 3) 32-bit; the route, with the places of this round
  Bytes counts;  // (ep) 32-bit; for each rank: the largest number of rows of one expert without room
  Bytes sent, received;                  // (r, h); one place for both if ep is 1
  Bytes sent_weights, received_weights;  // (r) 32-bit; one place for both if ep is 1
  Bytes fc1;                             // (r, 2, w)
  Bytes silu, swiglu;                    // (r, w)
  // Only the backward pass.
  Bytes grad_results;                              // (r, h)
  Bytes grad_fc1;                                  // (r, 2, w)
  Bytes grad_sent_weights, grad_received_weights;  // (r) 32-bit; one place for both if ep is 1

  Bytes total;
};

// `pass`: kForward or kBackward. The shape must have rounds: round_room() is above 0.
RoundScratch RoundScratchOf(Pass pass, const LayerShape& shape);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_EXPERT_ROUNDS_H_
