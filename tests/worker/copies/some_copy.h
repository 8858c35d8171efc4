// Makes records of copies of a small model's two shards, for the tests of copies.
#ifndef LYNX_TESTS_WORKER_COPIES_SOME_COPY_H_
#define LYNX_TESTS_WORKER_COPIES_SOME_COPY_H_

#include <string>

#include "worker/checkpoint/checkpoint_index.h"
#include "worker/copies/copy_store.h"

namespace lynx::worker {

inline CopyRecord SomeCopy(int64_t generation, int64_t step, int32_t tp_rank, Bytes bytes, const std::string& sha256) {
  CopyRecord copy;
  copy.identity.job = JobId("job");
  copy.identity.generation = Generation(generation);
  copy.identity.step = step;
  copy.identity.model = {.layers = 2, .hidden = 8, .heads = 2, .ffn = 12, .seq = 4, .vocab = 13};
  copy.identity.layout = {.tp = 2, .pp = 1, .dp = 1};
  copy.identity.data = {DataKind::kText, Bytes(1000), std::string(64, 'd')};
  copy.shard = {ShardFile(copy.identity.layout, 0, tp_rank, 0), bytes, sha256};
  return copy;
}

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_COPIES_SOME_COPY_H_
