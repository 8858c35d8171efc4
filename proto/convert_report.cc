#include "proto/convert_report.h"

#include <optional>
#include <utility>

#include "common/status.h"
#include "proto/bounds.h"
#include "proto/field_visitors.h"
#include "worker/contract/rank_report_fields.h"

namespace lynx {
namespace {

template <class Report>
absl::StatusOr<RankReport> ReadReport(const v1::RankReport& message, const std::string& path) {
  Report report;
  const auto kind = ReportKind(report);
  const auto place = [&] { return FieldPath(path, kind.text); };
  MessageReader reader(kind.Get(message), place);
  Describe(reader, report);
  LYNX_RETURN_IF_ERROR(reader.status());
  const std::optional<FieldMistake> mistake = MistakeBetweenFields(report);
  if (mistake) return BadField(FieldPath(place(), mistake->field), mistake->value, mistake->rule);
  return RankReport(std::move(report));
}

// Reads the report of the message, whatever its kind is.
template <class... Reports>
absl::StatusOr<RankReport> ReadAnyReport(const v1::RankReport& message, const std::string& path,
                                         const std::variant<Reports...>*) {
  std::optional<absl::StatusOr<RankReport>> read;
  ((ReportKind(Reports{}).Has(message) && (read = ReadReport<Reports>(message, path), true)) || ...);
  if (!read) return BadField(path, "empty or of an unknown kind", "must hold one report that this version knows");
  return *std::move(read);
}

}  // namespace

void SetReport(const RankReport& report, v1::RankReport& message) {
  RankReport copy = report;
  std::visit(
      [&](auto& value) {
        MessageWriter writer(ReportKind(value).Mutable(message));
        Describe(writer, value);
      },
      copy);
}

absl::StatusOr<RankReport> ReportFromProto(const v1::RankReport& message, const std::string& path) {
  return ReadAnyReport(message, path, static_cast<const RankReport*>(nullptr));
}

}  // namespace lynx
