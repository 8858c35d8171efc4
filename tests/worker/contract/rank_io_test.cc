#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "worker/contract/rank_config.h"
#include "worker/contract/rank_report.h"

namespace lynx {
namespace {

using testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

RankConfig SomeConfig() {
  RankConfig config;
  config.job = JobId("job-12");
  config.generation = Generation(3);
  config.rank = 2;
  config.spec.name = "gpt-bytes";
  config.spec.model = {4, 64, 4, 256, 32, 256, 0.1};
  config.spec.model.head_dim = 24;
  config.spec.model.qkv_bias = true;
  config.spec.model.qk_norm = config.spec.model.qk_norm_whole = true;
  config.spec.model.norm_epsilon = 1e-6;
  config.spec.model.rotary = {.theta = 5e5,
                              .dims = 12,
                              .scaling = RopeScaling::kYarn,
                              .factor = 2.5,
                              .original_seq = 7,
                              .low_freq_factor = 0.5,
                              .high_freq_factor = 3,
                              .beta_fast = 16,
                              .beta_slow = 2,
                              .attention_factor = 0.75,
                              .mscale_all_dim = 0.5};
  config.spec.model.window = 5;
  config.spec.model.plan_only = PlanOnlyFeatures{1} << 3;
  config.spec.model.moe = {.experts = 8,
                           .top_k = 2,
                           .ffn = 48,
                           .normalized = false,
                           .capacity = 1.25,
                           .skew = 1.5,
                           .aux_loss = 0.01,
                           .z_loss = 0.001};
  config.spec.data = {DataKind::kMegatron, "/data/corpus \"quoted\" \xc3\xa9"};
  config.spec.train.steps = 1'000'000'000'000;
  config.spec.train.global_batch = 8;
  config.spec.train.micro_batch = 2;
  config.spec.train.optimizer = {1e-3, 0.85, 0.999, 1e-9, 0.01, 0.1 + 0.2};
  config.spec.train.schedule = LrSchedule::kLinear;
  config.spec.train.warmup_steps = 7;
  config.spec.train.min_lr = 1.0 / 3;
  config.spec.train.seed = std::numeric_limits<uint64_t>::max();
  config.spec.resources = {1, 4, Bytes(3'000'000'000), DeviceKind::kCuda};
  config.spec.parallel = {2, 2, 0};
  config.spec.recompute = RecomputeMode::kFullKeepCollectives;
  config.spec.checkpoint = {"checkpoints", 50, 3, "/elsewhere", true};
  config.spec.max_restarts = 5;
  config.context = {config.spec.model, {2, 2, 1}, 2, 4, 1, {SliceOf({2, 2, 1}, 1, 2, 4)}};
  config.program = *ParseProgram("1RF+0 1RF-0 1F0:2.attn 1AR+0:2.attn 1AR-0:2.attn 1OPT");
  config.arena = Bytes(1) * (int64_t{1} << 40);
  config.plan_digest = "0123abcd";
  config.peers = {{"127.0.0.1", 4000}, {"10.0.0.2", 4001}, {"::1", 4002}, {"127.0.0.1", 65535}};
  config.connection_secret = std::string(64, '5');
  config.checkpoint_directory = "/var/lib/lynx/job-12";
  config.resume_step = 250;
  config.copies_directory = "/dev/shm/copies";
  config.copies_limit = Bytes(7 << 20);
  config.spec.checkpoint.copy_every_steps = 3;
  config.check = true;
  config.encryption = RankEncryption::kExceptNccl;
  config.progress_limit = Nanos(77'000'000'000);
  config.last_checkpoint_patience = Nanos(77);
  config.device = {DeviceKind::kCuda, 3, "GPU-3"};
  config.threads = 2;
  config.cores = {0, 3};
  config.pacing_bytes_per_second = 125'000'000;
  return config;
}

// Returns the configuration's text with the first occurrence of `from` replaced by `to`.
std::string Changed(const std::string& from, const std::string& to) {
  std::string text = RankConfigText(SomeConfig());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void ExpectRejected(const std::string& text, const std::string& field) {
  const absl::StatusOr<RankConfig> config = ParseRankConfig(text);
  ASSERT_FALSE(config.ok()) << field;
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(config.status()), HasSubstr("rank configuration: field '" + field + "': "));
}

TEST(RankConfigTest, EveryFieldComesBack) {
  const RankConfig config = SomeConfig();
  const absl::StatusOr<RankConfig> parsed = ParseRankConfig(RankConfigText(config));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, config);
  EXPECT_EQ(RankConfigText(*parsed), RankConfigText(config));
}

TEST(RankConfigTest, AWorldOfOneComesBack) {
  RankConfig config;
  config.job = JobId("j");
  config.generation = Generation(1);
  config.context.slices = {SliceOf({}, 0, 0, 1)};
  config.peers = {{"127.0.0.1", 0}};
  config.connection_secret = std::string(64, '0');
  const absl::StatusOr<RankConfig> parsed = ParseRankConfig(RankConfigText(config));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, config);
}

TEST(RankConfigTest, EveryEnumValueComesBack) {
  RankConfig config = SomeConfig();
  for (const RecomputeMode mode : {RecomputeMode::kAuto, RecomputeMode::kNone, RecomputeMode::kFull,
                                   RecomputeMode::kFullKeepCollectives, RecomputeMode::kSelective}) {
    for (const LrSchedule schedule : {LrSchedule::kConstant, LrSchedule::kLinear, LrSchedule::kCosine}) {
      for (const DataKind kind : {DataKind::kText, DataKind::kMegatron}) {
        config.spec.recompute = mode;
        config.spec.train.schedule = schedule;
        config.spec.data.kind = kind;
        const absl::StatusOr<RankConfig> parsed = ParseRankConfig(RankConfigText(config));
        ASSERT_TRUE(parsed.ok()) << parsed.status();
        EXPECT_EQ(*parsed, config);
      }
    }
  }
}

TEST(RankConfigTest, WrongTypesAndRangesNameTheField) {
  ExpectRejected(Changed("\"rank\": 2", "\"rank\": \"two\""), "rank");
  ExpectRejected(Changed("\"rank\": 2", "\"rank\": 2.5"), "rank");
  ExpectRejected(Changed("\"rank\": 2", "\"rank\": 4"), "rank");
  ExpectRejected(Changed("\"rank\": 2", "\"rank\": 4294967298"), "rank");
  ExpectRejected(Changed("\"rank\": 2", "\"rank\": -1"), "rank");
  ExpectRejected(Changed("\"rank\": 2", "\"rank\": null"), "rank");
  ExpectRejected(Changed("\"rank\": 2", "\"rank\": 0"), "context.pipeline_rank");
  ExpectRejected(Changed("\"connection_secret\": \"5", "\"connection_secret\": \"x"), "connection_secret");
  ExpectRejected(Changed("\"stage\": 1", "\"stage\": 0"), "context.slices[0].stage");
  ExpectRejected(Changed("\"virtual_stages\": 1,", "\"virtual_stages\": 2,"), "context.slices");
  ExpectRejected(Changed("\"kind\": \"cuda\"", "\"kind\": \"tpu\""), "device.kind");
  ExpectRejected(Changed("\"kind\": \"cuda\"", "\"kind\": \"any\""), "device.kind");
  ExpectRejected(Changed("\"kind\": \"cuda\"", "\"kind\": \"cpu\""), "device.uuid");
  ExpectRejected(Changed("\"uuid\": \"GPU-3\"", "\"uuid\": \"\""), "device.uuid");
  ExpectRejected(Changed("\"generation\": 3", "\"generation\": 0"), "generation");
  ExpectRejected(Changed("\"layers\": 4", "\"layers\": [4]"), "spec.model.layers");
  ExpectRejected(Changed("\"dropout\": 0.1", "\"dropout\": \"much\""), "spec.model.dropout");
  ExpectRejected(Changed("\"seed\": 18446744073709551615", "\"seed\": -1"), "spec.train.seed");
  ExpectRejected(Changed("\"kind\": \"megatron\"", "\"kind\": \"parquet\""), "spec.data.kind");
  ExpectRejected(Changed("\"schedule\": \"linear\"", "\"schedule\": \"\""), "spec.train.schedule");
  ExpectRejected(Changed("\"port\": 4001", "\"port\": \"4001\""), "peers[1].port");
  ExpectRejected(Changed("\"threads\": 2", "\"threads\": 0"), "threads");
  ExpectRejected(Changed("\"arena_bytes\": 1", "\"arena_bytes\": -1"), "arena_bytes");
  ExpectRejected(Changed("\"resume_step\": 250", "\"resume_step\": -2"), "resume_step");
  ExpectRejected(Changed("125000000", "-1"), "pacing_bytes_per_second");
  ExpectRejected(Changed("77000000000", "-1"), "progress_limit_ns");
  ExpectRejected(Changed("\"copies_limit_bytes\": 7340032", "\"copies_limit_bytes\": -1"), "copies_limit_bytes");
  ExpectRejected(Changed("_patience_ns\": 77", "_patience_ns\": -1"), "last_checkpoint_patience_ns");
  ExpectRejected(Changed("\"format\": 15", "\"format\": 1"), "format");
  for (const char* job : {"", "..//job", "a job", "j\\u00fcb"}) {
    ExpectRejected(Changed("\"job\": \"job-12\"", absl::StrCat("\"job\": \"", job, "\"")), "job");
  }
  ExpectRejected(Changed("job-12", std::string(64, 'j')), "job");
  ExpectRejected(Changed("1F0:2.attn", "1F0:2.atn"), "program");
  ExpectRejected(Changed("\"optimizer\": {", "\"optimizer\": 3, \"was\": {"), "spec.train.optimizer");
  ExpectRejected(Changed("\"peers\": [", "\"peers\": 3, \"were\": ["), "peers");
  ExpectRejected(Changed("\"cores\": [\n  0", "\"cores\": [\n  \"0\""), "cores");
}

TEST(RankConfigTest, LayoutsThatMakeNoSenseAreRejected) {
  for (const ParallelLayout& layout :
       {ParallelLayout{0, 2, 1}, ParallelLayout{2, -1, 1}, ParallelLayout{65536, 65536, 65536}, ParallelLayout{1, 65536, 2},
        ParallelLayout{.virtual_stages = 0}, ParallelLayout{.virtual_stages = 257}}) {
    RankConfig config = SomeConfig();
    config.context.layout = layout;
    ExpectRejected(RankConfigText(config), "context.layout");
  }
  RankConfig config = SomeConfig();
  config.context.layout.rank_order = RankOrder::kAuto;
  ExpectRejected(RankConfigText(config), "context.layout.rank_order");
  for (const int32_t ep : {0, 3}) {
    config = SomeConfig();
    config.context.layout.ep = ep;
    ExpectRejected(RankConfigText(config), "context.layout.ep");
  }
  config.context.layout.ep = 2;
  EXPECT_EQ(ParseRankConfig(RankConfigText(config)).value(), config);
  config = SomeConfig();
  config.peers.pop_back();
  ExpectRejected(RankConfigText(config), "peers");
}

TEST(RankConfigTest, LatentAttentionMustFitTheModel) {
  const auto config_with = [](const std::function<void(ModelSpec&)>& change) {
    RankConfig config = SomeConfig();
    ModelSpec& model = config.context.model;
    model.family = ModelFamily::kLlama;
    model.attention = AttentionKernel::kFused;
    model.kv_heads = 0;
    model.qk_norm = model.qk_norm_whole = model.qkv_bias = false;
    model.rotary = {.dims = 4};
    model.latent = {.query_rank = 6, .kv_rank = 5, .value_dim = 3};
    change(model);
    return RankConfigText(config);
  };
  const std::string good = config_with([](ModelSpec&) {});
  EXPECT_EQ(ParseRankConfig(good).value().context.model.latent, (LatentSpec{.query_rank = 6, .kv_rank = 5, .value_dim = 3}));
  ExpectRejected(config_with([](ModelSpec& m) { m.latent.kv_rank = 0; }), "context.model.latent");
  ExpectRejected(config_with([](ModelSpec& m) { m.latent.query_rank = -1; }), "context.model.latent");
  ExpectRejected(config_with([](ModelSpec& m) { m.latent.value_dim = 0; }), "context.model.latent");
  ExpectRejected(config_with([](ModelSpec& m) { m.family = ModelFamily::kGpt; }), "context.model.latent");
  ExpectRejected(config_with([](ModelSpec& m) { m.attention = AttentionKernel::kUnfused; }), "context.model.latent");
  ExpectRejected(config_with([](ModelSpec& m) { m.kv_heads = 1; }), "context.model.latent");
  ExpectRejected(config_with([](ModelSpec& m) { m.qk_norm = true; }), "context.model.latent");
  ExpectRejected(config_with([](ModelSpec& m) { m.rotary.dims = 0; }), "context.model.rotary.dims");
  ExpectRejected(config_with([](ModelSpec& m) { m.rotary.dims = m.head_size() + 2; }), "context.model.rotary.dims");
}

TEST(RankConfigTest, ExpertsMustFitTheLayout) {
  const auto expect_rejected = [](const std::function<void(StageContext&)>& change, const char* field, const char* why) {
    RankConfig config = SomeConfig();
    config.context.layout.ep = 2;
    change(config.context);
    ExpectRejected(RankConfigText(config), field);
    EXPECT_THAT(Message(ParseRankConfig(RankConfigText(config)).status()), HasSubstr(why));
  };
  expect_rejected([](StageContext& c) { c.model.moe = {}; }, "context.layout.ep", "is 2; a model without experts has 1");
  expect_rejected([](StageContext& c) { c.model.moe.experts = 9; }, "context.layout.ep",
                  "is 2; it must divide the 9 experts of the model");
  expect_rejected([](StageContext& c) { c.model.moe.top_k = 9; }, "context.model.moe.top_k", "a token has 1 to 8 experts");
  expect_rejected([](StageContext& c) { c.model.moe.dense_layers = c.model.layers; }, "context.model.moe.dense_layers",
                  "so that a layer has experts");
  expect_rejected([](StageContext& c) { c.model.moe.shared_ffn = -1; }, "context.model.moe.shared_ffn", "is -1; 0 for none");
  expect_rejected([](StageContext& c) { c.model.moe.shared_gate = true; }, "context.model.moe.shared_ffn", "is 0; 0 for none");
  expect_rejected([](StageContext& c) { c.model.moe.router_bias = true; }, "context.model.moe.scores", "does not go with");
  expect_rejected([](StageContext& c) { c.model.moe.weight_scale = 0; }, "context.model.moe.scores", "does not go with");
  expect_rejected([](StageContext& c) { c.model.moe.dense_layers = -1; }, "context.model.moe.dense_layers", "is -1; from 0 to");
  expect_rejected([](StageContext& c) { c.model.moe.experts = 5000; }, "context.model.moe.experts", "is 5000; at most 4096");
  expect_rejected([](StageContext& c) { c.layout.schedule = ScheduleKind::kChimera; }, "context.layout.schedule",
                  "is 'chimera'; the pipeline of a model with experts has one direction");
  RankConfig config = SomeConfig();
  config.context.model.moe = {.experts = -1};
  ExpectRejected(RankConfigText(config), "context.model.moe.experts");
}

TEST(RankConfigTest, MissingAndUnknownFieldsAreNamed) {
  ExpectRejected(Changed("\"job\":", "\"jobs\":"), "job");
  ExpectRejected(Changed("\"beta1\":", "\"beta\":"), "spec.train.optimizer.beta1");
  ExpectRejected(Changed("\"host\":", "\"address\":"), "peers[0].host");
  ExpectRejected(Changed("\"threads\": 2", "\"threads\": 2, \"extra\": true"), "extra");
  ExpectRejected(Changed("\"beta1\":", "\"beta0\": 1, \"beta1\":"), "spec.train.optimizer.beta0");
}

TEST(RankConfigTest, TextThatIsNotJsonSaysSo) {
  for (const std::string text : {"", "{", "nonsense", "{\"job\": }", "\xff\xfe"}) {
    const absl::Status status = ParseRankConfig(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr("rank configuration is not JSON")) << text;
  }
  EXPECT_THAT(Message(ParseRankConfig("[1]").status()), HasSubstr("expected an object, found [1]"));
}

TEST(RankConfigTest, NoTruncationIsAccepted) {
  const std::string text = RankConfigText(SomeConfig());
  // The last two characters are the last brace and its newline.
  for (size_t length = 0; length + 2 < text.size(); length += 7) {
    EXPECT_FALSE(ParseRankConfig(text.substr(0, length)).ok()) << length;
  }
}

StepReport SomeStep() {
  StepReport step;
  step.step = 41;
  step.loss = 5.123456789012345;
  step.gradient_norm = 1e-300;
  step.lr = 3e-4;
  step.tokens = int64_t{1} << 45;
  step.duration = Nanos(1);
  step.forward = Nanos(2);
  step.backward = Nanos(3);
  step.weight = Nanos(4);
  step.recompute_hidden = Nanos(5);
  step.recompute_exposed = Nanos(6);
  step.tensor_wait = Nanos(7);
  step.stall = Nanos(8);
  step.data_parallel_wait = Nanos(9);
  step.norm_wait = Nanos(10);
  step.optimizer = Nanos(11);
  step.data_wait = Nanos(18);
  step.checkpoint = Nanos(12);
  step.arena_peak = Bytes(13);
  step.bytes_sent = 14;
  step.communication_cpu = Nanos(15);
  step.core_wait = Nanos(19);
  step.resident = Bytes(20);
  step.links = {{.peer = 1, .bytes = 16, .busy = Nanos(17)}, {.peer = 5}};
  step.experts = {.rows_routed = int64_t{1} << 40,
                  .rows_dropped = 30,
                  .skew = 1.375,
                  .fullest_rank = 6,
                  .rows = 1000,
                  .fullest_dispatch = 2.5,
                  .fullest_expert = 3.25,
                  .median_expert = 0.75,
                  .emptiest_expert = 0.125};
  return step;
}

TEST(RankReportTest, EveryAlternativeComesBackOnOneLine) {
  const std::vector<RankReport> reports = {
      RankReady{100, Bytes(1 << 20), Bytes(int64_t{3} << 32), "cpu: OpenBLAS 0.3.21 Zen"},
      RankReady{100, Bytes(1 << 20), Bytes(int64_t{3} << 32), "cpu", true},
      CopiesNotice{"a node has no room for copies"},
      SomeStep(),
      StepSkipped{41, "the loss is nan"},
      EvaluationReport{42, 5.25, int64_t{1} << 45, Nanos(17)},
      TraceReport{9, 8200, 8192, {0, int64_t{1} << 45, 3, 4, 5}},
      CheckpointReport{50, "/ckpt/step-00000050", Bytes(12345)},
      CheckpointFailure{50, "write: No space left on device"},
      RankDone{1000},
      RankYielded{500},
      RankFailure{"rank 3 is lost:\n\tsecond line \x01", true},
      RankFailure{"no room", false, FaultCause::kMemory},
      RankFailure{"the link to rank 3 is slow", false, FaultCause::kLink, {3, 5}},
      NodeCheckReport{Nanos(200), 4, 6, 900},
  };
  for (const RankReport& report : reports) {
    const std::string line = RankReportLine(report);
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    const absl::StatusOr<RankReport> parsed = ParseRankReport(line);
    ASSERT_TRUE(parsed.ok()) << line << ": " << parsed.status();
    EXPECT_EQ(*parsed, report) << line;
  }
}

// An upgraded worker daemon reads the reports of ranks that an earlier release started.
TEST(RankReportTest, StepsOfAnEarlierReleaseAreRead) {
  StepReport step = SomeStep();
  step.links.clear();
  step.experts = {};
  step.data_wait = step.core_wait = Nanos(0);
  step.resident = Bytes(0);
  std::string line = RankReportLine(step);
  const size_t experts = line.find(",\"experts\":{");
  ASSERT_NE(experts, std::string::npos);
  line.erase(experts, line.find('}', experts) + 1 - experts);
  for (const std::string later : {"\"data_wait_ns\":0,", "\"core_wait_ns\":0,", "\"resident_bytes\":0,", ",\"links\":[]"}) {
    const size_t at = line.find(later);
    ASSERT_NE(at, std::string::npos) << later << " in " << line;
    line.erase(at, later.size());
  }
  const absl::StatusOr<RankReport> parsed = ParseRankReport(line);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, RankReport(step));
}

TEST(RankReportTest, ALossThatIsNotFiniteComesBack) {
  StepReport step = SomeStep();
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.gradient_norm = std::numeric_limits<double>::infinity();
  step.lr = -std::numeric_limits<double>::infinity();
  const absl::StatusOr<RankReport> parsed = ParseRankReport(RankReportLine(step));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const StepReport& read = std::get<StepReport>(*parsed);
  EXPECT_TRUE(std::isnan(read.loss));
  EXPECT_EQ(read.gradient_norm, step.gradient_norm);
  EXPECT_EQ(read.lr, step.lr);
}

TEST(RankReportTest, AReasonThatIsNotUtf8StillGetsThrough) {
  const absl::StatusOr<RankReport> parsed = ParseRankReport(RankReportLine(RankFailure{"file \xff\xfe", false}));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(std::get<RankFailure>(*parsed).reason, HasSubstr("file "));
}

TEST(RankReportTest, MalformedLinesNameTheField) {
  const auto message = [](const std::string& line) { return Message(ParseRankReport(line).status()); };
  EXPECT_THAT(message("{}"), HasSubstr("rank report: field 'type': is missing"));
  EXPECT_THAT(message(R"({"type": "party"})"), HasSubstr("field 'type': 'party' is no report"));
  EXPECT_THAT(message(R"({"type": "done"})"), HasSubstr("field 'steps': is missing"));
  EXPECT_THAT(message(R"({"type": "done", "steps": 1e3})"), HasSubstr("field 'steps': expected an integer"));
  EXPECT_THAT(message(R"({"type": "done", "steps": 9223372036854775808})"), HasSubstr("field 'steps'"));
  EXPECT_THAT(message(R"({"type": "done", "steps": 1, "more": 2})"), HasSubstr("field 'more': is not a known field"));
  EXPECT_THAT(message(R"({"type": "failure", "reason": "x", "peer_lost": 1})"),
              HasSubstr("field 'peer_lost': expected true or false, found 1"));
  EXPECT_THAT(message("step 3 done"), HasSubstr("rank report is not JSON"));
  EXPECT_THAT(message(""), HasSubstr("rank report is not JSON"));
}

}  // namespace
}  // namespace lynx
