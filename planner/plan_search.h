// PlanSearch: the fastest plan among the candidates of a request. docs/search.md describes it.
//
// A candidate goes through four tiers, each dearer and truer than the one before; the search always takes up the one
// that promises most by what is known of it, and stops when none may beat the best:
//
//   1  a bound without memory                     CandidateBound::Quick      under a microsecond
//   2  a bound with memory                        CandidateBound::Bound      some hundred microseconds
//   3  partition and policies by estimates        LayoutPlanner::Guess       milliseconds
//   4  lowered, memory folded, step simulated     LayoutPlanner::Best        milliseconds to a second
//
// Tiers 1 and 2 drop only what cannot win against the best guess. Tier 4 decides: it takes up candidates in the order of
// their guesses as long as a guess, with an allowance, promises a step below the best simulated one, and stops after a
// number of simulated actions that small requests do not reach. Counts, not clocks, limit it, so that the same request
// gives the same plan. Not thread-safe.
#ifndef LYNX_PLANNER_PLAN_SEARCH_H_
#define LYNX_PLANNER_PLAN_SEARCH_H_

#include <memory>
#include <optional>
#include <vector>

#include "planner/layout_planner.h"
#include "planner/plan.h"
#include "planner/plan_caches.h"
#include "planner/search.h"

namespace lynx {

// What a search did: how many candidates reached each tier.
struct SearchCounts {
  int64_t candidates = 0, bounded = 0, guessed = 0, simulated = 0;
};

class PlanSearch {
 public:
  // The arguments outlive it.
  PlanSearch(const PlanRequest& request, const std::vector<Candidate>& candidates, PlanCaches& caches);

  // Without digest. nullopt: nothing fits into memory.
  std::optional<Plan> Fastest();
  const SearchCounts& counts() const { return counts_; }

 private:
  struct Guessed {
    StepGuess guess;
    size_t candidate;
    std::unique_ptr<LayoutPlanner> planner;   // none: assembled already
    std::optional<Nanos> simulated = {};      // step of its last draft
  };

  void GuessAll();
  std::optional<Draft> FastestDraft(Nanos to_beat, size_t& winner);
  std::optional<Plan> Assembled(LayoutPlanner& planner, Draft draft);
  // Of this draft, or of what the planner makes of it when an arena exceeds its limit: then `at_once` becomes false.
  std::optional<Plan> AssembledFrom(LayoutPlanner& planner, Draft draft, bool& at_once);

  const PlanRequest& request_;
  const std::vector<Candidate>& candidates_;
  PlanCaches& caches_;
  std::vector<Guessed> guessed_;
  SearchCounts counts_;
};

// nullopt: nothing fits into memory, or there is no candidate.
std::optional<Plan> FastestPlan(const PlanRequest& request);

}  // namespace lynx

#endif  // LYNX_PLANNER_PLAN_SEARCH_H_
