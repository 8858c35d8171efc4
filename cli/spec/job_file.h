// The job file: strict, versioned YAML (`apiVersion: lynx/v1`, `kind: TrainingJob`). One table of fields (job_fields.h)
// is used for reading, for printing with defaults and for the reference in docs/. The functions depend only on the text
// and on the files that it names; thread-safe.
#ifndef LYNX_CLI_SPEC_JOB_FILE_H_
#define LYNX_CLI_SPEC_JOB_FILE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/problem/job_spec.h"

namespace lynx::cli {

// Returns the text of the file at an absolute path.
using TextReader = std::function<absl::StatusOr<std::string>(const std::string& path)>;
// Reads from disk. NotFound: the file cannot be read. InvalidArgument: it is larger than 16 MiB. Both name the file.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

// Parses the text of a job file. `file` names the text in messages; relative paths in it are taken from `folder` (absolute).
// InvalidArgument: "FILE:LINE:COLUMN: FIELD: what is wrong; what would be right". Unknown fields are errors, with the
// nearest known name. The result is normalized and has passed ValidateJobSpec.
// `overrides`: "train.steps=20" and the like; they replace the values in the file.
// `read`: reads the config.json that `model.config` names.
absl::StatusOr<JobSpec> ParseJobFile(const std::string& text, const std::string& file, const std::string& folder,
                                     const std::vector<std::string>& overrides = {}, const TextReader& read = ReadTextFile);

// Reads and parses a job file. NotFound and InvalidArgument name the file.
absl::StatusOr<JobSpec> ReadJobFile(const std::string& path, const std::vector<std::string>& overrides = {});

// The whole spec as a job file, including defaults. Reading it gives the same spec.
std::string JobFileText(const JobSpec& spec);

// Markdown table of all fields with their defaults and meanings.
std::string JobFileReference();

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_JOB_FILE_H_
