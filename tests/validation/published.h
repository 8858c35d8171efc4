// Reads published figures from tables, and compares them with the planner's figures. The tables are in
// tests/validation/reference; docs/validation.md names their sources. Not thread-safe.
#ifndef LYNX_TESTS_VALIDATION_PUBLISHED_H_
#define LYNX_TESTS_VALIDATION_PUBLISHED_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cost/hardware_profile.h"

namespace lynx::validation {

using Row = std::map<std::string, std::string>;  // the key is the name of the column
using Table = std::vector<Row>;

// Reads a file of comma-separated values. The first line has the names of the columns. Fields may be quoted. NotFound: there is
// no such file; the error names the path. InvalidArgument: a line has another number of fields than the first line; the error
// names the line.
absl::StatusOr<Table> ReadTable(const std::string& path);

// Returns the number in this column. If it is missing, stops the program, because the tables are a part of the source tree.
double Number(const Row& row, const std::string& column);
// Returns the value in a Korthikanti table that `name`, `row` and `field` identify.
double Value(const Table& table, const std::string& name, const std::string& row, const std::string& field);

struct Comparison {
  std::string row;
  std::string what;
  std::string unit;
  double published = 0;
  double ours = 0;

  double error() const { return ours / published - 1; }
};
double MeanError(const std::vector<Comparison>& all);    // the mean of absolute errors
double MedianError(const std::vector<Comparison>& all);  // for an even number of values, the upper one of the two middle errors
double WorstError(const std::vector<Comparison>& all);

// Returns the profile of the devices in the first node group of a cluster file. Stops the program if the file cannot be read.
HardwareProfile ProfileOf(const std::string& cluster_file);

// A fitted constant and its value.
struct Constant {
  std::string name;
  int32_t value = 0;
  bool operator==(const Constant&) const = default;
};

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_PUBLISHED_H_
