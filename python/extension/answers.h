// The answers that are no single plan: compare, explain, whatif, another framework's plan, exports, and descriptions of jobs
// and machines. Each function needs the interpreter's lock, and gives it up while the planner works.
#ifndef LYNX_PYTHON_EXTENSION_ANSWERS_H_
#define LYNX_PYTHON_EXTENSION_ANSWERS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/extension/planning.h"

namespace lynx::python {

// An answer in the formats in which lynxctl prints it.
struct AnswerTexts {
  std::string table, json, csv;
};
AnswerTexts Compare(const std::shared_ptr<const Request>& request);
AnswerTexts Explain(const std::shared_ptr<const Request>& request);
// `nodes`: as for cli::ChangeNodes.
AnswerTexts WhatIf(const std::shared_ptr<const Request>& now, const std::shared_ptr<const Request>& changed,
                   const std::string& nodes);

// What `lynxctl plan --framework` prints. `fits`: the framework's fastest plan fits the devices.
struct FrameworkAnswer {
  std::string table, json;
  bool fits = false;
};
FrameworkAnswer PlanOfFramework(const std::shared_ptr<const Request>& request, const std::string& framework);

// What `lynxctl export` prints: as JSON, and what the framework cannot express. `version`: "" = the newest.
struct ExportTexts {
  std::string json, missing;
};
ExportTexts Export(const std::shared_ptr<const Request>& request, const std::string& format, const std::string& version);

// The job's text with all defaults filled in. Throws lynx.Error if the job is not valid.
std::string CompleteJob(const std::string& text, const std::string& name, const std::string& folder,
                        const std::vector<std::string>& overrides);
// The paths of all fields of a job file, with their meanings.
std::vector<std::pair<std::string, std::string>> FieldsOfJobs();
// The names of the presets of models.
std::vector<std::string> PresetNames();
// The groups of a machine, as JSON. Throws lynx.Error if the text is not valid.
std::string DescribeCluster(const std::string& text, const std::string& name);

}  // namespace lynx::python

#endif  // LYNX_PYTHON_EXTENSION_ANSWERS_H_
