// docs/validation.md: every comparison, as one page.
#ifndef LYNX_TESTS_VALIDATION_REPORT_H_
#define LYNX_TESTS_VALIDATION_REPORT_H_

#include <string>

#include "absl/status/statusor.h"

namespace lynx::validation {

// `source_dir`: the root of the source tree, whose tables and cluster files are read. Markdown.
absl::StatusOr<std::string> ValidationReport(const std::string& source_dir);

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_REPORT_H_
