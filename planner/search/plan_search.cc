#include "planner/search/plan_search.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

#include "planner/candidates/candidate_bound.h"
#include "planner/candidates/rough_step.h"

namespace lynx {
namespace {

constexpr Nanos kForever{std::numeric_limits<int64_t>::max()};
constexpr int kAssemblyTries = 8;
// A candidate is not simulated if its guess is above the best simulated step by more than this percentage.
constexpr int64_t kGuessAllowancePercent = 3;
// Limits of simulation for each effort. Until `few` actions have been simulated, every candidate that may be faster than the
// best draft is simulated. After `most` actions, tier 4 takes no further candidate. For `of_candidate`, see
// LayoutPlanner::Limits.
struct Budget {
  int64_t few, most;
  LayoutPlanner::Limits of_candidate;
};
constexpr Budget BudgetOf(SearchEffort effort) {
  if (effort == SearchEffort::kGlance) return {300'000, 600'000, {.many_actions = 100'000, .strict = true}};
  return {200'000, 1'000'000, {}};
}
constexpr int64_t kMaxGuesses = 256;
// A guess may be shorter than the rough step, because its partition need not be even. It is rarely below this percentage of it.
constexpr int64_t kRoughPercent = 98;
// Before the request counts as infeasible, at most this many candidates are tried that seem not to fit.
constexpr int kMaxDoubtful = 16;
// After this many assembled candidates, the search ends as soon as it has a plan.
constexpr int kMaxRounds = 8;

Nanos Allowed(Nanos step, int64_t percent) { return step + step / 100 * percent; }

}  // namespace

PlanSearch::PlanSearch(const PlanRequest& request, const std::vector<Candidate>& candidates, PlanCaches& caches,
                       SearchEffort effort)
    : request_(request), candidates_(candidates), caches_(caches), effort_(effort), planners_(candidates.size()) {
  counts_.candidates = static_cast<int64_t>(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    const CandidateBound bound(request, candidates[i], caches);
    queue_.push({std::max(bound.Quick(), bound.Rough() / 100 * kRoughPercent), Tier::kQuick, i, bound.Quick()});
  }
}

// Takes candidates from the queue until one seems to fit with a guess of at most `most`, and appends this one to guessed_. The
// entries of guessed_ are nearly in the order of guesses, because every entry in the queue promises a longer step. Sets
// candidates aside that cannot have a shorter step than `to_beat`. Returns false if it appends no candidate.
bool PlanSearch::GuessNext(Nanos most, Nanos to_beat) {
  while (!queue_.empty() && queue_.top().step <= most) {
    const Entry entry = queue_.top();
    queue_.pop();
    if (entry.tier == Tier::kGuess) {
      guessed_.push_back({entry.step, entry.candidate, std::move(planners_[entry.candidate])});
      return true;
    }
    if (counts_.guessed == kMaxGuesses) continue;
    if (entry.bound >= to_beat) {
      aside_.push_back(entry);
    } else if (entry.tier == Tier::kQuick) {
      Bound(entry, to_beat);
    } else if (entry.tier == Tier::kRough || !Rough(entry)) {
      Guess(entry.candidate);
    }
  }
  return false;
}

// Considers offloading only if nothing fits without offloading. Guesses do the same; this is necessary because the queue
// compares bounds and guesses.
void PlanSearch::Bound(const Entry& entry, Nanos to_beat) {
  using enum CandidateBound::Offloading;
  ++counts_.bounded;
  const size_t index = entry.candidate;
  const auto may_win = [&](const CandidateBound& bound) { return to_beat == kForever || bound.MayTake(to_beat); };
  const CandidateBound stored(request_, candidates_[index], caches_, kNone);
  const bool may_win_stored = may_win(stored);
  std::optional<Nanos> step;
  bool may_win_at_all = may_win_stored;
  if (may_win_stored) step = stored.Bound();
  if (!step && OffersOffloading(request_)) {
    const CandidateBound offloading(request_, candidates_[index], caches_, kIfOffered);
    const bool may_win_offloading = may_win(offloading);
    if (may_win_offloading && (may_win_stored || !stored.Bound())) step = offloading.Bound();
    may_win_at_all = may_win_at_all || may_win_offloading;
  }
  if (step) {
    queue_.push({std::max(*step, entry.step), Tier::kBound, index, *step});
  } else if (!may_win_at_all) {
    aside_.push_back(entry);
  }
}

// Returns false if the rough step is not longer than what the entry promises. Otherwise puts the candidate into the queue
// again, so that it waits for its turn.
bool PlanSearch::Rough(const Entry& entry) {
  const Nanos rough = RoughStep(request_, candidates_[entry.candidate], caches_) / 100 * kRoughPercent;
  if (rough <= entry.step) return false;
  queue_.push({rough, Tier::kRough, entry.candidate, entry.bound});
  return true;
}

void PlanSearch::Guess(size_t index) {
  auto planner = std::make_unique<LayoutPlanner>(request_, candidates_[index], caches_);
  planner->SetLimits(BudgetOf(effort_).of_candidate);
  const StepGuess guess = planner->Guess();
  ++counts_.guessed;
  if (!guess.fits) {
    doubtful_.push_back({guess.step, index, std::move(planner)});
    return;
  }
  queue_.push({guess.step, Tier::kGuess, index});
  planners_[index] = std::move(planner);
}

// Plans the candidate, unless it has already been assembled or is known to be too slow. If the draft is faster than the draft
// in `found`, replaces the draft in `found`.
void PlanSearch::Simulate(Guessed& guessed, Found& found) {
  const Nanos beat = found.beat();
  if (guessed.planner == nullptr || (guessed.simulated && *guessed.simulated >= beat)) return;
  const int64_t before = guessed.planner->simulated_actions(), solved = guessed.planner->solved_stages();
  std::optional<Draft> draft = guessed.planner->Best(beat);
  ++counts_.simulated;
  counts_.solved_stages += guessed.planner->solved_stages() - solved;
  found.actions += guessed.planner->simulated_actions() - before;
  if (!draft) return;
  guessed.simulated = draft->step;
  found.least_ratio = std::min(found.least_ratio, static_cast<double>(draft->step.value) /
                                                      static_cast<double>(std::max<int64_t>(1, guessed.step.value)));
  if (draft->step >= found.to_beat || (found.draft && !Faster(*draft, *found.draft))) return;
  found.draft = std::move(draft);
  found.winner = &guessed;
}

// Returns the largest guess that still promises a step shorter than found.beat(). If no ratio is expected, there is no limit
// (kForever) until many actions have been simulated.
Nanos PlanSearch::MostPromising(const Found& found) const {
  const bool much = found.actions > BudgetOf(effort_).few;
  if (found.beat() == kForever || (!much && found.expected_ratio == 0)) return kForever;
  const Nanos allowed = Allowed(found.beat(), kGuessAllowancePercent);
  const bool measured = much && found.least_ratio != kNothingSimulated;
  const double ratio = measured ? found.least_ratio : std::max(1.0, found.expected_ratio);
  return Nanos(static_cast<int64_t>(static_cast<double>(allowed.value) / ratio));
}

// Returns the fastest draft with a step shorter than `to_beat`. Plans and simulates the candidates (tier 4, see plan_search.h)
// in the order of their guesses, as long as a guess promises a shorter step and the limit of simulated actions is not reached.
// Leaves out the candidates from whose drafts a plan has been assembled. If `to_beat` is kForever and no draft was found, tries
// the candidates that seem not to fit.
PlanSearch::Found PlanSearch::FastestDraft(Nanos to_beat, double expected_ratio) {
  Found found{.to_beat = to_beat, .expected_ratio = expected_ratio};
  for (const Entry& entry : std::exchange(aside_, {})) queue_.push(entry);
  for (size_t i = 0; found.beat() == kForever || found.actions <= BudgetOf(effort_).most; ++i) {
    if (counts_.solved_stages > most_solved_stages_) break;
    const Nanos most = MostPromising(found);
    if (i == guessed_.size() && !GuessNext(most, found.beat())) break;
    if (guessed_[i].step > most) continue;  // the guesses are only nearly in order
    Simulate(guessed_[i], found);
  }
  if (found.beat() == kForever) SimulateDoubtful(found);
  if (found.actions > BudgetOf(effort_).few && found.least_ratio != kNothingSimulated) {
    ratio_of_large_programs_ = found.least_ratio;
  }
  return found;
}

// Tries the candidates that seem not to fit, until one of them fits.
void PlanSearch::SimulateDoubtful(Found& found) {
  std::sort(doubtful_.begin(), doubtful_.end(),
            [](const Guessed& a, const Guessed& b) { return std::tie(a.step, a.candidate) < std::tie(b.step, b.candidate); });
  int tries = 0;
  for (Guessed& doubtful : doubtful_) {
    if (found.draft || tries++ == kMaxDoubtful) break;
    if (doubtful.planner) doubtful.planner->LowerPeaksOfWoven();
    Simulate(doubtful, found);
  }
}

// Returns the draft of the first candidate that fits. The most promising candidates are tried first.
PlanSearch::Found PlanSearch::FirstDraft() {
  Found found{.to_beat = kForever};
  for (size_t i = 0; !found.draft && (i < guessed_.size() || GuessNext(kForever, kForever)); ++i) {
    Simulate(guessed_[i], found);
    if (!found.draft) guessed_[i].planner = nullptr;  // the candidate never fits
  }
  if (!found.draft) SimulateDoubtful(found);
  return found;
}

std::optional<Plan> PlanSearch::Any() {
  while (true) {
    Found found = FirstDraft();
    if (!found.draft) return std::nullopt;
    bool at_once = true;
    std::optional<Plan> plan = AssembledFrom(*found.winner->planner, *std::move(found.draft), at_once);
    if (plan) return plan;
    found.winner->planner = nullptr;
  }
}

std::optional<Plan> PlanSearch::Fastest() { return FastestBelow(kForever); }

std::optional<Plan> PlanSearch::FastestBelow(Nanos to_beat, double least_ratio) {
  std::optional<Plan> plan;
  for (int round = 0; !plan || round < kMaxRounds; ++round) {
    Found found = FastestDraft(plan ? plan->step : to_beat, least_ratio);
    if (!found.draft) break;
    const Nanos simulated = found.draft->step;
    std::optional<Plan> next = Assembled(*found.winner->planner, *std::move(found.draft));
    found.winner->planner = nullptr;
    if (next && (!plan || next->step < plan->step)) plan = std::move(next);
    // If an arena had to be made smaller, the plan is slower than its draft. Then another candidate's plan may be faster.
    if (plan && plan->step <= simulated) break;
  }
  return plan;
}

std::optional<Plan> PlanSearch::Assembled(LayoutPlanner& planner, Draft draft) {
  if (std::optional<Draft> better = planner.TryBaselinePartitions(draft)) draft = *std::move(better);
  if (draft.mode == RecomputeMode::kAuto) {
    if (std::optional<Draft> better = planner.UseStalls(draft)) draft = *std::move(better);
  }
  if (std::optional<Draft> better = planner.TryTunings(draft)) draft = *std::move(better);
  bool at_once = true;
  const bool offloading = draft.offloading;
  std::optional<Plan> plan = AssembledFrom(planner, std::move(draft), at_once);
  if (at_once || (plan && !planner.MayTryVariants())) return plan;
  // A plan is rarely faster than its draft, unless the draft is still to be solved exactly.
  const auto may_be_faster = [&](const Draft& other) {
    return !plan || other.step < plan->step || request_.spec.recompute == RecomputeMode::kOpt;
  };
  // Making the plan fit into the host's memory may have cost more time than offloading saves.
  if (offloading) {
    std::optional<Draft> stored = planner.ReplanFreshWithoutHost(plan ? plan->step : kForever);
    if (stored && may_be_faster(*stored)) {
      std::optional<Plan> without = AssembledFrom(planner, *std::move(stored), at_once);
      if (without && (!plan || without->step < plan->step)) plan = std::move(without);
    }
  }
  // The memory that is reserved for arenas was computed from plans with windows. A plan without windows may need a smaller
  // reserve, so it may be faster.
  std::optional<Draft> other = planner.ReplanFreshWithoutOverlap(plan ? plan->step : kForever);
  if (!other || !may_be_faster(*other)) return plan;
  std::optional<Plan> without = AssembledFrom(planner, *std::move(other), at_once);
  return without && (!plan || without->step < plan->step) ? std::move(without) : std::move(plan);
}

std::optional<Plan> PlanSearch::AssembledFrom(LayoutPlanner& planner, Draft draft, bool& at_once) {
  // If everything is stored, there is nothing to solve.
  const bool exact = request_.spec.recompute == RecomputeMode::kOpt && draft.mode != RecomputeMode::kNone;
  for (int i = 0; i < kAssemblyTries; ++i) {
    const std::vector<int32_t> layers = draft.layers;
    const RecomputeMode mode = draft.mode;
    const bool offloading = draft.offloading;
    if (exact) draft = planner.SolveExact(std::move(draft));
    if (std::optional<Plan> plan = planner.Assemble(std::move(draft))) return plan;
    at_once = false;
    std::optional<Draft> next = planner.ReplanSamePartition(mode, offloading, layers);
    if (!next) next = planner.Best(kForever);
    if (!next) break;
    draft = *std::move(next);
  }
  return std::nullopt;
}

}  // namespace lynx
