#include "planner/opt/column_generation.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/opt/milp.h"

namespace lynx {
namespace {

constexpr int kMaxRounds = 60;

double AsDouble(Bytes b) { return static_cast<double>(b.value); }
double AsDouble(Nanos t) { return static_cast<double>(t.value); }

// Returns an upper limit for the price of a byte. A higher price is of no use, because one more byte cannot save more than all
// work of a layer.
double HighestPrice(const RecomputeProblem& problem) {
  Nanos work;
  for (const RecomputeItem& item : problem.items) work += item.cost + std::max(item.copy_out, item.copy_in);
  return AsDouble(work) + 1;
}

// The master problem of column generation: the fractional combination of known chains that has the least exposed time within
// the budgets. Its dual values are the prices to try next.
class Master {
 public:
  Master(const RecomputeProblem& problem, const ChainScope& scope)
      : problem_(problem), memory_(std::max(1.0, AsDouble(scope.budget) / 1024)),
        host_(std::max(1.0, AsDouble(problem.host_budget) / 1024)), highest_(HighestPrice(problem)),
        held_budget_(AsDouble(scope.budget - scope.least_transient)) {}

  void Add(const ChainUse& use) { uses_.push_back(use); }

  struct Solution {
    double exposed;
    StagePrices prices;
  };
  Solution Solve() const {
    LinearProgram program;
    const int one = program.AddRow(1, 1);
    const int memory = program.AddRow(-kUnbounded, held_budget_ / memory_);
    const int stall = program.AddRow(-kUnbounded, AsDouble(problem_.stall));
    const int copy_out = program.AddRow(-kUnbounded, AsDouble(problem_.copy_out));
    const int copy_in = program.AddRow(-kUnbounded, AsDouble(problem_.copy_in));
    const int host = program.AddRow(-kUnbounded, AsDouble(problem_.host_budget) / host_);
    for (const ChainUse& use : uses_) {
      program.AddColumn(0, kUnbounded, AsDouble(use.exposed));
      program.Add(one, 1);
      program.Add(memory, AsDouble(use.held) / memory_);
      program.Add(stall, AsDouble(use.stall));
      program.Add(copy_out, AsDouble(use.copy_out));
      program.Add(copy_in, AsDouble(use.copy_in));
      program.Add(host, AsDouble(use.host) / host_);
    }
    // Columns for use that exceeds a budget. Use beyond the stall and the copy times becomes exposed time. Use beyond a memory
    // budget is not allowed in a solution, so it costs the highest price.
    program.AddColumn(0, kUnbounded, highest_ * memory_);
    program.Add(memory, -1);
    program.AddColumn(0, kUnbounded, 1);
    program.Add(stall, -1);
    program.AddColumn(0, kUnbounded, 1);
    program.Add(copy_out, -1);
    program.Add(copy_in, -1);
    program.AddColumn(0, kUnbounded, highest_ * host_);
    program.Add(host, -1);
    const LinearProgram::LpResult result = program.SolveRelaxed();
    if (result.status != LinearProgram::Status::kOptimal) return {kUnbounded, {}};
    const auto price = [&](int row) { return std::max(0.0, -result.prices[static_cast<size_t>(row)]); };
    StagePrices prices{.memory = price(memory) / memory_,
                       .stall = std::min(1.0, price(stall)),
                       .copy_out = std::min(1.0, price(copy_out)),
                       .copy_in = price(copy_in),
                       .host = price(host) / host_};
    prices.copy_in = std::min(prices.copy_in, 1 - prices.copy_out);
    return {result.objective, prices};
  }

 private:
  const RecomputeProblem& problem_;
  const double memory_, host_;  // bytes per unit in the rows for device and host memory
  const double highest_;
  const double held_budget_;
  std::vector<ChainUse> uses_;
};

}  // namespace

PricedBound BestPrices(const StageChain& chain, const ChainScope& scope, const StagePrices& first, double enough) {
  Master master(chain.problem(), scope);
  PricedBound best;
  StagePrices prices = first;
  for (int round = 0; round < kMaxRounds; ++round) {
    const ChainBound bound = chain.Bound(scope, prices);
    if (!bound.feasible) return best;
    if (!best.feasible || bound.bound > best.bound) best = {true, bound.bound, prices};
    if (best.bound > enough) break;
    master.Add(bound.use);
    const Master::Solution next = master.Solve();
    if (next.exposed - best.bound <= std::max(0.5, 1e-7 * std::abs(next.exposed))) break;
    prices = next.prices;
  }
  return best;
}

}  // namespace lynx
