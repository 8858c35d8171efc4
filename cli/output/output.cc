// See output.h.
#include "cli/output/output.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "cli/output/exit_code.h"
#include "cli/output/render.h"
#include "common/check.h"
#include "common/utf8.h"

namespace lynx::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormats[] = {"table", "wide", "json", "yaml", "csv", "name"};

// True if YAML reads the text without quotes as the same text: a word that is not a number, truth value, date or null.
bool IsPlainYaml(const std::string& text) {
  if (text.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(text.front())) || text.back() == ' ') return false;
  const auto plain = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("_-./ ", c); };
  if (!std::all_of(text.begin(), text.end(), plain)) return false;
  const std::string word = absl::AsciiStrToLower(text);
  for (const char* other : {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity"}) {
    if (word == other) return false;
  }
  double number = 0;
  return !absl::SimpleAtod(text, &number);
}

std::string YamlScalar(const Json& value) {
  if (value.is_string() && IsPlainYaml(value.get<std::string>())) return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);  // a scalar in JSON is also valid YAML
}

void AppendYaml(const Json& value, int indent, std::string& text) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  const auto append = [&](const std::string& lead, const Json& child) {
    if (child.is_structured() && !child.empty()) {
      // A list is indented as far as its key. An item begins on the line of its dash.
      const bool item = absl::EndsWith(lead, "- ");
      std::string block;
      AppendYaml(child, indent + (item || child.is_object() ? 2 : 0), block);
      if (item) block = absl::StrCat(lead, block.substr(lead.size()));
      absl::StrAppend(&text, item ? "" : lead + "\n", block);
    } else {
      absl::StrAppend(&text, lead, absl::EndsWith(lead, ":") ? " " : "",
                      child.is_structured() ? (child.is_array() ? "[]" : "{}") : YamlScalar(child), "\n");
    }
  };
  if (value.is_array()) {
    for (const Json& item : value) append(margin + "- ", item);
  } else {
    for (const auto& [key, child] : value.items())
      append(absl::StrCat(margin, IsPlainYaml(key) ? key : Json(key).dump(), ":"), child);
  }
}

std::string CsvCell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string CsvText(const Listing& listing) {
  std::string text;
  const auto line = [&](const auto& cell_of) {
    std::vector<std::string> cells;
    for (size_t i = 0; i < listing.columns.size(); ++i) {
      if (!listing.columns[i].csv.empty()) cells.push_back(CsvCell(cell_of(i)));
    }
    absl::StrAppend(&text, absl::StrJoin(cells, ","), "\n");
  };
  line([&](size_t i) { return listing.columns[i].csv; });
  for (const auto& row : listing.rows) line([&](size_t i) { return row[i]; });
  return text;
}

std::string TablesText(const Listing& listing, bool wide) {
  if (listing.rows.empty() && !listing.nothing.empty()) return absl::StrCat(listing.nothing, "\n");
  std::vector<std::vector<std::string>> rows(1);
  const auto stands = [&](const ListingColumn& column) {
    return column.in == ColumnIn::kTables || (wide && column.in == ColumnIn::kWideTable);
  };
  for (const ListingColumn& column : listing.columns) {
    if (stands(column)) rows[0].push_back(column.title);
  }
  for (const auto& row : listing.rows) {
    std::vector<std::string>& cells = rows.emplace_back();
    for (size_t i = 0; i < listing.columns.size(); ++i) {
      if (stands(listing.columns[i])) cells.push_back(row[i]);
    }
  }
  return absl::StrCat(TableText(rows), listing.notes);
}

bool IsStructured(OutputFormat format) { return format == OutputFormat::kJson || format == OutputFormat::kYaml; }

int Print(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return Fail(text.status());
  std::fputs(text->c_str(), stdout);
  return kExitOk;
}

}  // namespace

int Fail(const absl::Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "lynxctl: %s\n", VisibleText(std::string(status.message())).c_str());
  return ExitCodeOf(status);
}

const char* OutputFormatName(OutputFormat format) { return kFormats[static_cast<size_t>(format)]; }

std::string JsonText(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  std::string out;
  LYNX_CHECK(google::protobuf::util::MessageToJsonString(message, &out, options).ok());
  return out;
}

std::string YamlOf(const std::string& json) {
  const Json value = Json::parse(json);
  if (!value.is_structured()) return YamlScalar(value) + "\n";
  if (value.empty()) return value.is_array() ? "[]\n" : "{}\n";
  std::string text;
  AppendYaml(value, 0, text);
  return text;
}

std::string YamlText(const google::protobuf::Message& message) { return YamlOf(JsonText(message)); }

absl::StatusOr<std::string> ListingText(const Listing& listing, OutputFormat format) {
  for (const auto& row : listing.rows) LYNX_CHECK(row.size() == listing.columns.size());
  if (format == OutputFormat::kCsv) return CsvText(listing);
  if (format != OutputFormat::kName) return TablesText(listing, format == OutputFormat::kWide);
  if (listing.names.size() != listing.rows.size()) {
    return absl::InvalidArgumentError("-o name: these have no names that other verbs take; give -o csv or -o json");
  }
  std::string text;
  for (const std::string& name : listing.names) absl::StrAppend(&text, name, "\n");
  return text;
}

std::string CellText::Age(int64_t unix_ns) const { return whole_ ? Time(unix_ns) : cli::Age(unix_ns, now_); }

std::string CellText::Time(int64_t unix_ns) const {
  if (unix_ns == 0) return None();
  const absl::Time time = absl::FromUnixNanos(unix_ns);
  return whole_ ? absl::FormatTime("%Y-%m-%dT%H:%M:%E*SZ", time, absl::UTCTimeZone())
                : absl::FormatTime("%Y-%m-%d %H:%M:%S", time, absl::LocalTimeZone());
}

std::string CellText::Duration(int64_t ns) const {
  return whole_ ? absl::StrFormat("%.9g", static_cast<double>(ns) * 1e-9) : FormatDuration(Nanos(ns));
}

std::string CellText::Count(double value) const { return whole_ ? absl::StrFormat("%.9g", value) : lynx::Count(value); }

std::string CellText::Size(Bytes bytes) const { return whole_ ? absl::StrCat(bytes.value) : FormatBytes(bytes); }

std::string Age(int64_t since_unix_ns, Nanos now) {
  if (since_unix_ns == 0) return "-";
  const int64_t seconds = std::max<int64_t>(0, now.value - since_unix_ns) / 1'000'000'000;
  if (seconds < 60) return absl::StrCat(seconds, "s");
  if (seconds < 3600) return absl::StrCat(seconds / 60, "m");
  if (seconds < 86400) return absl::StrCat(seconds / 3600, "h");
  return absl::StrCat(seconds / 86400, "d");
}

absl::Status CheckOutput(OutputFormat format, const std::vector<OutputFormat>& known) {
  if (std::find(known.begin(), known.end(), format) != known.end()) return absl::OkStatus();
  std::vector<std::string> names;
  for (const OutputFormat one : known) names.emplace_back(OutputFormatName(one));
  return absl::InvalidArgumentError(
      absl::StrCat("-o ", OutputFormatName(format), ": this verb prints ", absl::StrJoin(names, ", ")));
}

int Show(OutputFormat format, const google::protobuf::Message& message, const Listing& listing, const std::string& text) {
  const bool table = format == OutputFormat::kTable || format == OutputFormat::kWide;
  if (table && !text.empty()) return Print(text);
  return ShowListing(format, IsStructured(format) ? JsonText(message) : "", listing);
}

int ShowListing(OutputFormat format, const std::string& json, const Listing& listing) {
  if (IsStructured(format)) return Print(format == OutputFormat::kJson ? json : YamlOf(json));
  return Print(ListingText(listing, format));
}

int Show(OutputFormat format, const google::protobuf::Message& message, const std::string& text) {
  return ShowJson(format, IsStructured(format) ? JsonText(message) : "", text);
}

int ShowJson(OutputFormat format, const std::string& json, const std::string& text) {
  using enum OutputFormat;
  if (const absl::Status known = CheckOutput(format, {kTable, kWide, kJson, kYaml}); !known.ok()) return Fail(known);
  return Print(format == kJson ? json : format == kYaml ? YamlOf(json) : text);
}

}  // namespace lynx::cli
