// AuditRecord: one change that somebody requested, or one call that was refused. A plain value.
#ifndef LYNX_SERVER_VALUES_AUDIT_H_
#define LYNX_SERVER_VALUES_AUDIT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/units.h"

namespace lynx::server {

struct AuditRecord {
  int64_t sequence = 0;  // the store assigns this number
  Nanos time;            // Unix time
  std::string who;       // "alice", "node/n0", "local"; empty: unknown caller
  std::string from;      // address of the caller
  std::string what;      // "Jobs.SubmitJob"
  std::string target;    // a job, node, queue or user
  std::string outcome;   // "OK", or the name of the error's code
  std::string detail;    // the error's text, truncated
  bool refused = false;  // the call was refused before the request was looked at
};

// Sets outcome and detail.
inline void SetOutcome(AuditRecord& record, const absl::Status& status) {
  constexpr size_t kLongest = 300;
  record.outcome = absl::StatusCodeToString(status.code());
  record.detail = std::string(status.message()).substr(0, kLongest);
}

}  // namespace lynx::server

#endif  // LYNX_SERVER_VALUES_AUDIT_H_
