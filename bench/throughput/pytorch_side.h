// Trains a benchmark's model with PyTorch, by bench/throughput/pytorch_train.py in a process of its own. Blocks the calling
// thread.
#ifndef LYNX_BENCH_THROUGHPUT_PYTORCH_SIDE_H_
#define LYNX_BENCH_THROUGHPUT_PYTORCH_SIDE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/problem/job_spec.h"

namespace lynx::bench {

struct PytorchSettings {
  std::string python;  // a path, or a name that is looked for in PATH
  std::string script;  // pytorch_train.py
  std::string data;    // a text file to train on
  ModelSpec model;     // if it is bfloat16, PyTorch trains under autocast: weights and optimizer stay float32
  int32_t micro_batch = 1, microbatches = 1;
  int32_t warmup = 1, steps = 1;
  std::vector<int32_t> cores;
  DeviceKind device = DeviceKind::kCpu;
  std::string gpu;       // with kCuda: the UUID of the GPU
  bool compile = false;  // with torch.compile
  Nanos limit{900'000'000'000};
};

struct PytorchRun {
  std::vector<double> step_ms;       // without the steps to warm up
  std::optional<Bytes> peak_memory;  // the largest GPU memory that PyTorch had allocated at once
};

// NotFound: Python or PyTorch is not installed, or this PyTorch cannot compile. ResourceExhausted: PyTorch had too little
// memory. DeadlineExceeded: it was killed at the limit.
absl::StatusOr<PytorchRun> TrainWithPytorch(const PytorchSettings& settings);

}  // namespace lynx::bench

#endif  // LYNX_BENCH_THROUGHPUT_PYTORCH_SIDE_H_
