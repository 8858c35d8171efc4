// If no plan fits a request, this file finds the smallest change with which a plan fits. One field or a few fields are changed;
// all other fields stay as in the job. An amount is the smallest that fits (for a micro-batch and a sequence: the largest).
// Changes are tried in this order, and the answer is the first kind that helps:
//
//   model.attention: fused              if the scores of unfused attention take most of the needed memory
//   recompute: auto                     instead of the policy in the job
//   train.microBatch: N                 smaller than the job's
//   parallel.zero, .sequenceParallel    auto instead of the job's value
//   parallel.weave: off                 passes one after another
//   resources.activationMemoryPerRank   if the job's own limit is too small
//   model.attention: fused              if it helps at all
//   parallel.pp, .dp                    other sizes on the ranks that the job allows
//   resources.ranks: N                  more ranks of the cluster, with the job's sizes; then with other pp and dp
//   parallel.tp                         another size, with as few ranks as possible
//   model.seq: N                        shorter, in sixteenths of the job's
//   resources.ranks: N (M more nodes)   more nodes like the cluster's last one
//   devices with at least X each        more memory
//
// Pure; not thread-safe.
#ifndef LYNX_PLANNER_SEARCH_SMALLEST_CHANGE_H_
#define LYNX_PLANNER_SEARCH_SMALLEST_CHANGE_H_

#include <string>

#include "planner/candidates/search.h"
#include "planner/plan/plan.h"
#include "planner/stages/layout_planner.h"

namespace lynx {

// Bytes of the attention scores that one layer of unfused attention needs while it runs; 0 with fused attention.
Bytes ScoresOfLayer(const ModelSpec& model, const Candidate& candidate);
// True if the scores take more than half of the memory that the stage of `shortfall` needs.
bool ScoresPrevail(const ModelSpec& model, const Candidate& candidate, const Shortfall& shortfall);

// Returns the smallest change: "train.microBatch: 2", or "resources.ranks: 8, parallel.pp: 2", or "a smaller model" if none of
// the changes above helps. No candidate of `request` may fit. `closest` is the candidate that lacks the least memory;
// `shortfall` says how much it lacks.
std::string SmallestChange(const PlanRequest& request, const Candidate& closest, const Shortfall& shortfall);

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_SMALLEST_CHANGE_H_
