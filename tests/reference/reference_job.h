// The job that the PyTorch reference trains too: small, without dropout, with clipping, weight decay and a schedule.
// A change here needs a new golden file; see gpt_reference.py.
#ifndef LYNX_TESTS_REFERENCE_REFERENCE_JOB_H_
#define LYNX_TESTS_REFERENCE_REFERENCE_JOB_H_

#include "tests/worker/engine/tiny_cluster.h"

namespace lynx {

inline TinyJob ReferenceJob() {
  TinyJob job;
  job.model = {.layers = 3, .hidden = 32, .heads = 4, .ffn = 96, .seq = 16, .vocab = 67, .dropout = 0};
  job.train = {
      .steps = 20,
      .global_batch = 8,
      .micro_batch = 2,
      .optimizer = {.lr = 5e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip_norm = 0.5},
      .schedule = LrSchedule::kCosine,
      .warmup_steps = 4,
      .min_lr = 5e-4,
      .seed = 20};
  return job;
}

}  // namespace lynx

#endif  // LYNX_TESTS_REFERENCE_REFERENCE_JOB_H_
