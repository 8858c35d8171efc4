#include "tests/validation/published.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/spec/cluster_file.h"
#include "common/check.h"

namespace lynx::validation {
namespace {

std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

std::vector<double> AbsoluteErrors(const std::vector<Comparison>& all) {
  LYNX_CHECK(!all.empty());
  std::vector<double> errors;
  for (const Comparison& one : all) errors.push_back(std::fabs(one.error()));
  std::sort(errors.begin(), errors.end());
  return errors;
}

}  // namespace

absl::StatusOr<Table> ReadTable(const std::string& path) {
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat(path, " cannot be read"));
  Table table;
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> columns = Fields(line);
  for (int number = 2; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    const std::vector<std::string> fields = Fields(line);
    if (fields.size() != columns.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": ", fields.size(), " fields, but ", columns.size(), " columns"));
    }
    Row row;
    for (size_t i = 0; i < columns.size(); ++i) row[columns[i]] = fields[i];
    table.push_back(std::move(row));
  }
  return table;
}

double Number(const Row& row, const std::string& column) {
  const auto found = row.find(column);
  double value = 0;
  LYNX_CHECK(found != row.end() && absl::SimpleAtod(found->second, &value));
  return value;
}

double Value(const Table& table, const std::string& name, const std::string& row, const std::string& field) {
  for (const Row& r : table) {
    if (r.at("table") == name && r.at("row") == row && r.at("field") == field) return Number(r, "value");
  }
  LYNX_CHECK(!"the table has no such row");
  return 0;
}

double MeanError(const std::vector<Comparison>& all) {
  double sum = 0;
  for (const double error : AbsoluteErrors(all)) sum += error;
  return sum / static_cast<double>(all.size());
}

double MedianError(const std::vector<Comparison>& all) { return AbsoluteErrors(all)[all.size() / 2]; }

double WorstError(const std::vector<Comparison>& all) { return AbsoluteErrors(all).back(); }

HardwareProfile ProfileOf(const std::string& cluster_file) {
  const absl::StatusOr<cli::ClusterFile> file = cli::ReadClusterFile(cluster_file);
  LYNX_CHECK(file.ok());
  return file->cluster.groups.front().profile;
}

}  // namespace lynx::validation
