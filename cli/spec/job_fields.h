// The table of a job file's fields: what each means, how it is read and how it is printed. Immutable; thread-safe.
#ifndef LYNX_CLI_SPEC_JOB_FIELDS_H_
#define LYNX_CLI_SPEC_JOB_FIELDS_H_

#include <vector>

#include "cli/spec/yaml_record.h"
#include "planner/problem/job_spec.h"

namespace lynx::cli {

using JobField = Field<JobSpec>;

inline constexpr char kModelPreset[] = "model.preset";
inline constexpr char kModelConfig[] = "model.config";

// All fields, in the order in which a job file is printed. The fields kModelPreset and kModelConfig change nothing here when
// they are read: the reader of a file looks them up first.
const std::vector<JobField>& JobFields();

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_JOB_FIELDS_H_
