// Models that a job file can name in place of spelling their shape out: those of the papers that Lynx is validated
// against. Immutable; pure; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_MODEL_PRESETS_H_
#define LYNX_PLANNER_PROBLEM_MODEL_PRESETS_H_

#include <string>
#include <vector>

#include "planner/problem/job_spec.h"

namespace lynx {

struct ModelPreset {
  std::string name;    // "gpt-22b"
  std::string source;  // where the shape is from
  ModelSpec model;     // complete and normalized; seq is the one that the source trains with
};

// GPT by size, then Llama by size.
const std::vector<ModelPreset>& ModelPresets();
// nullptr: there is none of that name.
const ModelPreset* FindModelPreset(const std::string& name);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_MODEL_PRESETS_H_
