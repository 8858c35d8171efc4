#include "proto/convert_worker.h"
#include "proto/convert_report.h"

#include <cmath>
#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/problem/model_families.h"
#include "proto/convert.h"
#include "tests/proto/random_values.h"

namespace lynx {
namespace {

using ::testing::StartsWith;

StepReport SomeStep() {
  StepReport step{.step = 7,
                  .loss = 2.5,
                  .gradient_norm = 0.5,
                  .lr = 1e-3,
                  .tokens = 4096,
                  .duration = Nanos(1000),
                  .forward = Nanos(100),
                  .backward = Nanos(200),
                  .weight = Nanos(150),
                  .recompute_hidden = Nanos(10),
                  .recompute_exposed = Nanos(20),
                  .tensor_wait = Nanos(30),
                  .stall = Nanos(40),
                  .data_parallel_wait = Nanos(50),
                  .norm_wait = Nanos(60),
                  .optimizer = Nanos(70),
                  .data_wait = Nanos(75),
                  .checkpoint = Nanos(80),
                  .arena_peak = Bytes(1 << 20),
                  .bytes_sent = 12345,
                  .communication_cpu = Nanos(90),
                  .core_wait = Nanos(95),
                  .copied_steps = 6,
                  .copies_skipped = 2,
                  .resident = Bytes(1 << 24),
                  .links = {{.peer = 0, .bytes = 10, .busy = Nanos(20)}, {.peer = 3, .bytes = 0, .busy = Nanos(0)}},
                  .experts = {.rows_routed = 4096,
                              .rows_dropped = 30,
                              .rows_in_rounds = 25,
                              .rounds = 9,
                              .most_rounds = 4,
                              .skew = 1.375,
                              .fullest_rank = 6,
                              .rows = 1000,
                              .fullest_dispatch = 2.5,
                              .fullest_expert = 3.25,
                              .median_expert = 0.75,
                              .emptiest_expert = 0.125}};
  return step;
}

TEST(ConvertWorkerTest, ReportsComeBackTheSame) {
  const RankReport reports[] = {
      RankReady{3, Bytes(100), Bytes(200), "cpu"},
      RankReady{3, Bytes(100), Bytes(200), "cpu", true},
      CopiesNotice{"no room"},
      SomeStep(),
      StepSkipped{7, "the loss is nan"},
      EvaluationReport{8, 2.25, 65536, Nanos(12)},
      TraceReport{9, 3, 1, {1, 2, 3, 4, 5, 0, 0, 0, 0, 0}},
      CheckpointReport{10, "/data/checkpoints/step-10", Bytes(1 << 30)},
      CheckpointFailure{20, "No space left on device"},
      RankDone{100},
      RankYielded{50},
      RankFailure{"cannot read /data/text", false, FaultCause::kData},
      RankFailure{"rank 1 is gone", true},
      RankFailure{"the link to rank 3 is slow", false, FaultCause::kLink, {3, 5}},
      NodeCheckReport{Nanos(200), 4, 6, 900},
  };
  for (const RankReport& report : reports) {
    v1::RankReport message;
    SetReport(report, message);
    const absl::StatusOr<RankReport> back = ReportFromProto(message);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(*back == report) << message.ShortDebugString();
  }
}

TEST(ConvertWorkerTest, DivergedStepsPass) {
  StepReport step = SomeStep();
  step.loss = std::nan("");
  step.gradient_norm = INFINITY;
  v1::RankReport message;
  SetReport(step, message);
  const absl::StatusOr<RankReport> back = ReportFromProto(message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(std::isnan(std::get<StepReport>(*back).loss));
}

// Adds a trace of the second of two actions to `report`, and returns the trace.
v1::TraceReport* SetTrace(v1::RankReport& report) {
  v1::TraceReport& trace = *report.mutable_trace();
  trace.set_actions(2);
  trace.set_first(1);
  trace.mutable_times()->Resize(5, 0);
  return &trace;
}

TEST(ConvertWorkerTest, BadReportsNameTheField) {
  using R = v1::RankReport;
  struct Case {
    std::function<void(R&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](R&) {}, "report is empty or of an unknown kind"},
      {[](R& r) { r.mutable_ready()->set_next_step(-1); }, "report.ready.next_step is -1"},
      {[](R& r) { r.mutable_ready()->set_arena_bytes(-1); }, "report.ready.arena_bytes is -1"},
      {[](R& r) { r.mutable_step()->set_step(-1); }, "report.step.step is -1"},
      {[](R& r) { r.mutable_step()->set_lr(NAN); }, "report.step.lr is nan"},
      {[](R& r) { r.mutable_step()->set_stall_ns(-4); }, "report.step.stall_ns is -4"},
      {[](R& r) { r.mutable_step()->mutable_experts()->set_rows_routed(-1); }, "report.step.experts.rows_routed is -1"},
      {[](R& r) { r.mutable_step()->mutable_experts()->set_skew(INFINITY); }, "report.step.experts.skew is inf"},
      {[](R& r) { r.mutable_step()->mutable_experts()->set_median_expert(-0.5); },
       "report.step.experts.median_expert is -0.5: must be 0 or more"},
      {[](R& r) { r.mutable_step()->mutable_experts()->set_rows_dropped(3); },
       "report.step.experts.rows_dropped is 3: must be at most the rows routed, 0"},
      {[](R& r) { r.mutable_step()->mutable_experts()->set_rows_in_rounds(4); },
       "report.step.experts.rows_in_rounds is 4: must be at most the rows routed, 0"},
      {[](R& r) { r.mutable_step()->mutable_experts()->set_rounds(-1); }, "report.step.experts.rounds is -1"},
      {[](R& r) { r.mutable_step()->set_communication_cpu_ns(int64_t{1} << 62); },
       "report.step.communication_cpu_ns is 4611686018427387904"},
      {[](R& r) { r.mutable_step()->set_arena_peak_bytes(-1); }, "report.step.arena_peak_bytes is -1"},
      {[](R& r) { r.mutable_step()->add_links()->set_peer(-1); }, "report.step.links[0].peer is -1"},
      {[](R& r) { r.mutable_step()->add_links()->set_bytes(-1); }, "report.step.links[0].bytes is -1"},
      {[](R& r) { r.mutable_step()->add_links()->set_busy_ns(-1); }, "report.step.links[0].busy_ns is -1"},
      {[](R& r) { r.mutable_step()->add_links()->set_peer(4), r.mutable_step()->add_links()->set_peer(4); },
       "report.step.links[1].peer is 4: must be above that before it, 4"},
      {[](R& r) {
         for (int i = 0; i < 65; ++i) r.mutable_step()->add_links()->set_peer(i);
       },
       "report.step.links is 65 entries long"},
      {[](R& r) { r.mutable_skipped()->set_step(-1); }, "report.skipped.step is -1"},
      {[](R& r) { r.mutable_evaluation()->set_step(-1); }, "report.evaluation.step is -1"},
      {[](R& r) { r.mutable_evaluation()->set_tokens(-1); }, "report.evaluation.tokens is -1"},
      {[](R& r) { r.mutable_evaluation()->set_duration_ns(-1); }, "report.evaluation.duration_ns is -1"},
      {[](R& r) { SetTrace(r)->set_step(-1); }, "report.trace.step is -1"},
      {[](R& r) { SetTrace(r)->set_actions(0); }, "report.trace.actions is 0"},
      {[](R& r) { SetTrace(r)->set_first(2); }, "report.trace.first is 2: must be from 0 to 1"},
      {[](R& r) { SetTrace(r)->clear_times(); }, "report.trace.times is 0 entries long"},
      {[](R& r) { SetTrace(r)->mutable_times()->Resize(5 * 8193, 0); }, "report.trace.times is 40965 entries long"},
      {[](R& r) { SetTrace(r)->add_times(0); }, "report.trace.times is 6 entries: must have 5 for each action"},
      {[](R& r) { SetTrace(r)->set_times(3, -1); }, "report.trace.times[3] is -1"},
      {[](R& r) { r.mutable_checkpoint()->set_path("relative"); }, "report.checkpoint.path is \"relative\""},
      {[](R& r) { r.mutable_checkpoint_failure()->set_step(-1); }, "report.checkpoint_failure.step is -1"},
      {[](R& r) { r.mutable_done()->set_steps(-1); }, "report.done.steps is -1"},
      {[](R& r) { r.mutable_failure()->add_peers(-1); }, "report.failure.peers[0] is -1"},
      {[](R& r) {
         for (int i = 0; i < 4097; ++i) r.mutable_failure()->add_peers(i);
       },
       "report.failure.peers is 4097 entries long"},
      {[](R& r) { r.mutable_node_check()->set_duration_ns(-1); }, "report.node_check.duration_ns is -1"},
      {[](R& r) { r.mutable_node_check()->set_devices(-1); }, "report.node_check.devices is -1"},
      {[](R& r) { r.mutable_node_check()->set_links(-1); }, "report.node_check.links is -1"},
      {[](R& r) { r.mutable_node_check()->set_slowest_bytes_per_second(-1); },
       "report.node_check.slowest_bytes_per_second is -1"},
      {[](R& r) { r.mutable_failure()->set_reason(std::string(1 << 17, 'r')); },
       "report.failure.reason is 131072 characters long"},
  };
  for (const Case& c : cases) {
    R message;
    c.change(message);
    const absl::Status status = ReportFromProto(message).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), StartsWith(c.message));
  }
}

v1::RankAssignment GoodAssignment() {
  JobSpec spec;
  spec.name = "gpt-bytes";
  spec.model = {.layers = 4, .hidden = 64, .heads = 4, .seq = 32};
  spec.data.path = "/data/text";
  spec.train.steps = 10;
  spec.train.global_batch = 16;
  spec.resources.max_ranks = 4;
  Normalize(spec);
  v1::RankAssignment m;
  m.set_job_id("job-1");
  m.set_generation(2);
  m.set_rank(3);
  m.set_device(1);
  m.set_device_kind(v1::DEVICE_KIND_CUDA);
  m.set_device_uuid("GPU-1");
  m.add_cores(2);
  *m.mutable_spec() = ToProto(spec);
  *m.mutable_layout() = ToProto(ParallelLayout{2, 2, 1});
  m.set_micro_batch(4);
  m.set_microbatches(4);
  m.add_slices()->set_stage(1);
  m.mutable_slices(0)->set_first_layer(2);
  m.mutable_slices(0)->set_end_layer(4);
  m.set_program("1F0:2.attn\n1AR+0:2.attn\n1AR-0:2.attn\n1OPT\n");
  m.set_arena_bytes(1 << 20);
  m.set_plan_digest(std::string(64, 'a'));
  m.set_connection_secret(std::string(64, 'b'));
  for (int i = 0; i < 4; ++i) {
    m.add_peers()->set_host(i < 2 ? "127.0.0.1" : "::1");
    m.mutable_peers(i)->set_port(4000 + i);
  }
  m.set_resume_step(-1);
  m.set_checkpoint_directory("/checkpoints");
  return m;
}

TEST(ConvertWorkerTest, AssignmentBecomesConfig) {
  const absl::StatusOr<RankConfig> config = RankConfigFromProto(GoodAssignment());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->job, JobId("job-1"));
  EXPECT_EQ(config->generation, Generation(2));
  EXPECT_EQ(config->rank, 3);
  EXPECT_EQ(config->spec.train.global_batch, 16);
  EXPECT_EQ(config->context.pipeline_rank, 1);
  EXPECT_EQ(config->context.only_slice().first_layer, 2);
  EXPECT_EQ(config->context.only_slice().end_layer, 4);
  EXPECT_EQ(config->context.layout, (ParallelLayout{2, 2, 1}));
  EXPECT_EQ(ProgramText(config->program), GoodAssignment().program());
  EXPECT_EQ(config->arena, Bytes(1 << 20));
  EXPECT_EQ(config->cores, std::vector<int32_t>{2});
  EXPECT_EQ(config->device, (RankDevice{DeviceKind::kCuda, 1, "GPU-1"}));
  ASSERT_EQ(config->peers.size(), 4u);
  EXPECT_EQ(config->peers[3], (PeerAddress{"::1", 4003}));
  EXPECT_EQ(config->resume_step, -1);
  EXPECT_EQ(config->checkpoint_directory, "/checkpoints");

  EXPECT_FALSE(config->check);

  v1::RankAssignment checked = GoodAssignment();
  checked.set_check(true);
  EXPECT_TRUE(RankConfigFromProto(checked).value().check);
  v1::RankAssignment waiting = GoodAssignment();
  waiting.clear_peers();
  EXPECT_TRUE(RankConfigFromProto(waiting).value().peers.empty());
}

// Checkpoints cannot contain parts that are left out of training. So the model that a rank trains has no such parts.
TEST(ConvertWorkerTest, RanksTrainTheModelWithoutPartsThatAreLeftOut) {
  v1::RankAssignment message = GoodAssignment();
  message.mutable_spec()->mutable_model()->set_plan_only(kLeftOutFeatures);
  const absl::StatusOr<RankConfig> config = RankConfigFromProto(message);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->spec.model.plan_only, kLeftOutFeatures);
  EXPECT_EQ(config->context.model.plan_only, PlanOnlyFeatures{0});
}

TEST(ConvertWorkerTest, AssignmentsComeBackTheSame) {
  v1::RankAssignment message = GoodAssignment();
  message.set_check(true);
  message.set_program(ProgramText(ParseProgram(message.program()).value()));
  EXPECT_EQ(ToProto(RankConfigFromProto(message).value()).SerializeAsString(), message.SerializeAsString());
}

TEST(ConvertWorkerTest, BadAssignmentsNameTheField) {
  using A = v1::RankAssignment;
  struct Case {
    std::function<void(A&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](A& a) { a.set_job_id("../etc"); }, "assignment.job_id is \"../etc\""},
      {[](A& a) { a.set_generation(0); }, "assignment.generation is 0"},
      {[](A& a) { a.mutable_spec()->mutable_train()->set_steps(0); }, "assignment.spec: train.steps is 0"},
      {[](A& a) { a.mutable_layout()->set_dp(0); }, "assignment.layout.dp is 0"},
      {[](A& a) { a.set_rank(4); }, "assignment.rank is 4: must be from 0 to 3"},
      {[](A& a) { a.set_micro_batch(17); },
       "assignment.micro_batch is 17: a global batch of 16 gives dp 1 replicas fewer samples"},
      {[](A& a) { a.set_microbatches(5); },
       "assignment.microbatches is 5: must be 4, which a global batch of 16 needs with dp "},
      {[](A& a) { a.set_micro_batch(-1); }, "assignment.micro_batch is -1"},
      {[](A& a) { a.add_slices(); }, "assignment.slices is 2 entries long"},
      {[](A& a) { a.mutable_slices(0)->set_stage(0); }, "assignment.slices[0].stage is 0"},
      {[](A& a) { a.mutable_slices(0)->set_first_layer(5); }, "assignment.slices[0].first_layer is 5"},
      {[](A& a) { a.mutable_slices(0)->set_end_layer(5); }, "assignment.slices[0].end_layer is 5"},
      {[](A& a) { a.set_device(64); }, "assignment.device is 64"},
      {[](A& a) { a.clear_device_kind(); }, "assignment.device_kind is any: must be cpu (1) or cuda (2)"},
      {[](A& a) { a.set_device_kind(static_cast<v1::DeviceKind>(7)); }, "assignment.device_kind is 7"},
      {[](A& a) { a.clear_device_uuid(); }, "assignment.device_uuid is 0 characters for a GPU long"},
      {[](A& a) { a.set_device_kind(v1::DEVICE_KIND_CPU); }, "assignment.device_uuid is 5 characters for a CPU long"},
      {[](A& a) { a.add_cores(-1); }, "assignment.cores[1] is -1"},
      {[](A& a) { a.set_program("1F0:2.attn nonsense"); }, "assignment.program: "},
      {[](A& a) { a.set_program("0F0:0.attn"); }, "assignment.program is of another stage at 0F0:0.attn"},
      {[](A& a) { a.set_arena_bytes(-1); }, "assignment.arena_bytes is -1"},
      {[](A& a) { a.set_plan_digest("abc"); }, "assignment.plan_digest is \"abc\""},
      {[](A& a) { a.clear_connection_secret(); }, "assignment.connection_secret is not 64 hexadecimal digits (it has 0"},
      {[](A& a) { a.set_connection_secret(std::string(64, 'x')); },
       "assignment.connection_secret is not 64 hexadecimal digits (it has 64 characters); server and nodes must be of the same "
       "release"},
      {[](A& a) { a.mutable_peers()->RemoveLast(); }, "assignment.peers is 3 entries long"},
      {[](A& a) { a.mutable_peers(1)->set_host("localhost"); }, "assignment.peers[1].host is \"localhost\""},
      {[](A& a) { a.mutable_peers(2)->set_port(65536); }, "assignment.peers[2].port is 65536"},
      {[](A& a) { a.set_resume_step(-2); }, "assignment.resume_step is -2"},
      {[](A& a) { a.set_checkpoint_directory("c"); }, "assignment.checkpoint_directory is \"c\""},
  };
  for (const Case& c : cases) {
    A message = GoodAssignment();
    c.change(message);
    const absl::Status status = RankConfigFromProto(message).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), StartsWith(c.message));
  }
}

}  // namespace
}  // namespace lynx
