// FasterModel: how much faster a job's steps would be with choices of its model that suit its devices. The defaults of a job
// file, float32 and unfused attention, suit CPUs; a GPU computes bfloat16 on tensor cores and attention in one op. Pure.
#ifndef LYNX_PLANNER_SEARCH_FASTER_MODEL_H_
#define LYNX_PLANNER_SEARCH_FASTER_MODEL_H_

#include <optional>
#include <string>

#include "planner/plan/plan.h"

namespace lynx {

struct FasterModel {
  std::string changes;  // fields of the job file: "model.dtype: bfloat16, model.attention: fused"
  Nanos step;           // predicted time of one step of the best plan with them
};

// Plans a request in float32 again, in bfloat16 and with fused attention, on nodes in the request's order and, with
// recomputation mode opt, by HEU. nullopt: the request is in bfloat16 already, its slowest devices compute bfloat16 less than
// four times as fast as float32, nothing fits, or the step would not become a tenth shorter.
std::optional<FasterModel> FindFasterModel(const PlanRequest& request, const Plan& plan);

// "note: with model.dtype: bfloat16 ... a step would take 1.2 s, 5.3 times as fast" and a newline; "" for nullopt.
std::string FasterModelText(const std::optional<FasterModel>& faster, const Plan& plan);

// Says without a new plan what FindFasterModel would look for: "computes float32, ... 15.2 times as fast ...". "" if the model
// is in bfloat16 already, or if the slowest devices compute bfloat16 less than four times as fast as float32.
std::string SlowTypeText(const ModelSpec& model, const ClusterTopology& cluster);

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_FASTER_MODEL_H_
