// Changes files of other frameworks at random. The readers must read the changed file, or refuse it with a message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "cli/frameworks/imported_run.h"
#include "cli/frameworks/run_log.h"

namespace lynx::cli {
namespace {

struct Input {
  Framework framework;
  std::string text;
  std::string log;
};

std::vector<Input> Inputs() {
  std::ifstream file(absl::StrCat(LYNX_SOURCE_DIR, "/examples/megatron-8b.sh"));
  std::ostringstream script;
  script << file.rdbuf();
  return {
      {Framework::kMegatron, script.str(),
       "iteration 1/ 9 | elapsed time per iteration (ms): 90.5 | throughput per GPU (TFLOP/s/GPU): 10.0 | global batch size: "
       "64 |\n[Rank 0] (after 1 iterations) memory (MB) | allocated: 1.0 | max allocated: 2048.00 |\n"
       "iteration 2/ 9 | elapsed time per iteration (ms): 80.5 | global batch size: 128 |\n"},
      {Framework::kDeepspeed,
       R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
               "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "tensor_parallel": {"autotp_size": 2}})",
       "global_step=3, RunningAvgSamplesPerSec=7.8, CurrSamplesPerSec=32.0, MaxMemAllocated=63.5GB\n"
       "steps: 3 loss: 2.5 iter time (s): 1.500 samples/sec: 42.6\n"},
      {Framework::kTorchtitan,
       "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 2\nseq_len = 4096\n"
       "[parallelism]\npipeline_parallel_degree = 2\ndata_parallel_shard_degree = 4\n",
       "\x1b[31mstep: 10  \x1b[36mmemory: 40.50GiB(51.20%)  \x1b[34mtps: 4,096  \x1b[36mtflops: 210.50\x1b[0m\n"},
      {Framework::kNemo,
       "trainer: {devices: 8, num_nodes: 2}\nmodel: {num_layers: 8, hidden_size: 512, num_attention_heads: 8,\n"
       "  encoder_seq_length: 512, micro_batch_size: 1, global_batch_size: 64, tensor_model_parallel_size: 2}\n",
       "1/9 [global_step=1.0, train_step_timing in s=9.0]\r2/9 [global_step=2.0, train_step_timing in s=8.0]\n"
       "global_step: 3 | train_step_timing in s: 1.25\n"}};
}

std::string Mutated(std::string text, std::mt19937& random) {
  constexpr char kPieces[] = "$({[\"'`\\\n=:,|&;#-0123456789 ]})*~^%";
  const int changes = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < changes && !text.empty(); ++i) {
    const size_t at = random() % text.size(), length = 1 + random() % 20;
    switch (random() % 4) {
      case 0: text.erase(at, length); break;
      case 1: text.insert(at, text.substr(random() % text.size(), length)); break;
      case 2: text.insert(at, 1, kPieces[random() % (sizeof(kPieces) - 1)]); break;
      default: text[at] = static_cast<char>(random() % 256);
    }
  }
  return text;
}

TEST(ImportMutations, AreReadOrRefused) {
  constexpr char kModel[] = R"({"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8,
    "num_hidden_layers": 8, "max_position_embeddings": 512, "vocab_size": 1000})";
  std::mt19937 random(20261128);
  int read = 0, refused = 0;
  for (const Input& input : Inputs()) {
    for (int i = 0; i < 1000; ++i) {
      ImportRequest request;
      request.text = i == 0 ? input.text : Mutated(input.text, random);
      request.file = "input";
      request.folder = "/runs";
      if (input.framework == Framework::kDeepspeed) request.model = kModel;
      request.read = [](const std::string& path) { return absl::NotFoundError(path); };
      const absl::StatusOr<ImportedRun> run = ImportRun(input.framework, request);
      ++(run.ok() ? read : refused);
      if (run.ok()) {
        EXPECT_TRUE(ValidateJobSpec(run->job).ok());
      } else {
        EXPECT_EQ(run.status().code(), absl::StatusCode::kInvalidArgument) << run.status() << "\n" << request.text;
        EXPECT_FALSE(run.status().message().empty());
      }
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

TEST(RunLogMutations, AreReadOrRefused) {
  std::mt19937 random(20261129);
  for (const Input& input : Inputs()) {
    ImportedRun run;
    run.framework = input.framework;
    run.devices = 8;
    run.job.model.seq = 512;
    run.job.train.global_batch = 64;
    ASSERT_TRUE(ReadRunLog(run, input.log, "log").ok()) << input.log;
    for (int i = 0; i < 2000; ++i) {
      const std::string text = Mutated(input.log, random);
      const absl::StatusOr<RunLog> log = ReadRunLog(run, text, "log");
      if (!log.ok()) {
        EXPECT_EQ(log.status().code(), absl::StatusCode::kInvalidArgument) << log.status();
        EXPECT_FALSE(log.status().message().empty());
        continue;
      }
      const StepTimes times = TimesOf(*log);
      EXPECT_GT(times.count, 0U) << text;
      EXPECT_LE(times.shortest, times.median) << text;
      EXPECT_LE(times.median, times.longest) << text;
      EXPECT_GE(times.shortest, Nanos(0)) << text;
      EXPECT_GE(log->most_allocated, Bytes(0)) << text;
      EXPECT_GE(log->global_batch, 0) << text;
    }
  }
}

}  // namespace
}  // namespace lynx::cli
