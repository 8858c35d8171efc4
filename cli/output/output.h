// What verbs print, in the format that -o asks for: table for people, wide for wide terminals, json and yaml for whole
// messages, csv for spreadsheets, name for scripts. The functions are pure except those that print; thread-safe.
#ifndef LYNX_CLI_OUTPUT_OUTPUT_H_
#define LYNX_CLI_OUTPUT_OUTPUT_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "report/texts.h"

namespace lynx::cli {

enum class OutputFormat : uint8_t { kTable, kWide, kJson, kYaml, kCsv, kName };
const char* OutputFormatName(OutputFormat format);  // the word that -o takes

// JsonText returns any message as indented JSON, with proto field names in lowerCamelCase and with the fields that have their
// defaults. YamlText and YamlOf return the same content as YAML.
std::string JsonText(const google::protobuf::Message& message);
std::string YamlText(const google::protobuf::Message& message);
std::string YamlOf(const std::string& json);

// The tables in which a column appears. A column with a csv name appears in every csv.
enum class ColumnIn : uint8_t { kTables, kWideTable, kNoTable };

struct ListingColumn {
  std::string title;  // "AGE"
  std::string csv;    // its name in csv: "submitted"; "" = not in csv, because another column has the value
  ColumnIn in = ColumnIn::kTables;
};

// Things of one kind, one per row. CellText makes the cells for one format.
struct Listing {
  std::vector<ListingColumn> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> names;  // one per row: the name by which other verbs know the thing; empty: the things have no names
  std::string nothing;             // printed if the table has no rows: "no jobs"
  std::string notes;               // text to print below a table
};

// Returns the listing as text. InvalidArgument: the format needs names, but the things have no names. `format` must not be json
// or yaml.
absl::StatusOr<std::string> ListingText(const Listing& listing, OutputFormat format);

// Cells of a listing: rounded values for people, full values for csv.
class CellText {
 public:
  // `now`: Unix time, for ages.
  CellText(OutputFormat format, Nanos now) : whole_(format == OutputFormat::kCsv), now_(now) {}

  bool whole() const { return whole_; }
  std::string Age(int64_t unix_ns) const;   // "5m"; in csv as Time. 0 gives "-", in csv an empty cell
  std::string Time(int64_t unix_ns) const;  // "2026-11-23 14:05:07", local; in csv "2026-11-23T14:05:07.123456789Z"
  std::string Duration(int64_t ns) const;   // "1m07s"; in csv seconds
  std::string Count(double value) const;    // "12.3k"; in csv all digits
  std::string Size(Bytes bytes) const;      // "1.5 GiB"; in csv bytes
  std::string None() const { return whole_ ? "" : "-"; }

 private:
  bool whole_;
  Nanos now_;
};

// The time since then: "5s", "3h", "2d"; "-" for 0.
std::string Age(int64_t since_unix_ns, Nanos now);

// Prints the message (json, yaml) or the listing of its contents (other formats). In table formats, `text` is printed instead
// of the listing if it is not empty. Returns the exit code.
int Show(OutputFormat format, const google::protobuf::Message& message, const Listing& listing, const std::string& text = "");
// Prints output that is not a listing, so the formats csv and name are bad input.
int Show(OutputFormat format, const google::protobuf::Message& message, const std::string& text);
int ShowJson(OutputFormat format, const std::string& json, const std::string& text);
// Prints a listing that has no message: `json` is printed as json or yaml.
int ShowListing(OutputFormat format, const std::string& json, const Listing& listing);
// InvalidArgument: the verb does not know this format.
absl::Status CheckOutput(OutputFormat format, const std::vector<OutputFormat>& known);
// Prints "lynxctl: MESSAGE" on standard error and returns the exit code for the status.
int Fail(const absl::Status& status);

}  // namespace lynx::cli

#endif  // LYNX_CLI_OUTPUT_OUTPUT_H_
