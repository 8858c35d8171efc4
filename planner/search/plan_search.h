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
#ifndef LYNX_PLANNER_SEARCH_PLAN_SEARCH_H_
#define LYNX_PLANNER_SEARCH_PLAN_SEARCH_H_

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include "planner/candidates/plan_caches.h"
#include "planner/candidates/search.h"
#include "planner/plan/plan.h"
#include "planner/stages/layout_planner.h"

namespace lynx {

// What a search did: how many candidates reached each tier.
struct SearchCounts {
  int64_t candidates = 0, bounded = 0, guessed = 0, simulated = 0;
};

// How many actions may stand in simulated programs. Where all programs are small, neither limit is reached.
enum class SearchEffort : uint8_t {
  kWhole,
  kGlance,  // enough to set some sizes beside others: of large programs only what promises most is simulated
};

class PlanSearch {
 public:
  // The arguments outlive it.
  PlanSearch(const PlanRequest& request, const std::vector<Candidate>& candidates, PlanCaches& caches,
             SearchEffort effort = SearchEffort::kWhole);

  // Without digest. nullopt: nothing fits into memory.
  std::optional<Plan> Fastest();
  // The same of the candidates that seem to fit, if it promises to take less than `to_beat`: those that seem not to,
  // each of which costs many simulations, are left out.
  std::optional<Plan> FastestBelow(Nanos to_beat);
  // The first plan found, for whoever asks whether there is one: nullopt where Fastest finds nothing either. Instead of
  // Fastest, not after it.
  std::optional<Plan> Any();
  const SearchCounts& counts() const { return counts_; }

 private:
  enum class Tier : uint8_t { kQuick, kBound, kGuess };
  // A candidate by the last tier that has looked at it. The queue's top has the least step.
  struct Entry {
    Nanos step;
    Tier tier = Tier::kQuick;
    size_t candidate = 0;

    bool operator<(const Entry& o) const { return std::tie(step, tier, candidate) > std::tie(o.step, o.tier, o.candidate); }
  };
  struct Guessed {
    Nanos step;
    size_t candidate;
    std::unique_ptr<LayoutPlanner> planner;  // null: assembled already
    std::optional<Nanos> simulated = {};     // step of its last draft
  };
  // The fastest draft found so far that takes less than `to_beat`.
  struct Found {
    Nanos to_beat;
    std::optional<Draft> draft = {};
    Guessed* winner = nullptr;
    int64_t actions = 0;
    double least_ratio = std::numeric_limits<double>::max();  // of simulated steps to guesses

    Nanos beat() const { return draft ? draft->simulation.step : to_beat; }
  };

  bool GuessNext(Nanos most);
  void Bound(size_t index);
  void Guess(size_t index);
  void Simulate(Guessed& guessed, Found& found);
  Nanos MostPromising(const Found& found) const;
  Found FastestDraft(Nanos to_beat);
  Found FirstDraft();
  void SimulateDoubtful(Found& found);
  std::optional<Plan> Assembled(LayoutPlanner& planner, Draft draft);
  // Of this draft, or of what the planner makes of it when an arena exceeds its limit: then `at_once` becomes false.
  std::optional<Plan> AssembledFrom(LayoutPlanner& planner, Draft draft, bool& at_once);

  const PlanRequest& request_;
  const std::vector<Candidate>& candidates_;
  PlanCaches& caches_;
  const SearchEffort effort_;
  std::priority_queue<Entry> queue_;
  std::vector<std::unique_ptr<LayoutPlanner>> planners_;  // of guesses in the queue, by candidate
  Nanos best_guess_{std::numeric_limits<int64_t>::max()};
  std::deque<Guessed> guessed_;    // taken from the queue, in the order of their guesses
  std::vector<Guessed> doubtful_;  // seem not to fit
  SearchCounts counts_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_PLAN_SEARCH_H_
