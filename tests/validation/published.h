// Published figures, as tables, and their comparison with the planner's. The tables are in tests/validation/reference;
// docs/validation.md names their sources. Not thread-safe.
#ifndef LYNX_TESTS_VALIDATION_PUBLISHED_H_
#define LYNX_TESTS_VALIDATION_PUBLISHED_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cost/hardware_profile.h"

namespace lynx::validation {

using Row = std::map<std::string, std::string>;  // by column
using Table = std::vector<Row>;

// Reads a comma-separated file. The first line has the column names; fields may be quoted. NotFound names the path.
// InvalidArgument names a line with another number of fields than the first.
absl::StatusOr<Table> ReadTable(const std::string& path);

// The number in that column. If it is missing, stops the program, because the tables are part of the source tree.
double Number(const Row& row, const std::string& column);
// The value in a Korthikanti table that `table`, `row` and `field` name.
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
double MedianError(const std::vector<Comparison>& all);  // of an even number, the upper of the two middle ones
double WorstError(const std::vector<Comparison>& all);

// The profile of the devices in the first node group of a cluster file. Stops the program if the file cannot be read.
HardwareProfile ProfileOf(const std::string& cluster_file);

// A fitted constant and its value.
struct Constant {
  std::string name;
  int32_t value = 0;
  bool operator==(const Constant&) const = default;
};

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_PUBLISHED_H_
