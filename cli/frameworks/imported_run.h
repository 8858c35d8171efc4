// A run of another framework, as its own files describe it: the job that Lynx would plan for it, and everything in the files
// that this job does not say. Nothing is left out without a word: each argument becomes a field of the job, or has no effect on
// a plan (such as logging), or is named in one of the lists here. Plain data; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_IMPORTED_RUN_H_
#define LYNX_CLI_FRAMEWORKS_IMPORTED_RUN_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/spec/job_file.h"
#include "planner/frameworks/framework.h"
#include "planner/problem/job_spec.h"

namespace lynx::cli {

struct ImportedRun {
  Framework framework = Framework::kMegatron;
  JobSpec job;  // normalized and valid; its layout is pinned to that of the run
  int32_t devices = 1;
  FrameworkTraits traits;  // how the framework runs a step, with the changes by the run's flags
  // Arguments that say something about shape, layout, memory or time for which a job has no field: "--fp8-format: ...".
  std::vector<std::string> not_taken;
  // Values that the files do not give, and the values that are used instead.
  std::vector<std::string> assumed;
  std::vector<std::string> unknown;  // arguments that Lynx does not know
};

struct ImportRequest {
  std::string text;
  std::string file;    // the name of the file, for errors; its stem names the job
  std::string folder;  // relative paths in the file start here; absolute
  // NAME=VALUE of --set: variables of a script, and fields of the job (names with a dot, such as model.vocab).
  std::map<std::string, std::string> variables;
  std::vector<std::string> overrides;
  int32_t devices = 0;             // 0 = as the file says
  std::string model;               // text of a Hugging Face config.json; "" = the file describes the model
  std::string model_file;          // its name, for errors
  TextReader read = ReadTextFile;  // reads the module of a model that an export of Lynx has beside its configuration
};

// Reads a run. InvalidArgument names the file and the argument, and says what to do: a required value is missing or unknown,
// the model has layers that Lynx does not plan (such as those that predict several tokens), or the values contradict each
// other.
absl::StatusOr<ImportedRun> ImportRun(Framework framework, const ImportRequest& request);

// The frameworks that ImportRun reads, as text for people: "megatron, deepspeed, torchtitan or nemo".
std::string ImportedFrameworksText();

// Returns the job as a job file. Comments at its beginning list what was assumed, not taken and unknown.
std::string ImportedJobFile(const ImportedRun& run, const std::string& file);
// Returns the lists of the run for people, with one entry per line; "" if all lists are empty.
std::string ImportRemarks(const ImportedRun& run);

// The readers, one for each framework.
absl::StatusOr<ImportedRun> ImportMegatron(const ImportRequest& request);
absl::StatusOr<ImportedRun> ImportDeepspeed(const ImportRequest& request);
absl::StatusOr<ImportedRun> ImportNemo(const ImportRequest& request);
absl::StatusOr<ImportedRun> ImportTorchtitan(const ImportRequest& request);

// The last steps of all readers: add the request's overrides, name the job by the file, normalize and validate it. Errors name
// the file.
absl::Status FinishImport(const ImportRequest& request, ImportedRun& run);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_IMPORTED_RUN_H_
