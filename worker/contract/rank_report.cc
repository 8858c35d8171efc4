#include "worker/contract/rank_report.h"

#include <optional>

#include "common/status.h"
#include "worker/contract/json_fields.h"
#include "worker/contract/rank_report_fields.h"

namespace lynx {
std::string RankReportLine(const RankReport& report) {
  JsonWriter writer;
  RankReport copy = report;
  std::visit(
      [&](auto& value) {
        std::string type = ReportKind(value).text;
        writer.Field("type", type);
        Describe(writer, value);
      },
      copy);
  return writer.Line();
}

absl::StatusOr<RankReport> ParseRankReport(const std::string& line) {
  JsonReader reader(line, "rank report");
  std::string type;
  reader.Field("type", type);
  std::optional<RankReport> report = ReportOfKind(type);
  if (report) {
    std::visit([&](auto& value) { Describe(reader, value); }, *report);
  } else if (reader.ok()) {
    reader.Fail("type", "'" + type + "' is no report");
  }
  LYNX_RETURN_IF_ERROR(reader.Finish());
  return *std::move(report);
}

}  // namespace lynx
