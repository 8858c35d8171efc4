// Rules about the value of one field of a job. Each returns InvalidArgument with the field's name as in job files, its value
// and what it must be. Pure; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_FIELD_RULES_H_
#define LYNX_PLANNER_PROBLEM_FIELD_RULES_H_

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lynx {

template <class Value>
absl::Status Bad(const char* field, const Value& value, const std::string& rule) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ": ", rule));
}

inline absl::Status InRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Bad(field, value, absl::StrCat("must be from ", low, " to ", high));
}

// A value that is NaN or infinite is outside every range.
inline absl::Status InRealRange(const char* field, double value, double low, double high, const char* rule) {
  if (std::isfinite(value) && value >= low && value <= high) return absl::OkStatus();
  return Bad(field, value, rule);
}

inline absl::Status Divides(const char* field, int64_t value, const char* divisor_field, int64_t divisor) {
  if (value % divisor == 0) return absl::OkStatus();
  return Bad(field, value, absl::StrCat("must be a multiple of ", divisor_field, ", which is ", divisor));
}

inline absl::Status Positive(const char* field, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return Bad(field, value, "must be a number above 0");
}

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_FIELD_RULES_H_
