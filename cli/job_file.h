// The job file: strict, versioned YAML (`apiVersion: lynx/v1`, `kind: TrainingJob`). One table of fields drives reading,
// printing with defaults and the reference in docs/. Pure functions of text; thread-safe.
#ifndef LYNX_CLI_JOB_FILE_H_
#define LYNX_CLI_JOB_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/job_spec.h"

namespace lynx {

// `file` names the text in messages; relative paths in it are taken from `folder` (absolute).
// InvalidArgument: "FILE:LINE:COLUMN: FIELD: what is wrong; what would be right". Unknown fields are errors, with the
// nearest known name. The result is normalized and has passed ValidateJobSpec.
// `overrides`: "train.steps=20" and the like, put in place of what the file says.
absl::StatusOr<JobSpec> ParseJobFile(const std::string& text, const std::string& file, const std::string& folder,
                                     const std::vector<std::string>& overrides = {});

// Reads the file; NotFound / InvalidArgument with its name.
absl::StatusOr<JobSpec> ReadJobFile(const std::string& path, const std::vector<std::string>& overrides = {});

// The whole spec as a job file, defaults included; reads back as the same spec.
std::string JobFileText(const JobSpec& spec);

// "24MiB", "1.5GiB", "512KiB", "100MB", "4096": bytes. Units: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB.
absl::StatusOr<Bytes> ParseByteSize(const std::string& text);
// Exact where possible: "24MiB", else plain bytes.
std::string ByteSizeText(Bytes bytes);

// Markdown table of all fields with their defaults and meanings.
std::string JobFileReference();

}  // namespace lynx

#endif  // LYNX_CLI_JOB_FILE_H_
