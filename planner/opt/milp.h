// Linear and mixed-integer programs. Clp and CBC (COIN-OR) solve them, through their C interfaces. No other file uses these
// interfaces. The solvers print nothing.
//
//   minimise cost * x  subject to  row_lower <= A x <= row_upper,  lower <= x <= upper,  some x integer
//
// Not thread-safe.
#ifndef LYNX_PLANNER_OPT_MILP_H_
#define LYNX_PLANNER_OPT_MILP_H_

#include <cstdint>
#include <limits>
#include <vector>

namespace lynx {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// The largest distance of an "integer" value in a solution from an integer. An objective may also be above the cutoff by this
// share (see Solve).
inline constexpr double kMilpTolerance = 1e-6;

class LinearProgram {
 public:
  // Adds a row `lower <= ... <= upper` and returns its index.
  int AddRow(double lower, double upper);
  // Adds a column and returns its index. Calls of Add that follow set the column's coefficients.
  int AddColumn(double lower, double upper, double cost, bool integer = false);
  // Adds a value to the coefficient of the last column in a row.
  void Add(int row, double coefficient);

  int rows() const { return static_cast<int>(row_lower_.size()); }
  int columns() const { return static_cast<int>(cost_.size()); }

  enum class Status { kOptimal, kInfeasible, kStopped };

  struct LpResult {
    Status status = Status::kStopped;
    double objective = 0;
    std::vector<double> prices;  // dual value of each row
  };
  // Solves the program without the condition that values are integers.
  LpResult SolveRelaxed() const;

  struct MilpResult {
    Status status = Status::kStopped;  // kStopped: the time has run out
    bool found = false;                // true if a solution was found; `values` is the best one
    double objective = 0;
    double bound = -kUnbounded;  // every solution has at least this objective
    std::vector<double> values;
    int64_t nodes = 0;  // nodes of the branch and bound
  };
  // Ignores a solution whose objective is above `cutoff` by more than kMilpTolerance * (1 + |cutoff|). `seconds`: time limit.
  MilpResult Solve(double cutoff, double seconds) const;

 private:
  std::vector<double> row_lower_, row_upper_;
  std::vector<double> lower_, upper_, cost_;
  std::vector<bool> integer_;
  std::vector<int> starts_{0};  // index where each column's coefficients start; the last entry is the end of the last column
  std::vector<int> coefficient_rows_;
  std::vector<double> coefficients_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_MILP_H_
