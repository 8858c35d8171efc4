#include "planner/opt/stage_milp.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

namespace lynx {
namespace {

double AsDouble(Bytes b) { return static_cast<double>(b.value); }
double AsDouble(Nanos t) { return static_cast<double>(t.value); }

// The properties of a BackwardPart that have an effect on a neighbouring layer.
using Face = std::array<int64_t, kMaxWindows + kMaxPhases>;
Face FaceBelow(const BackwardPart& late) {
  Face face{};
  for (int w = 0; w < kMaxWindows; ++w) face[w] = late.own_work[w].value;
  for (int k = 0; k < kMaxPhases; ++k) face[kMaxWindows + k] = late.live[k].value;
  return face;
}
Face FaceAbove(const BackwardPart& late) {
  Face face{};
  for (int w = 0; w < kMaxWindows; ++w) face[w] = late.above_work[w].value;
  for (int k = 0; k < kMaxPhases; ++k) face[kMaxWindows + k] = late.above[k].value;
  return face;
}

class StageMilp {
 public:
  StageMilp(const StageChain& chain, const ChainScope& scope, const StagePrices& prices, Nanos limit, StageGoal goal,
            int32_t most_columns)
      : chain_(chain), problem_(chain.problem()), scope_(scope), prices_(prices), limit_(AsDouble(limit) + 0.5), goal_(goal),
        values_(chain.Values(scope, prices, true)), budget_(chain.PricedBudget(scope, prices)) {
    SetUnits();
    AddSharedRows();
    for (int32_t l = 0; l < problem_.layers; ++l) AddFaces(l);
    for (int32_t l = 0; l < problem_.layers; ++l) AddLayer(l);
    for (int32_t l = 1; l < problem_.layers && program_.columns() <= most_columns; ++l) AddPairs(l, most_columns);
    too_large_ = program_.columns() > most_columns;
  }

  StageMilpResult Solve(double seconds) const {
    if (too_large_) return {.columns = program_.columns(), .too_large = true};
    // The cutoff for memory is half a unit above the largest allowed value, because solvers differ in whether a solution may be
    // equal to the cutoff.
    const double cutoff = goal_ == StageGoal::kExposed ? limit_ / time_unit_ : held_and_transient_ + 0.5;
    const LinearProgram::MilpResult milp = program_.Solve(cutoff, seconds);
    StageMilpResult result{.status = milp.status, .nodes = milp.nodes, .columns = program_.columns()};
    result.bound = milp.bound * (goal_ == StageGoal::kExposed ? time_unit_ : memory_unit_);
    if (milp.found) result.policy = PolicyOf(milp.values);
    return result;
  }

 private:
  struct NodeColumn {
    int column;
    int32_t layer;
    const BackwardPart* late;
  };
  struct KeptColumn {
    int column;
    int32_t layer;
    const KeptPart* kept;
  };
  // Nodes of one layer that have the same Face. (A ChainNode is one possible BackwardPart of the layer.) These nodes have the
  // same effect on the neighbour, which is the layer above or the layer below.
  struct FaceGroup {
    const BackwardPart* late;
    int row = -1;
    // smallest value of the part of a chain that starts at one of these nodes and goes away from the neighbour to the end of
    // the chain
    double least = 0;
  };

  double Exposed(Nanos time) const { return AsDouble(time) / time_unit_; }
  double Memory(Bytes bytes) const { return AsDouble(bytes) / memory_unit_; }
  double Cost(Nanos time) const { return goal_ == StageGoal::kExposed ? Exposed(time) : 0; }

  void SetUnits() {
    Nanos longest;
    for (const RecomputeItem& item : problem_.items) longest = std::max(longest, item.cost);
    time_unit_ = std::max(1.0, AsDouble(longest) / 4096);
    // Bytes are counted in units of their common divisor. So a budget is exceeded by at least one unit, or not at all.
    int64_t divisor = 0;
    for (const RecomputeItem& item : problem_.items) divisor = std::gcd(divisor, item.bytes.value);
    memory_unit_ = std::max(1.0, static_cast<double>(divisor));
    held_and_transient_ = AsDouble(Bytes(scope_.budget.value / std::max<int64_t>(1, divisor)));
  }

  void AddSharedRows() {
    memory_row_ = program_.AddRow(-kUnbounded, held_and_transient_);
    stall_row_ = program_.AddRow(-kUnbounded, Exposed(problem_.stall));
    copy_out_row_ = program_.AddRow(-kUnbounded, Exposed(problem_.copy_out));
    copy_in_row_ = program_.AddRow(-kUnbounded, Exposed(problem_.copy_in));
    host_row_ = program_.AddRow(-kUnbounded, Memory(problem_.host_budget));
    exposed_row_ = program_.AddRow(-kUnbounded, goal_ == StageGoal::kMemory ? limit_ / time_unit_ : kUnbounded);
    for (int32_t l = 0; l < problem_.layers; ++l) transient_rows_.push_back(program_.AddRow(-kUnbounded, 0));
    program_.AddColumn(Memory(scope_.least_transient), Memory(scope_.most_transient), goal_ == StageGoal::kMemory ? 1 : 0);
    program_.Add(memory_row_, 1);
    for (int row : transient_rows_) program_.Add(row, -1);
    program_.AddColumn(0, kUnbounded, Cost(Nanos(1)) * time_unit_);
    program_.Add(stall_row_, -1);
    program_.Add(exposed_row_, 1);
    program_.AddColumn(0, kUnbounded, Cost(Nanos(1)) * time_unit_);
    program_.Add(copy_out_row_, -1);
    program_.Add(copy_in_row_, -1);
    program_.Add(exposed_row_, 1);
  }

  bool Within(double sum) const { return StageChain::LowerEnd(sum, budget_) <= limit_; }

  void AddFaces(int32_t layer) {
    faces_below_.emplace_back();
    faces_above_.emplace_back();
    const LayerValues& values = values_[layer];
    for (size_t i = 0; i < values.own.size(); ++i) {
      if (!Within(values.Through(i))) continue;
      const BackwardPart& late = *chain_.node(layer, (*scope_.nodes[layer])[i]).late;
      AddFace(faces_below_.back(), FaceBelow(late), late, values.own[i] + values.above[i], layer > 0);
      AddFace(faces_above_.back(), FaceAbove(late), late, values.own[i] + values.below[i], layer + 1 < problem_.layers);
    }
  }
  void AddFace(std::map<Face, FaceGroup>& groups, const Face& face, const BackwardPart& late, double value, bool seen) {
    auto [it, inserted] = groups.try_emplace(face, FaceGroup{&late, -1, value});
    it->second.least = std::min(it->second.least, value);
    if (inserted && seen) it->second.row = program_.AddRow(0, 0);
  }

  void AddLayer(int32_t layer) {
    const LayerValues& values = values_[layer];
    const int one = program_.AddRow(1, 1);
    const PartsOfSet* set = nullptr;
    int set_row = -1;
    double least_through = 0, least_kept = 0;
    const auto add_kept = [&] {
      for (const KeptPart& kept : set->kept) {
        if (!Within(least_through + StageChain::PricedValue(kept, prices_) - least_kept)) continue;
        AddKept(layer, kept, set_row);
      }
    };
    for (size_t i = 0; i < values.own.size(); ++i) {
      if (!Within(values.Through(i))) continue;
      const ChainNode& node = chain_.node(layer, (*scope_.nodes[layer])[i]);
      if (node.set != set) {
        if (set != nullptr) add_kept();
        set = node.set;
        set_row = program_.AddRow(0, 0);
        least_through = values.Through(i);
        least_kept = StageChain::PricedValue(*values.kept[i], prices_);
      }
      least_through = std::min(least_through, values.Through(i));
      AddNode(layer, node, one, set_row);
    }
    if (set != nullptr) add_kept();
  }

  void AddNode(int32_t layer, const ChainNode& node, int one, int set_row) {
    Nanos exposed = node.exposed;
    if (layer == 0) exposed += chain_.PairExposed(*node.late, nullptr);
    nodes_.push_back({program_.AddColumn(0, 1, Cost(exposed), true), layer, node.late});
    program_.Add(one, 1);
    program_.Add(set_row, -1);
    program_.Add(exposed_row_, Exposed(exposed));
    if (layer == 0) program_.Add(transient_rows_[0], Memory(chain_.PairTransient(*node.late, nullptr)));
    if (layer > 0) program_.Add(faces_below_[layer].at(FaceBelow(*node.late)).row, -1);
    if (layer + 1 < problem_.layers) program_.Add(faces_above_[layer].at(FaceAbove(*node.late)).row, -1);
  }

  void AddKept(int32_t layer, const KeptPart& kept, int set_row) {
    const double memory_cost = goal_ == StageGoal::kMemory ? Memory(kept.held) : 0;
    kept_.push_back({program_.AddColumn(0, 1, Cost(kept.exposed) + memory_cost, true), layer, &kept});
    program_.Add(set_row, 1);
    program_.Add(memory_row_, Memory(kept.held));
    program_.Add(stall_row_, Exposed(kept.stall));
    program_.Add(copy_out_row_, Exposed(kept.copy_out));
    program_.Add(copy_in_row_, Exposed(kept.copy_in));
    program_.Add(host_row_, Memory(kept.host));
    program_.Add(exposed_row_, Exposed(kept.exposed));
  }

  // Adds the pairs of layer `upper` and the layer below it.
  void AddPairs(int32_t upper, int32_t most_columns) {
    for (const auto& [face_u, u] : faces_below_[upper]) {
      if (program_.columns() > most_columns) return;
      for (const auto& [face_v, v] : faces_above_[upper - 1]) {
        const Nanos exposed = chain_.PairExposed(*u.late, v.late);
        const Bytes transient = chain_.PairTransient(*u.late, v.late);
        if (transient > scope_.most_transient || !Within(u.least + AsDouble(exposed) + v.least)) continue;
        program_.AddColumn(0, 1, Cost(exposed));
        program_.Add(u.row, 1);
        program_.Add(v.row, 1);
        program_.Add(exposed_row_, Exposed(exposed));
        program_.Add(transient_rows_[upper], Memory(transient));
      }
    }
  }

  StagePolicy PolicyOf(const std::vector<double>& values) const {
    StagePolicy policy;
    for (int32_t l = 0; l < problem_.layers; ++l) {
      const BackwardPart* late = nullptr;
      const KeptPart* kept = nullptr;
      for (const NodeColumn& c : nodes_) {
        if (c.layer == l && values[static_cast<size_t>(c.column)] > 0.5) late = c.late;
      }
      for (const KeptColumn& c : kept_) {
        if (c.layer == l && values[static_cast<size_t>(c.column)] > 0.5) kept = c.kept;
      }
      policy.layers.push_back(late == nullptr || kept == nullptr ? LayerPolicy{} : JoinPolicies(*late, *kept));
    }
    return policy;
  }

  const StageChain& chain_;
  const RecomputeProblem& problem_;
  const ChainScope& scope_;
  const StagePrices& prices_;
  const double limit_;
  const StageGoal goal_;
  const std::vector<LayerValues> values_;
  const double budget_;
  double time_unit_ = 1, memory_unit_ = 1;
  double held_and_transient_ = 0;
  LinearProgram program_;
  int memory_row_ = 0, stall_row_ = 0, copy_out_row_ = 0, copy_in_row_ = 0, host_row_ = 0, exposed_row_ = 0;
  std::vector<int> transient_rows_;  // for each layer: its transient memory, with the layer below it if there is one
  std::vector<std::map<Face, FaceGroup>> faces_below_, faces_above_;  // the index is the layer
  std::vector<NodeColumn> nodes_;
  std::vector<KeptColumn> kept_;
  bool too_large_ = false;
};

}  // namespace

StageMilpResult SolveStageMilp(const StageChain& chain, const ChainScope& scope, const StagePrices& prices, Nanos limit,
                               StageGoal goal, const StageMilpLimits& limits) {
  return StageMilp(chain, scope, prices, limit, goal, limits.columns).Solve(limits.seconds);
}

}  // namespace lynx
