#include "worker/contract/rank_report.h"

#include <optional>
#include <string_view>

#include "common/status.h"
#include "worker/contract/json_fields.h"
#include "worker/contract/rank_report_fields.h"

namespace lynx {
namespace {

// JSON stores the types of fields; the server checks their bounds.
template <class Json>
class JsonReportFields {
 public:
  explicit JsonReportFields(Json& json) : json_(json) {}

  template <class T>
  void Number(const char* name, T& value, FieldLimits) {
    json_.Field(NameInFile(name), value);
  }
  void Flag(const char* name, bool& value) { json_.Field(name, value); }
  void Real(const char* name, double& value) { json_.Field(name, value); }
  void Finite(const char* name, double& value) { json_.Field(name, value); }
  void Text(const char* name, std::string& value, size_t) { json_.Field(name, value); }
  void Path(const char* name, std::string& value) { json_.Field(name, value); }
  void Cause(const char* name, FaultCause& value) { json_.Named(name, value, FaultCauseName, ParseFaultCause); }
  template <class T>
  void Numbers(const char* name, std::vector<T>& values, FieldLimits, FieldLimits) {
    json_.Field(name, values);
  }
  void Objects(const char* name, std::vector<LinkUse>& values, FieldLimits) { json_.Objects(name, values); }
  bool Has(const char* name) const { return json_.Has(name); }

 private:
  // Ranks of earlier releases, which survive an upgrade of their daemon, use this name.
  static const char* NameInFile(const char* name) { return std::string_view(name) == "state_bytes" ? "states_bytes" : name; }

  Json& json_;
};

}  // namespace

// JsonWriter::Objects and JsonReader::Objects find these by argument-dependent lookup, which would not look into an unnamed
// namespace.
static void Describe(JsonWriter& json, LinkUse& link) {
  JsonReportFields fields(json);
  Describe(fields, link);
}
static void Describe(JsonReader& json, LinkUse& link) {
  JsonReportFields fields(json);
  Describe(fields, link);
}

std::string RankReportLine(const RankReport& report) {
  JsonWriter writer;
  JsonReportFields fields(writer);
  RankReport copy = report;
  std::visit(
      [&](auto& value) {
        std::string type = ReportKind(value);
        writer.Field("type", type);
        Describe(fields, value);
      },
      copy);
  return writer.Line();
}

absl::StatusOr<RankReport> ParseRankReport(const std::string& line) {
  JsonReader reader(line, "rank report");
  JsonReportFields fields(reader);
  std::string type;
  reader.Field("type", type);
  std::optional<RankReport> report = ReportOfKind(type);
  if (report) {
    std::visit([&](auto& value) { Describe(fields, value); }, *report);
  } else if (reader.ok()) {
    reader.Fail("type", "'" + type + "' is no report");
  }
  LYNX_RETURN_IF_ERROR(reader.Finish());
  return *std::move(report);
}

}  // namespace lynx
