// Published figures, as tables, and their comparison with what the planner says. The tables are in
// tests/validation/reference; docs/validation.md says where they are from. Not thread-safe.
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

// Comma-separated, a line of column names first; fields may be quoted. NotFound with the path; InvalidArgument with
// the line where it has another number of fields than the first.
absl::StatusOr<Table> ReadTable(const std::string& path);

// The number in that column. Stops the program if there is none: the tables are part of the source tree.
double Number(const Row& row, const std::string& column);
// The value of a Korthikanti table's row: `table`, `row` and `field` name it.
double Value(const Table& table, const std::string& name, const std::string& row, const std::string& field);

struct Comparison {
  std::string row;
  std::string what;
  std::string unit;
  double published = 0;
  double ours = 0;

  double error() const { return ours / published - 1; }
};
double MeanError(const std::vector<Comparison>& all);    // of absolute errors
double MedianError(const std::vector<Comparison>& all);  // the upper one of two
double WorstError(const std::vector<Comparison>& all);

// The profile of the devices of the first group of nodes of a cluster file. Stops the program if it cannot be read.
HardwareProfile ProfileOf(const std::string& cluster_file);

// What was fitted, and to how much it comes.
struct Constant {
  std::string name;
  int32_t value = 0;
  bool operator==(const Constant&) const = default;
};

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_PUBLISHED_H_
