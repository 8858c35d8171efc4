// The jobs that the PyTorch reference also trains. They are small and have no dropout; they have clipping, weight decay and a
// schedule of the learning rate. If a job changes, its golden file must be made again (see model_reference.py).
#ifndef LYNX_TESTS_REFERENCE_REFERENCE_JOB_H_
#define LYNX_TESTS_REFERENCE_REFERENCE_JOB_H_

#include "tests/worker/engine/tiny_cluster.h"

namespace lynx {

inline worker::TinyJob ReferenceJob(worker::TinyModel model) {
  worker::TinyJob job{.model = SpecOf(model)};
  job.model.layers = 3;
  job.model.hidden = 32;
  job.model.ffn = 96;
  job.model.seq = 16;
  job.model.dropout = 0;
  if (job.model.moe.any()) {
    job.model.moe.ffn = 24;
    if (job.model.moe.shared_ffn != 0) job.model.moe.shared_ffn = job.model.moe.shared_gate ? 40 : 48;  // else two experts
    job.model.moe.aux_loss = 0.05;
    job.model.moe.z_loss = 0.01;
    if (job.model.moe.router_bias) job.model.moe.bias_rate = 0.02;  // so large that it changes choices
  }
  if (job.model.rotary.dims != 0) job.model.rotary.dims = 4;  // half of a head's elements
  job.train = {.steps = 20,
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
