// The models that gpu_step_bench trains: the size of a step is chosen for one GPU of 80 GB. Immutable; pure; thread-safe.
#ifndef LYNX_BENCH_GPU_STEP_MODELS_H_
#define LYNX_BENCH_GPU_STEP_MODELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/problem/job_spec.h"

namespace lynx::bench {

struct BenchModel {
  std::string name;   // "gpt2-124m"
  std::string title;  // "GPT-2, 124M parameters"
  ModelSpec model;    // bfloat16, fused attention, no dropout
  int32_t micro_batch = 1, microbatches = 1;

  int64_t samples() const { return int64_t{micro_batch} * microbatches; }
  int64_t tokens() const { return samples() * model.seq; }
};

// In ascending order of size.
const std::vector<BenchModel>& BenchModels();
// NotFound: no model has that name; the text has all names.
absl::StatusOr<BenchModel> FindBenchModel(const std::string& name);

}  // namespace lynx::bench

#endif  // LYNX_BENCH_GPU_STEP_MODELS_H_
