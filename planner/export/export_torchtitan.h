// The values of torchtitan's configuration for a plan. The TOML files and the configuration in Python use the same values. See
// export.h. Pure; thread-safe.
#ifndef LYNX_PLANNER_EXPORT_EXPORT_TORCHTITAN_H_
#define LYNX_PLANNER_EXPORT_EXPORT_TORCHTITAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/export/export_files.h"

namespace lynx {

struct TorchtitanChoices {
  int64_t replicas = 1;
  int64_t shards = 1;
  std::string reshard;                            // fsdp_reshard_after_forward; "" if nothing is sharded
  std::string schedule;                           // "" if there is no pipeline parallelism
  std::vector<std::vector<std::string>> modules;  // one list for each (virtual) stage, in the order of the model; empty if
                                                  // there is no pipeline parallelism
  double max_norm = 0;                            // infinite if nothing is clipped
  int64_t seed = 0;
  double min_lr_factor = 0;
  int32_t keep_latest = 2;
  std::vector<std::string> missing;
};
TorchtitanChoices TorchtitanChoicesFor(const ExportInput& input);

// Writes torchtitan.toml and the Python module that registers the model, for version 0.2.2.
ExportedPlan TorchtitanTomlFiles(const ExportInput& input, TorchtitanChoices choices);
// Writes a Python module with a function that makes a Trainer.Config, for version kMain.
ExportedPlan TorchtitanPythonFiles(const ExportInput& input, TorchtitanChoices choices);

}  // namespace lynx

#endif  // LYNX_PLANNER_EXPORT_EXPORT_TORCHTITAN_H_
