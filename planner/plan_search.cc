#include "planner/plan_search.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

#include "planner/candidate_bound.h"
#include "planner/lowered.h"

namespace lynx {
namespace {

constexpr Nanos kForever{std::numeric_limits<int64_t>::max()};
constexpr int kAssemblyTries = 8;
// How far a bound may be above the best guess, and a guess above another one that turns out slower.
constexpr int64_t kBoundAllowancePercent = 8;
constexpr int64_t kGuessAllowancePercent = 3;
// Until so many actions have been simulated, every guess is worth a simulation that may beat the best.
constexpr int64_t kFewActions = 200'000;
constexpr int64_t kMostGuesses = 256;
// Tier 4 takes up no further candidate after so many actions in simulated programs.
constexpr int64_t kMostActions = 3'000'000;
// Candidates that seem not to fit: so many are tried before the request counts as infeasible.
constexpr int kMostDoubtful = 16;
// So many candidates are assembled at most, once there is a plan.
constexpr int kMostRounds = 8;

enum class Tier : uint8_t { kQuick, kBound };

struct Entry {
  Nanos bound;
  Tier tier = Tier::kQuick;
  size_t candidate = 0;

  // For a queue whose top is least.
  bool operator<(const Entry& o) const {
    return std::tie(bound, tier, candidate) > std::tie(o.bound, o.tier, o.candidate);
  }
};

Nanos Allowed(Nanos step, int64_t percent) { return step + step / 100 * percent; }

}  // namespace

PlanSearch::PlanSearch(const PlanRequest& request, const std::vector<Candidate>& candidates, PlanCaches& caches)
    : request_(request), candidates_(candidates), caches_(caches) {
  counts_.candidates = static_cast<int64_t>(candidates.size());
}

// Tiers 1 to 3. Afterwards every candidate that is not in guessed_ has a bound above the best guess that fits, with its
// allowance, or does not fit.
void PlanSearch::GuessAll() {
  std::priority_queue<Entry> queue;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    queue.push({CandidateBound(request_, candidates_[i], caches_.Floor(candidates_[i])).Quick(), Tier::kQuick, i});
  }
  Nanos best = kForever;
  while (!queue.empty() && counts_.guessed < kMostGuesses) {
    const Entry entry = queue.top();
    queue.pop();
    if (best != kForever && entry.bound > Allowed(best, kBoundAllowancePercent)) break;
    const Candidate& candidate = candidates_[entry.candidate];
    if (entry.tier == Tier::kQuick) {
      const CandidateBound bound(request_, candidate, caches_.Floor(candidate));
      ++counts_.bounded;
      if (best != kForever && !bound.MayTake(Allowed(best, kBoundAllowancePercent))) continue;
      if (const std::optional<Nanos> step = bound.Bound()) queue.push({*step, Tier::kBound, entry.candidate});
      continue;
    }
    auto planner = std::make_unique<LayoutPlanner>(request_, candidate, caches_);
    const StepGuess guess = planner->Guess();
    ++counts_.guessed;
    if (guess.fits) best = std::min(best, guess.step);
    guessed_.push_back({guess, entry.candidate, std::move(planner)});
  }
  std::sort(guessed_.begin(), guessed_.end(), [](const Guessed& a, const Guessed& b) {
    if (a.guess < b.guess || b.guess < a.guess) return a.guess < b.guess;
    return a.candidate < b.candidate;
  });
}

// Tier 4 over the candidates that have not been assembled yet: the fastest draft that takes less than `to_beat`, and whose
// it is.
std::optional<Draft> PlanSearch::FastestDraft(Nanos to_beat, size_t& winner) {
  std::optional<Draft> best;
  int64_t actions = 0;
  double least_ratio = std::numeric_limits<double>::max();  // of simulated steps to guesses, so far
  int doubtful = 0;
  for (size_t i = 0; i < guessed_.size(); ++i) {
    Guessed& entry = guessed_[i];
    const Nanos beat = best ? best->simulation.step : to_beat;
    if (entry.planner == nullptr || (entry.simulated && *entry.simulated >= beat)) continue;
    const bool have = beat != kForever;
    if (have && (actions > kMostActions || (!entry.guess.fits && doubtful > 0))) break;
    const double promised = least_ratio * static_cast<double>(entry.guess.step.value);
    const Nanos allowed = have ? Allowed(beat, kGuessAllowancePercent) : kForever;
    if (have && actions > kFewActions && promised > static_cast<double>(allowed.value)) continue;
    if (!entry.guess.fits && ++doubtful > kMostDoubtful) break;
    const int64_t before = entry.planner->simulated_actions();
    std::optional<Draft> draft = entry.planner->Best(beat);
    ++counts_.simulated;
    actions += entry.planner->simulated_actions() - before;
    if (!draft) continue;
    entry.simulated = draft->simulation.step;
    least_ratio = std::min(least_ratio, static_cast<double>(draft->simulation.step.value) /
                                            static_cast<double>(std::max<int64_t>(1, entry.guess.step.value)));
    if (draft->simulation.step >= to_beat || (best && !Faster(*draft, *best))) continue;
    best = std::move(draft);
    winner = i;
  }
  return best;
}

std::optional<Plan> PlanSearch::Fastest() {
  if (guessed_.empty()) GuessAll();
  std::optional<Plan> plan;
  for (int round = 0; !plan || round < kMostRounds; ++round) {
    size_t winner = 0;
    std::optional<Draft> draft = FastestDraft(plan ? plan->step : kForever, winner);
    if (!draft) break;
    const Nanos simulated = draft->simulation.step;
    std::optional<Plan> next = Assembled(*guessed_[winner].planner, *std::move(draft));
    guessed_[winner].planner = nullptr;
    if (next && (!plan || next->step < plan->step)) plan = std::move(next);
    // A plan whose arena had to be made smaller is slower than its draft: then another candidate's may be faster.
    if (plan && plan->step <= simulated) break;
  }
  return plan;
}

std::optional<Plan> PlanSearch::Assembled(LayoutPlanner& planner, Draft draft) {
  if (draft.mode == RecomputeMode::kAuto) {
    if (std::optional<Draft> better = planner.UseStalls(draft)) draft = *std::move(better);
  }
  bool at_once = true;
  std::optional<Plan> plan = AssembledFrom(planner, std::move(draft), at_once);
  if (at_once) return plan;
  // What had to give way to arenas was memory of plans with windows. Without windows less may have to, and that can be
  // faster.
  std::optional<Draft> other = planner.AfreshWithoutOverlap(plan ? plan->step : kForever);
  if (!other) return plan;
  std::optional<Plan> without = AssembledFrom(planner, *std::move(other), at_once);
  return without && (!plan || without->step < plan->step) ? std::move(without) : std::move(plan);
}

std::optional<Plan> PlanSearch::AssembledFrom(LayoutPlanner& planner, Draft draft, bool& at_once) {
  // Where everything is stored, there is nothing to solve.
  const bool exact = request_.spec.recompute == RecomputeMode::kOpt && draft.mode != RecomputeMode::kNone;
  for (int i = 0; i < kAssemblyTries; ++i) {
    const std::vector<int32_t> layers = draft.layers;
    const RecomputeMode mode = draft.mode;
    if (exact) draft = planner.Exactly(std::move(draft));
    if (std::optional<Plan> plan = planner.Assemble(std::move(draft))) return plan;
    at_once = false;
    std::optional<Draft> next = planner.Again(mode, layers);
    if (!next) next = planner.Best(kForever);
    if (!next) break;
    draft = *std::move(next);
  }
  return std::nullopt;
}

std::optional<Plan> FastestPlan(const PlanRequest& request) {
  const absl::StatusOr<std::vector<Candidate>> candidates = LoweredCandidates(request);
  if (!candidates.ok()) return std::nullopt;
  PlanCaches caches(request);
  return PlanSearch(request, *candidates, caches).Fastest();
}

}  // namespace lynx
