#include "planner/opt/milp.h"

#include <Cbc_C_Interface.h>
#include <Clp_C_Interface.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lynx {
namespace {

struct DeleteClp {
  void operator()(Clp_Simplex* model) const { Clp_deleteModel(model); }
};
struct DeleteCbc {
  void operator()(Cbc_Model* model) const { Cbc_deleteModel(model); }
};

// Infinite bounds are passed to Clp and CBC as this value.
constexpr double kCoinUnbounded = 1e30;
std::vector<double> ForCoin(std::vector<double> bounds) {
  for (double& bound : bounds) bound = std::clamp(bound, -kCoinUnbounded, kCoinUnbounded);
  return bounds;
}

}  // namespace

int LinearProgram::AddRow(double lower, double upper) {
  row_lower_.push_back(lower);
  row_upper_.push_back(upper);
  return rows() - 1;
}

int LinearProgram::AddColumn(double lower, double upper, double cost, bool integer) {
  lower_.push_back(lower);
  upper_.push_back(upper);
  cost_.push_back(cost);
  integer_.push_back(integer);
  starts_.push_back(starts_.back());
  return columns() - 1;
}

void LinearProgram::Add(int row, double coefficient) {
  LYNX_CHECK(row >= 0 && row < rows() && columns() > 0);
  if (coefficient == 0) return;
  const size_t begin = static_cast<size_t>(starts_[starts_.size() - 2]);
  for (size_t i = begin; i < coefficient_rows_.size(); ++i) {
    if (coefficient_rows_[i] != row) continue;
    coefficients_[i] += coefficient;
    return;
  }
  coefficient_rows_.push_back(row);
  coefficients_.push_back(coefficient);
  ++starts_.back();
}

LinearProgram::LpResult LinearProgram::SolveRelaxed() const {
  const std::unique_ptr<Clp_Simplex, DeleteClp> model(Clp_newModel());
  Clp_setLogLevel(model.get(), 0);
  const std::vector<double> lower = ForCoin(lower_), upper = ForCoin(upper_);
  const std::vector<double> row_lower = ForCoin(row_lower_), row_upper = ForCoin(row_upper_);
  Clp_loadProblem(model.get(), columns(), rows(), starts_.data(), coefficient_rows_.data(), coefficients_.data(), lower.data(),
                  upper.data(), cost_.data(), row_lower.data(), row_upper.data());
  Clp_initialSolve(model.get());
  LpResult result;
  if (Clp_status(model.get()) == 1) result.status = Status::kInfeasible;
  if (Clp_status(model.get()) != 0) return result;
  result.status = Status::kOptimal;
  result.objective = Clp_objectiveValue(model.get());
  const double* prices = Clp_dualRowSolution(model.get());
  result.prices.assign(prices, prices + rows());
  return result;
}

LinearProgram::MilpResult LinearProgram::Solve(double cutoff, double seconds) const {
  const std::unique_ptr<Cbc_Model, DeleteCbc> model(Cbc_newModel());
  const std::vector<double> lower = ForCoin(lower_), upper = ForCoin(upper_);
  const std::vector<double> row_lower = ForCoin(row_lower_), row_upper = ForCoin(row_upper_);
  Cbc_loadProblem(model.get(), columns(), rows(), starts_.data(), coefficient_rows_.data(), coefficients_.data(), lower.data(),
                  upper.data(), cost_.data(), row_lower.data(), row_upper.data());
  for (int i = 0; i < columns(); ++i) {
    if (integer_[static_cast<size_t>(i)]) Cbc_setInteger(model.get(), i);
  }
  const auto set = [&](const char* name, const std::string& value) { Cbc_setParameter(model.get(), name, value.c_str()); };
  set("log", "0");
  Cbc_setLogLevel(model.get(), 0);
  set("threads", "0");
  set("randomSeed", "1");
  set("ratioGap", "0");
  set("integerT", absl::StrCat(kMilpTolerance));
  set("cutoff", std::to_string(cutoff));
  set("seconds", std::to_string(seconds));
  Cbc_solve(model.get());
  MilpResult result;
  result.nodes = Cbc_getNodeCount(model.get());
  if (Cbc_isProvenInfeasible(model.get())) {
    result.status = Status::kInfeasible;
    return result;
  }
  const double* values = Cbc_bestSolution(model.get());
  result.found = values != nullptr && Cbc_getObjValue(model.get()) <= cutoff + kMilpTolerance * (1 + std::abs(cutoff));
  if (result.found) {
    result.values.assign(values, values + columns());
    result.objective = Cbc_getObjValue(model.get());
  }
  result.bound = Cbc_getBestPossibleObjValue(model.get());
  if (Cbc_isProvenOptimal(model.get())) result.status = result.found ? Status::kOptimal : Status::kInfeasible;
  return result;
}

}  // namespace lynx
