// The fields of a job file's section `model`. Immutable; thread-safe.
#ifndef LYNX_CLI_SPEC_MODEL_FIELDS_H_
#define LYNX_CLI_SPEC_MODEL_FIELDS_H_

#include <vector>

#include "cli/spec/job_fields.h"

namespace lynx::cli {

// In the order in which a job file is printed: the model's own fields, then those of model.rope and of model.moe.
std::vector<JobField> ModelFields();

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_MODEL_FIELDS_H_
