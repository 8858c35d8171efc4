// Writes the text of docs/validation.md: all comparisons on one page.
#ifndef LYNX_TESTS_VALIDATION_REPORT_H_
#define LYNX_TESTS_VALIDATION_REPORT_H_

#include <string>

#include "absl/status/statusor.h"

namespace lynx::validation {

// `source_dir`: the root of the source tree, with the tables and cluster files. Returns Markdown.
absl::StatusOr<std::string> ValidationReport(const std::string& source_dir);

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_REPORT_H_
