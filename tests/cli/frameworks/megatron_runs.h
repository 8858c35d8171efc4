// Small runs of Megatron-LM for tests of their import.
#ifndef LYNX_TESTS_CLI_FRAMEWORKS_MEGATRON_RUNS_H_
#define LYNX_TESTS_CLI_FRAMEWORKS_MEGATRON_RUNS_H_

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "cli/frameworks/imported_run.h"

namespace lynx::cli {

inline ImportRequest RequestOf(const std::string& text) {
  ImportRequest request;
  request.text = text;
  request.file = "runs/Train 8B.sh";
  request.folder = "/runs";
  return request;
}

inline ImportedRun Imported(const ImportRequest& request) {
  absl::StatusOr<ImportedRun> run = ImportRun(Framework::kMegatron, request);
  EXPECT_TRUE(run.ok()) << run.status() << "\n" << request.text;
  return run.ok() ? *std::move(run) : ImportedRun();
}
inline ImportedRun Imported(const std::string& text) { return Imported(RequestOf(text)); }

inline std::string ErrorOf(const ImportRequest& request) {
  const absl::StatusOr<ImportedRun> run = ImportRun(Framework::kMegatron, request);
  EXPECT_EQ(run.status().code(), absl::StatusCode::kInvalidArgument) << request.text;
  return std::string(run.status().message());
}
inline std::string ErrorOf(const std::string& text) { return ErrorOf(RequestOf(text)); }

// A command line of a small model on two devices, with more arguments.
inline std::string Small(const std::string& more = "") {
  return "torchrun --nproc-per-node 2 pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length "
         "256 "
         "--micro-batch-size 2 --global-batch-size 8 --vocab-size 1000 --train-iters 10 " +
         more;
}
// A small model like the one above, but with gated layers.
inline std::string SmallLlama(const std::string& more = "") {
  return Small(
      "--swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --attention-dropout 0 "
      "--hidden-dropout 0 --bf16 --untie-embeddings-and-output-weights " +
      more);
}

}  // namespace lynx::cli

#endif  // LYNX_TESTS_CLI_FRAMEWORKS_MEGATRON_RUNS_H_
