// PlanSearch finds the fastest plan among the candidates of a request. docs/search.md describes it.
//
// A candidate goes through four tiers, each more expensive and more exact than the one before. The search always continues with
// the candidate that, by what is known so far, promises the shortest step. It stops when no other candidate may beat the best
// one. The tiers are:
//
//   1  a bound without memory, and a formula      CandidateBound::Quick      microseconds
//      of the schedule                            CandidateBound::Rough
//   2  a bound with memory                        CandidateBound::Bound      some hundred microseconds
//   3  partition and policies by estimates        LayoutPlanner::Guess       milliseconds
//   4  lowered, memory folded, step simulated     LayoutPlanner::Best        milliseconds to a second
//
// The bounds of tiers 1 and 2 leave out candidates that cannot win against the best simulated step. The rough step decides
// whose turn comes first: a candidate whose rough step is longer than the best step is usually never guessed. Tier 4 decides.
// It takes candidates in the order of their guesses, as long as a guess, with an allowance, promises a shorter step than the
// best simulated one. It stops after a number of simulated actions that small requests do not reach. Counts limit the search,
// not clocks, so the same request always gives the same plan. Not thread-safe.
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

// Statistics of a search: how many candidates reached each tier.
struct SearchCounts {
  int64_t candidates = 0, bounded = 0, guessed = 0, simulated = 0;
  int64_t solved_stages = 0;  // number of stages that HEU solved for the simulated candidates
};

// Limits the number of actions in the simulated programs. If all programs are small, the search does not reach the limit.
enum class SearchEffort : uint8_t {
  kWhole,
  kGlance,  // enough to compare some sizes: among large programs, only the most promising are simulated
};

class PlanSearch {
 public:
  // The arguments must outlive the object.
  PlanSearch(const PlanRequest& request, const std::vector<Candidate>& candidates, PlanCaches& caches,
             SearchEffort effort = SearchEffort::kWhole);
  // After about this number of solved stages, FastestBelow simulates no further candidate. At the beginning there is no limit.
  void LimitSolvedStages(int64_t most) { most_solved_stages_ = most; }

  // Returns the fastest plan. The plan has no digest. nullopt: nothing fits into memory.
  std::optional<Plan> Fastest();
  // Returns the fastest plan among the candidates that seem to fit, and only if it promises a shorter step than `to_beat`.
  // Candidates that seem not to fit are left out, because each of them costs many simulations. `least_ratio`: the smallest
  // ratio of a simulated step to its guess that is expected. If a candidate's guess times this ratio is no shorter than the
  // best step (with an allowance), the candidate is not simulated. Ratios below 1 count as 1. 0: nothing is expected.
  std::optional<Plan> FastestBelow(Nanos to_beat, double least_ratio = 0);
  // The smallest ratio of a simulated step to its guess in the last search. nullopt unless the simulated programs were so large
  // that they limited a search.
  std::optional<double> RatioOfLargePrograms() const { return ratio_of_large_programs_; }
  // Returns the first plan that is found, for callers that only need to know whether there is a plan. nullopt if Fastest also
  // finds no plan. A caller must call only one of Fastest and Any.
  std::optional<Plan> Any();
  const SearchCounts& counts() const { return counts_; }

 private:
  static constexpr double kNothingSimulated = std::numeric_limits<double>::max();
  enum class Tier : uint8_t { kQuick, kBound, kRough, kGuess };
  // A candidate with the result of its last tier. The first entry of the queue promises the shortest step.
  struct Entry {
    Nanos step;  // the promise: the largest of the bounds and the rough step, or the guess
    Tier tier = Tier::kQuick;
    size_t candidate = 0;
    Nanos bound = step;  // the step is not shorter than this

    bool operator<(const Entry& o) const { return std::tie(step, tier, candidate) > std::tie(o.step, o.tier, o.candidate); }
  };
  struct Guessed {
    Nanos step;
    size_t candidate;
    std::unique_ptr<LayoutPlanner> planner;  // nullptr: the candidate has been assembled, or never fits
    std::optional<Nanos> simulated = {};     // step of the last draft
  };
  // The fastest draft found so far whose step is shorter than `to_beat`.
  struct Found {
    Nanos to_beat;
    double expected_ratio = 0;  // see FastestBelow
    std::optional<Draft> draft = {};
    Guessed* winner = nullptr;
    int64_t actions = 0;
    double least_ratio = kNothingSimulated;  // smallest ratio of a simulated step to its guess so far

    Nanos beat() const { return draft ? draft->step : to_beat; }
  };

  bool GuessNext(Nanos most, Nanos to_beat);
  void Bound(const Entry& entry, Nanos to_beat);
  bool Rough(const Entry& entry);
  void Guess(size_t index);
  void Simulate(Guessed& guessed, Found& found);
  Nanos MostPromising(const Found& found) const;
  Found FastestDraft(Nanos to_beat, double expected_ratio);
  Found FirstDraft();
  void SimulateDoubtful(Found& found);
  std::optional<Plan> Assembled(LayoutPlanner& planner, Draft draft);
  // Assembles `draft`. If an arena exceeds its limit, sets `at_once` to false and assembles another draft of the planner.
  std::optional<Plan> AssembledFrom(LayoutPlanner& planner, Draft draft, bool& at_once);

  const PlanRequest& request_;
  const std::vector<Candidate>& candidates_;
  PlanCaches& caches_;
  const SearchEffort effort_;
  std::priority_queue<Entry> queue_;
  // Candidates whose bound is not shorter than the best draft. If the plan of that draft becomes slower, they are tried again.
  std::vector<Entry> aside_;
  // the index is the candidate; holds the planners of the candidates whose guess is in the queue
  std::vector<std::unique_ptr<LayoutPlanner>> planners_;
  std::deque<Guessed> guessed_;    // taken from the queue, in the order of their guesses
  std::vector<Guessed> doubtful_;  // candidates that seem not to fit
  std::optional<double> ratio_of_large_programs_;
  SearchCounts counts_;
  int64_t most_solved_stages_ = std::numeric_limits<int64_t>::max();
};

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_PLAN_SEARCH_H_
