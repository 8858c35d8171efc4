#include "tests/validation/vtrain.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "planner/frameworks/step_estimate.h"

namespace lynx::validation {
namespace {

constexpr int32_t kDevicesPerNode = 8;
constexpr int64_t kSlowerNetwork = 2;  // the measured network has 1/2 of the rate in the cluster file

int32_t Count(const Row& row, const char* column) { return static_cast<int32_t>(Number(row, column)); }

StepRequest RequestOf(const Row& row) {
  StepRequest request;
  request.model = {.layers = Count(row, "layers"),
                   .hidden = Count(row, "hidden"),
                   .heads = Count(row, "heads"),
                   .ffn = 4 * Count(row, "hidden"),
                   .seq = Count(row, "seq"),
                   .vocab = Count(row, "vocab"),
                   .dropout = 0.1,
                   .dtype = DataType::kBfloat16};
  request.layout = {.tp = Count(row, "tp"), .pp = Count(row, "pp"), .dp = Count(row, "dp")};
  request.micro_batch = Count(row, "micro_batch");
  request.microbatches = Count(row, "global_batch") / request.layout.dp / request.micro_batch;
  // The vocabulary is padded to a multiple of 128 for each tensor-parallel rank.
  const int32_t multiple = 128 * request.layout.tp;
  request.model.vocab = (request.model.vocab + multiple - 1) / multiple * multiple;
  request.recompute = RecomputeMode::kFull;
  request.ranks_per_node = kDevicesPerNode;
  request.traits = kMegatron2022Traits;
  return request;
}

std::string NameOf(const Row& row) {
  return absl::StrFormat("%d x %d, %d devices, batch %d", Count(row, "layers"), Count(row, "hidden"), Count(row, "devices"),
                         Count(row, "global_batch"));
}

struct Run {
  std::string layout;
  double measured = 0, estimated = 0;
};

}  // namespace

std::vector<LayoutChoice> LayoutChoices(const Table& table, const HardwareProfile& a100, int32_t adapters) {
  HardwareProfile profile = a100;
  profile.inter_node.bytes_per_second /= kSlowerNetwork;
  profile.adapters = adapters;
  std::map<std::string, std::vector<Run>> groups;
  for (const Row& row : table) {
    const StepRequest request = RequestOf(row);
    const absl::StatusOr<StepEstimate> estimate = EstimateStep(request, profile);
    LYNX_CHECK(estimate.ok());
    groups[NameOf(row)].push_back({absl::StrCat(LayoutText(request.layout), ", micro-batch ", request.micro_batch),
                                   Number(row, "step_s"), Seconds(estimate->step)});
  }
  std::vector<LayoutChoice> choices;
  for (const auto& [name, runs] : groups) {
    const auto by = [&](double Run::*time) {
      return *std::min_element(runs.begin(), runs.end(), [&](const Run& a, const Run& b) { return a.*time < b.*time; });
    };
    const Run chosen = by(&Run::estimated), fastest = by(&Run::measured);
    std::vector<double> errors;
    for (const Run& run : runs) errors.push_back(std::abs(run.estimated / run.measured - 1));
    std::nth_element(errors.begin(), errors.begin() + static_cast<int64_t>(errors.size() / 2), errors.end());
    choices.push_back({.name = name,
                       .layouts = static_cast<int32_t>(runs.size()),
                       .chosen = chosen.layout,
                       .fastest = fastest.layout,
                       .regret = chosen.measured / fastest.measured - 1,
                       .error = errors[errors.size() / 2]});
  }
  return choices;
}

}  // namespace lynx::validation
