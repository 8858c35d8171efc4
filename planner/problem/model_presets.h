// Models that a job file can name instead of stating their shape. They are the models of the papers with which Lynx is
// validated, and released models with experts. Immutable; pure; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_MODEL_PRESETS_H_
#define LYNX_PLANNER_PROBLEM_MODEL_PRESETS_H_

#include <string>
#include <vector>

#include "planner/problem/job_spec.h"

namespace lynx {

struct ModelPreset {
  std::string name;    // "gpt-22b"
  std::string source;  // where the shape is from
  ModelSpec model;     // complete and normalized; seq is the sequence length that the source trains with
};

// The GPT presets by size, then the Llama presets by size, then the models with experts by family.
const std::vector<ModelPreset>& ModelPresets();
// nullptr if no preset has that name.
const ModelPreset* FindModelPreset(const std::string& name);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_MODEL_PRESETS_H_
