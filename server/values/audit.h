// AuditRecord: one change that somebody asked for, or one call that was refused. A plain value.
#ifndef LYNX_SERVER_VALUES_AUDIT_H_
#define LYNX_SERVER_VALUES_AUDIT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/units.h"

namespace lynx {

struct AuditRecord {
  int64_t sequence = 0;  // the store's
  Nanos time;            // Unix
  std::string who;       // "alice", "node/n0", "local"; "" = nobody
  std::string from;      // the other end's address
  std::string what;      // "Jobs.SubmitJob"
  std::string target;    // a job, node, queue or user
  std::string outcome;   // "OK", or the name of the error's code
  std::string detail;    // the error's text, cut short
  bool refused = false;  // before anything was asked of the cluster
};

// Sets outcome and detail.
inline void SetOutcome(AuditRecord& record, const absl::Status& status) {
  constexpr size_t kLongest = 300;
  record.outcome = absl::StatusCodeToString(status.code());
  record.detail = std::string(status.message()).substr(0, kLongest);
}

}  // namespace lynx

#endif  // LYNX_SERVER_VALUES_AUDIT_H_
