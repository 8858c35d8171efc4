// Linear and mixed-integer programs, solved by Clp and CBC (COIN-OR) through their C interfaces. No other file uses these
// interfaces. The output of the solvers is silenced.
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

// The largest distance of an "integer" value from an integer. Also how far an objective may be above its cutoff, relative to
// the cutoff.
inline constexpr double kMilpTolerance = 1e-6;

class LinearProgram {
 public:
  // Adds a row `lower <= ... <= upper` and returns its index.
  int AddRow(double lower, double upper);
  // Adds a column and returns its index. Later calls of Add set its coefficients.
  int AddColumn(double lower, double upper, double cost, bool integer = false);
  // Adds to the last column's coefficient in a row.
  void Add(int row, double coefficient);

  int rows() const { return static_cast<int>(row_lower_.size()); }
  int columns() const { return static_cast<int>(cost_.size()); }

  enum class Status { kOptimal, kInfeasible, kStopped };

  struct LpResult {
    Status status = Status::kStopped;
    double objective = 0;
    std::vector<double> prices;  // dual value of each row
  };
  // Solves the program without integrality.
  LpResult SolveRelaxed() const;

  struct MilpResult {
    Status status = Status::kStopped;  // kStopped: out of time
    bool found = false;                // a solution was found; `values` is the best one
    double objective = 0;
    double bound = -kUnbounded;  // no solution has a smaller objective
    std::vector<double> values;
    int64_t nodes = 0;  // nodes of the branch and bound
  };
  // `cutoff`: solutions with an objective above it (by more than kMilpTolerance) are ignored. `seconds`: time limit.
  MilpResult Solve(double cutoff, double seconds) const;

 private:
  std::vector<double> row_lower_, row_upper_;
  std::vector<double> lower_, upper_, cost_;
  std::vector<bool> integer_;
  std::vector<int> starts_{0};  // where each column's coefficients start, and one past the end
  std::vector<int> coefficient_rows_;
  std::vector<double> coefficients_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_MILP_H_
