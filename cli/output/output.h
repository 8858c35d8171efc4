// What verbs print, in the form that -o asks for: a table for people, wide for those with room, json and yaml of the messages
// themselves, csv for spreadsheets, names for scripts. Pure functions but for those that show; thread-safe.
#ifndef LYNX_CLI_OUTPUT_OUTPUT_H_
#define LYNX_CLI_OUTPUT_OUTPUT_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "report/texts.h"

namespace lynx {

enum class OutputFormat : uint8_t { kTable, kWide, kJson, kYaml, kCsv, kName };
const char* OutputFormatName(OutputFormat format);  // as after -o

// Pretty JSON of any message: proto field names in lowerCamelCase, defaults included. The same as YAML.
std::string JsonText(const google::protobuf::Message& message);
std::string YamlText(const google::protobuf::Message& message);
std::string YamlOf(const std::string& json);

// In which tables a column stands; where a csv name is given, it stands in every csv.
enum class ColumnIn : uint8_t { kTables, kWideTable, kNoTable };

struct ListingColumn {
  std::string title;  // "AGE"
  std::string csv;    // what csv calls it: "submitted"; "" = it is not there, another column says it
  ColumnIn in = ColumnIn::kTables;
};

// Things of one kind, a row each. The cells are text for one format: CellText makes them.
struct Listing {
  std::vector<ListingColumn> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> names;  // by row: by which other verbs know it; empty: they have none
  std::string nothing;             // in place of a table without rows: "no jobs"
  std::string notes;               // below a table
};

// InvalidArgument: the things have no names. Not for json and yaml.
absl::StatusOr<std::string> ListingText(const Listing& listing, OutputFormat format);

// Cells of a listing: rounded for people, whole for csv.
class CellText {
 public:
  // `now`: Unix time, for ages.
  CellText(OutputFormat format, Nanos now) : whole_(format == OutputFormat::kCsv), now_(now) {}

  bool whole() const { return whole_; }
  std::string Age(int64_t unix_ns) const;   // "5m"; as Time. 0: "-", or nothing
  std::string Time(int64_t unix_ns) const;  // "2026-11-23 14:05:07" here; "2026-11-23T14:05:07.123456789Z"
  std::string Duration(int64_t ns) const;   // "1m07s"; seconds
  std::string Count(double value) const;    // "12.3k"; all digits
  std::string Size(Bytes bytes) const;      // "1.5 GiB"; bytes
  std::string None() const { return whole_ ? "" : "-"; }

 private:
  bool whole_;
  Nanos now_;
};

// "5s", "3h", "2d" since then; "-" for 0.
std::string Age(int64_t since_unix_ns, Nanos now);

// Prints the message, or the listing of what is in it; `text`, unless empty, in place of its tables. The exit code.
int Show(OutputFormat format, const google::protobuf::Message& message, const Listing& listing, const std::string& text = "");
// For output that is not a listing; therefore csv and name are bad input.
int Show(OutputFormat format, const google::protobuf::Message& message, const std::string& text);
int ShowJson(OutputFormat format, const std::string& json, const std::string& text);
// A listing that is no message: json and yaml of `json`.
int ShowListing(OutputFormat format, const std::string& json, const Listing& listing);
// InvalidArgument unless it is one of those that a verb knows.
absl::Status CheckOutput(OutputFormat format, const std::vector<OutputFormat>& known);
// "lynxctl: MESSAGE" on standard error; the exit code for it.
int Fail(const absl::Status& status);

}  // namespace lynx

#endif  // LYNX_CLI_OUTPUT_OUTPUT_H_
