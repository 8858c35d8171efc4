// The layout, the micro-batch and the recomputation of a step as settings of a framework. Pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_RUN_SETTINGS_H_
#define LYNX_CLI_FRAMEWORKS_RUN_SETTINGS_H_

#include <string>
#include <vector>

#include "planner/frameworks/step_estimate.h"

namespace lynx::cli {

struct RunSetting {
  std::string name;   // "--tensor-model-parallel-size", "parallelism.tensor_parallel_degree"
  std::string value;  // "" for a flag without value
  bool operator==(const RunSetting&) const = default;
};

// The settings of the framework, without those that have its defaults. kLynx: fields of the job file.
std::vector<RunSetting> SettingsOf(Framework framework, const StepRequest& request);

// The settings to change to get from one step to another.
struct SettingChanges {
  std::vector<RunSetting> set;
  std::vector<std::string> removed;  // names
  bool empty() const { return set.empty() && removed.empty(); }
};
SettingChanges ChangesOf(Framework framework, const StepRequest& from, const StepRequest& to);

// Text such as "--tensor-model-parallel-size 4", or "tensor_parallel.autotp_size: 4" for files with keys.
std::string SettingText(Framework framework, const RunSetting& setting);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_RUN_SETTINGS_H_
