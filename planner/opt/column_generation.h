// Column generation searches for the prices at which StageChain's lower bound is highest (Kelley's cutting planes, 1960).
// stage_chain.h explains prices and chains. At given prices, the bound is the smallest priced cost of any chain. So the priced
// cost of each chain found so far is an upper limit of the bound. A small linear program finds the prices at which the lowest
// of these limits is highest; these prices are tried next. Deterministic.
#ifndef LYNX_PLANNER_OPT_COLUMN_GENERATION_H_
#define LYNX_PLANNER_OPT_COLUMN_GENERATION_H_

#include "planner/opt/stage_chain.h"

namespace lynx {

struct PricedBound {
  bool feasible = false;  // see ChainBound
  double bound = 0;       // the best bound found
  StagePrices prices;     // the prices with which StageChain gives this bound
};

// Starts with the prices `first`. Stops as soon as the bound is above `enough` or can hardly rise any more, and after
// kMaxRounds rounds.
PricedBound BestPrices(const StageChain& chain, const ChainScope& scope, const StagePrices& first, double enough);

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_COLUMN_GENERATION_H_
