#include "planner/opt/stage_opt.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/opt/column_generation.h"
#include "planner/opt/stage_chain.h"
#include "planner/opt/stage_milp.h"
#include "planner/recompute/stage_heu.h"

namespace lynx {
namespace {

// The first target is above the bound by the share kFirstTarget of the gap. For each further target, the share is multiplied by
// kTargetGrowth.
constexpr double kFirstTarget = 1.0 / 32;
constexpr double kTargetGrowth = 4;
// An interval of transient memory is no longer halved if it is narrow: its width times the price of memory is below this share
// of the distance from its bound to the target.
constexpr double kNarrow = 0.25;
// If a MILP has more columns than this, its interval of transient memory is halved, and the halves are solved instead. If the
// interval has only one amount of transient memory, the MILP is solved anyway, up to OptOptions::columns.
constexpr int32_t kManyColumns = 2000;

class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(std::chrono::steady_clock::now() +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds))) {}
  double left() const { return std::max(0.0, std::chrono::duration<double>(end_ - std::chrono::steady_clock::now()).count()); }
  bool passed() const { return left() <= 0; }

 private:
  const std::chrono::steady_clock::time_point end_;
};

// Rounds a lower bound up to whole nanoseconds, because the objective of every solution is a whole number.
Nanos CeilOf(double bound) { return Nanos(std::max<int64_t>(0, static_cast<int64_t>(std::ceil(bound - 1e-6)))); }

class OptSearch {
 public:
  OptSearch(const RecomputeProblem& problem, const OptOptions& options)
      : problem_(problem), deadline_(options.seconds), most_columns_(options.columns), chain_(problem) {
    for (const RecomputeItem& item : problem.items) {
      most_exposed_ += (item.cost + std::max(item.copy_out, item.copy_in)) * problem.layers;
    }
  }

  absl::StatusOr<OptResult> Run(bool least_memory) {
    result_.solution = StageHeu(problem_).Best(problem_.layers, problem_.budget);
    if (result_.solution) result_.start = result_.solution->value.exposed;
    Interval root{.scope = chain_.Everything()};
    if (Evaluate(root)) intervals_.push_back(std::move(root));
    if (absl::Status status = FindLeastExposed(); !status.ok()) return status;
    if (result_.status == OptStatus::kOptimal && least_memory) {
      if (absl::Status status = FindLeastMemory(); !status.ok()) return status;
    }
    return std::move(result_);
  }

 private:
  struct Interval {
    ChainScope scope;
    StagePrices prices;
    double bound = 0;  // lower bound for the exposed time of the interval's solutions
  };

  // Upper bound for the exposed time of the best solution, if a solution exists.
  Nanos Known() const { return result_.solution ? result_.solution->value.exposed : most_exposed_; }

  // Computes the interval's prices and bound. Drops the nodes that are in no solution with at most Known() exposed time.
  // Returns false if no solution is left.
  bool Evaluate(Interval& interval) {
    const double limit = static_cast<double>(Known().value) + 0.5;
    for (bool again = true; again;) {
      const std::vector<Bytes> transients = chain_.Transients(interval.scope);
      if (transients.empty() || transients.front() > interval.scope.budget) return false;
      interval.scope.least_transient = transients.front();
      interval.scope.most_transient = transients.back();
      if (!chain_.DropTooLarge(interval.scope)) return false;
      const PricedBound priced = BestPrices(chain_, interval.scope, interval.prices, limit);
      if (!priced.feasible || priced.bound > limit) return false;
      interval.bound = std::max(interval.bound, priced.bound);
      interval.prices = priced.prices;
      // If many nodes have been dropped, fewer amounts of transient memory are left; this can improve the bound.
      const size_t before = SizeOf(interval.scope);
      if (!chain_.DropBeyond(interval.scope, interval.prices, limit)) return false;
      again = SizeOf(interval.scope) * 2 < before && !Over();
    }
    return true;
  }
  static size_t SizeOf(const ChainScope& scope) {
    size_t size = 0;
    for (const auto& nodes : scope.nodes) size += nodes->size();
    return size;
  }

  void RaiseBound() {
    double least = static_cast<double>(Known().value) + (result_.solution ? 0 : 1);
    for (const Interval& interval : intervals_) least = std::min(least, interval.bound);
    result_.bound = std::max(result_.bound, CeilOf(least));
  }
  // If a solution is known, only better solutions are of interest.
  Nanos LastTarget() const { return result_.solution ? Known() - Nanos(1) : most_exposed_; }

  absl::Status FindLeastExposed() {
    double share = kFirstTarget;
    for (RaiseBound(); result_.bound <= LastTarget() && !Over(); RaiseBound()) {
      const double gap = static_cast<double>((LastTarget() - result_.bound).value);
      const Nanos step(static_cast<int64_t>(std::ceil(gap * std::min(1.0, share))));
      share *= kTargetGrowth;
      if (absl::Status status = SearchUpTo(result_.bound + step); !status.ok()) return status;
      std::erase_if(intervals_, [&](const Interval& interval) { return CeilOf(interval.bound) > Known(); });
    }
    const bool proven = result_.bound > LastTarget();
    if (result_.solution) {
      result_.status = proven ? OptStatus::kOptimal : OptStatus::kFeasible;
    } else {
      result_.status = proven ? OptStatus::kInfeasible : OptStatus::kStopped;
    }
    return absl::OkStatus();
  }

  // Searches for solutions with at most `target` exposed time. If time does not run out, there are two outcomes: every
  // interval's bound is above the target, or a solution was found that is as good as the smallest bound.
  absl::Status SearchUpTo(Nanos target) {
    std::vector<Interval> open, done;
    std::swap(open, intervals_);
    while (!open.empty()) {
      Interval interval = std::move(open.back());
      open.pop_back();
      target = std::min(target, LastTarget());
      if (CeilOf(interval.bound) <= target && !Over()) {
        const absl::StatusOr<StageMilpResult> milp = CutOrSolve(interval, target, StageGoal::kExposed, open);
        if (!milp.ok()) return milp.status();
        if (milp->too_large) continue;
        // A MILP that was stopped proves only its own bound, and this is used only up to the target.
        double proven = std::min(milp->bound, static_cast<double>(target.value));
        if (milp->status != LinearProgram::Status::kStopped) {
          proven = static_cast<double>((milp->policy ? Known() : target + Nanos(1)).value);
        }
        interval.bound = std::max(interval.bound, proven);
      }
      done.push_back(std::move(interval));
    }
    intervals_ = std::move(done);
    return absl::OkStatus();
  }

  // The least exposed time is proven. Searches the solutions with this exposed time for the one with the least memory.
  absl::Status FindLeastMemory() {
    const Nanos target = Known();
    std::vector<Interval> open;
    std::swap(open, intervals_);
    while (!open.empty()) {
      if (Over()) return absl::OkStatus();
      Interval interval = std::move(open.back());
      open.pop_back();
      interval.scope.budget = result_.solution->value.bytes() - Bytes(1);
      if (CeilOf(interval.bound) > target || !Evaluate(interval)) continue;
      const absl::StatusOr<StageMilpResult> milp = CutOrSolve(interval, target, StageGoal::kMemory, open);
      if (!milp.ok()) return milp.status();
      if (milp->too_large) continue;
      if (milp->status == LinearProgram::Status::kStopped) return absl::OkStatus();
      // SolveMilp did not keep the policy that the MILP found, because the policy's exposed time is above the target by the
      // solver's tolerance. So this MILP proves nothing about policies within the target.
      if (milp->policy && *milp->policy != result_.solution->policy) return absl::OkStatus();
    }
    result_.least_memory = true;
    return absl::OkStatus();
  }

  static bool IsWide(const Interval& interval, Nanos target) {
    const Bytes width = interval.scope.most_transient - interval.scope.least_transient;
    const double distance = static_cast<double>(target.value) + 1 - interval.bound;
    return interval.prices.memory * static_cast<double>(width.value) > kNarrow * distance;
  }

  // Adds the two halves of the interval to `open`. Returns false if the interval has only one amount of transient memory.
  bool Cut(const Interval& interval, std::vector<Interval>& open) {
    const std::vector<Bytes> transients = chain_.Transients(interval.scope);
    if (transients.size() < 2) return false;
    const size_t middle = transients.size() / 2;
    Interval low = interval, high = interval;
    low.scope.most_transient = transients[middle - 1];
    high.scope.least_transient = transients[middle];
    for (Interval* half : {&high, &low}) {
      if (Evaluate(*half)) open.push_back(std::move(*half));
    }
    return true;
  }

  // Solves the interval's MILP. If the interval is wide or the MILP is large, adds the interval's halves to `open` instead and
  // sets `too_large`.
  absl::StatusOr<StageMilpResult> CutOrSolve(const Interval& interval, Nanos target, StageGoal goal,
                                             std::vector<Interval>& open) {
    const StageMilpResult cut{.too_large = true};
    if (IsWide(interval, target) && Cut(interval, open)) return cut;
    absl::StatusOr<StageMilpResult> milp = SolveMilp(interval, target, goal, std::min(kManyColumns, most_columns_));
    if (!milp.ok() || !milp->too_large) return milp;
    if (Cut(interval, open)) return cut;
    milp = SolveMilp(interval, target, goal, most_columns_);
    if (milp.ok() && milp->too_large) {
      gave_up_ = true;
      return StageMilpResult{.bound = interval.bound};
    }
    return milp;
  }
  // Each choice of the MILP may differ from an integer by up to kMilpTolerance. So a policy with integer choices may have more
  // exposed time than the MILP's solution. The difference is at most the share kMilpTolerance of the largest possible exposed
  // time.
  Nanos Tolerance() const {
    return Nanos(static_cast<int64_t>(std::ceil(kMilpTolerance * static_cast<double>(most_exposed_.value))));
  }
  bool Over() const { return gave_up_ || deadline_.passed(); }

  // Solves the MILP of the interval for solutions with at most `target` exposed time. If the solution is the best so far, keeps
  // it in result_.
  absl::StatusOr<StageMilpResult> SolveMilp(const Interval& interval, Nanos target, StageGoal goal, int32_t most_columns) {
    ChainScope scope = interval.scope;
    if (!chain_.DropBeyond(scope, interval.prices, static_cast<double>(target.value) + 0.5)) {
      return StageMilpResult{.status = LinearProgram::Status::kInfeasible};
    }
    const StageMilpResult milp =
        SolveStageMilp(chain_, scope, interval.prices, target, goal, {.seconds = deadline_.left(), .columns = most_columns});
    if (milp.too_large) return milp;
    ++result_.milps;
    result_.nodes += milp.nodes;
    result_.largest_milp = std::max(result_.largest_milp, milp.columns);
    if (!milp.policy) return milp;
    const absl::StatusOr<StageValue> value = CheckedValue(problem_, *milp.policy, target + Tolerance());
    if (!value.ok()) return value.status();
    if (!result_.solution || Better(*value, result_.solution->value)) result_.solution = {*milp.policy, *value};
    return milp;
  }

  const RecomputeProblem& problem_;
  const Deadline deadline_;
  const int32_t most_columns_;
  const StageChain chain_;
  Nanos most_exposed_;  // upper bound for the exposed time of any policy
  OptResult result_;
  std::vector<Interval> intervals_;
  bool gave_up_ = false;
};

}  // namespace

const char* OptStatusName(OptStatus status) {
  switch (status) {
    case OptStatus::kOptimal: return "optimal";
    case OptStatus::kFeasible: return "feasible";
    case OptStatus::kInfeasible: return "infeasible";
    case OptStatus::kStopped: return "stopped";
  }
  return "";
}

double OptResult::gap() const {
  if (!solution || solution->value.exposed.value == 0) return 0;
  return 1 - static_cast<double>(bound.value) / static_cast<double>(solution->value.exposed.value);
}

absl::StatusOr<StageValue> CheckedValue(const RecomputeProblem& problem, const StagePolicy& policy, Nanos most_exposed) {
  const auto mismatch = [](const std::string& what) {
    return absl::InternalError(absl::StrCat("a policy of the MILP is not what the MILP takes it for: ", what));
  };
  const absl::StatusOr<StageValue> value = EvaluateStage(problem, policy);
  if (!value.ok()) return mismatch(std::string(value.status().message()));
  if (!Fits(problem, *value)) {
    return mismatch(absl::StrCat("it takes ", value->bytes().value, " of ", problem.budget.value, " bytes and ",
                                 value->host.value, " of ", problem.host_budget.value, " bytes of the host"));
  }
  if (value->exposed > most_exposed) {
    return mismatch(absl::StrCat("it exposes ", value->exposed.value, " ns where ", most_exposed.value, " were allowed"));
  }
  return value;
}

absl::StatusOr<OptResult> SolveStage(const RecomputeProblem& problem, const OptOptions& options) {
  if (absl::Status status = ValidateProblem(problem); !status.ok()) return status;
  return OptSearch(problem, options).Run(options.least_memory);
}

}  // namespace lynx
