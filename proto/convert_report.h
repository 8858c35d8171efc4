// Conversion between the protocol's rank reports and the ranks' own type. Both directions use the Describe functions of
// worker/contract/rank_report_fields.h. As in proto/convert.h, InvalidArgument names the field. Pure; thread-safe.
#ifndef LYNX_PROTO_CONVERT_REPORT_H_
#define LYNX_PROTO_CONVERT_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "lynx/v1/cluster.pb.h"
#include "worker/contract/rank_report.h"

namespace lynx {

// Sets the `report` field of the message. The caller must set job, generation, rank and sequence.
void SetReport(const RankReport& report, v1::RankReport& message);
// Returns only the report. Loss and gradient norm may be infinite or NaN: a run that diverges reports such values.
absl::StatusOr<RankReport> ReportFromProto(const v1::RankReport& message, const std::string& path = "report");

}  // namespace lynx

#endif  // LYNX_PROTO_CONVERT_REPORT_H_
