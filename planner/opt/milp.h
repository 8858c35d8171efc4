// Linear and mixed-integer programs, solved by Clp and CBC (COIN-OR) through their C interfaces. The only file that
// knows them; their output is silenced.
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

// How far integers may be off, and, relative to it, an objective above its cutoff.
inline constexpr double kMilpTolerance = 1e-6;

class LinearProgram {
 public:
  // The index of the new row: `lower <= ... <= upper`.
  int AddRow(double lower, double upper);
  // The index of the new column, which has the coefficients given by Add from now on.
  int AddColumn(double lower, double upper, double cost, bool integer = false);
  // Adds to the coefficient of the last column in a row.
  void Add(int row, double coefficient);

  int rows() const { return static_cast<int>(row_lower_.size()); }
  int columns() const { return static_cast<int>(cost_.size()); }

  enum class Status { kOptimal, kInfeasible, kStopped };

  struct LpResult {
    Status status = Status::kStopped;
    double objective = 0;
    std::vector<double> prices;  // dual value of each row
  };
  // Integrality is dropped.
  LpResult SolveRelaxed() const;

  struct MilpResult {
    Status status = Status::kStopped;  // kStopped: out of time
    bool found = false;                // there are values: the best solution found
    double objective = 0;
    double bound = -kUnbounded;  // nothing is below it
    std::vector<double> values;
    int64_t nodes = 0;  // of the branch and bound
  };
  // `cutoff`: solutions above it do not count, up to kMilpTolerance. `seconds`: at most so long.
  MilpResult Solve(double cutoff, double seconds) const;

 private:
  std::vector<double> row_lower_, row_upper_;
  std::vector<double> lower_, upper_, cost_;
  std::vector<bool> integer_;
  std::vector<int> starts_{0};  // of each column's coefficients, and one past the end
  std::vector<int> coefficient_rows_;
  std::vector<double> coefficients_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_MILP_H_
