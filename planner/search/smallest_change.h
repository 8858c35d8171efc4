// The smallest change with which a request that nothing fits can be planned. One field or a few are changed,
// everything else stays as the job has it; each amount is the least (or, of a micro-batch and a sequence, the
// largest) that fits. Changes are tried in this order, and the first kind that helps is the answer:
//
//   model.attention: fused              where the scores of unfused attention take most of what does not fit
//   recompute: auto                     instead of a policy that the job names
//   train.microBatch: N                 smaller than the job's
//   parallel.zero, .sequenceParallel    auto instead of what the job names
//   resources.activationMemoryPerRank   where the job's own limit is what lacks
//   model.attention: fused              where it helps at all
//   parallel.pp, .dp                    other sizes on ranks that the job may have
//   resources.ranks: N                  more ranks of the cluster, with the job's sizes; then with other pp and dp
//   parallel.tp                         another one, with as few ranks as possible
//   model.seq: N                        shorter, in sixteenths of the job's
//   resources.ranks: N (M more nodes)   nodes like the cluster's last
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

// What the scores of unfused attention take while a layer runs; 0 where attention is fused.
Bytes ScoresOfLayer(const ModelSpec& model, const Candidate& candidate);
// Whether they are more than half of what the shortfall's stage needs.
bool ScoresPrevail(const ModelSpec& model, const Candidate& candidate, const Shortfall& shortfall);

// The request fits nowhere; its candidate `closest` lacks the least memory, which is `shortfall`. The text is
// "train.microBatch: 2", or "resources.ranks: 8, parallel.pp: 2". Where nothing of the above helps: "a smaller model".
std::string SmallestChange(const PlanRequest& request, const Candidate& closest, const Shortfall& shortfall);

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_SMALLEST_CHANGE_H_
