// Macros and functions that make absl::Status shorter to use. Operating errors are statuses. Their text contains names and
// numbers and says what to do; see docs/ARCHITECTURE.md.
#ifndef LYNX_COMMON_STATUS_H_
#define LYNX_COMMON_STATUS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace lynx {

// Returns a status with the same code, and with `context` and ": " before the message. OK stays OK.
inline absl::Status Annotate(const absl::Status& status, const std::string& context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", std::string(status.message())));
}

}  // namespace lynx

#define LYNX_STATUS_CONCAT_INNER_(a, b) a##b
#define LYNX_STATUS_CONCAT_(a, b) LYNX_STATUS_CONCAT_INNER_(a, b)

#define LYNX_RETURN_IF_ERROR(expr)                                                   \
  do {                                                                               \
    if (absl::Status lynx_status_ = (expr); !lynx_status_.ok()) return lynx_status_; \
  } while (false)

// Use: LYNX_ASSIGN_OR_RETURN(auto x, F());
#define LYNX_ASSIGN_OR_RETURN(lhs, expr) LYNX_ASSIGN_OR_RETURN_IMPL_(LYNX_STATUS_CONCAT_(lynx_statusor_, __LINE__), lhs, expr)
#define LYNX_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr) \
  auto statusor = (expr);                                \
  if (!statusor.ok()) return statusor.status();          \
  lhs = std::move(statusor).value()

#endif  // LYNX_COMMON_STATUS_H_
