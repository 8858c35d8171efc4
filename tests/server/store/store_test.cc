#include "server/store/store.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/server/store/engines.h"
#include "tests/server/store/full_disk.h"
#include "tests/server/store/stored_jobs.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;

class StoreTest : public StoreOnEngine {};
INSTANTIATE_ON_ENGINES(StoreTest);

// Tests what only a database in a file can do.
class StoreFileTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> Open() {
    absl::StatusOr<std::unique_ptr<Store>> store = OpenStoreFile(path_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  const StorePlace place_{EngineKind::kSqlite};
  const std::string directory_ = place_.directory(), path_ = place_.path();
};

TEST_P(StoreTest, EverythingComesBack) {
  JobRecord job = MakeJob(1);
  const std::shared_ptr<const Plan> plan = MakeSmallPlan(*job.spec);
  {
    const std::unique_ptr<Store> store = Open();
    ASSERT_TRUE(store->Commit({InsertJob{job}}).ok());
    job.state = JobState::kRunning;
    job.reason = "all ranks run";
    job.started = Nanos(5);
    job.events = 2;
    job.generation = Generation(3);
    job.restarts = 2;
    job.restart_charge = 3;
    job.best_steps = 9;
    job.base_steps = 8;
    job.resume_step = 6;
    for (int32_t r = 0; r < plan->layout.ranks(); ++r) {
      job.ranks.push_back({.where = {NodeId("n0"), r},
                           .device_uuid = "GPU-" + std::to_string(r),
                           .host = "10.0.0.1",
                           .port = 4000 + r,
                           .acknowledged = 17,
                           .finished = r == 0});
    }
    job.stop = StopKind::kRestart;
    job.stop_reason = "rank 1 was killed";
    job.cancel_requested = true;
    job.checkpoint_path = "/c/step-6";
    job.checkpoint_step = 6;
    job.progress = {.steps_done = 9,
                    .loss = std::nan(""),
                    .first_loss = 5,
                    .gradient_norm = INFINITY,
                    .lr = 0.1,
                    .tokens_per_second = 12,
                    .step = Nanos(7),
                    .first_step_time = Nanos(8),
                    .validation_loss = 4.5,
                    .validation_step = 6,
                    .expert_skew = 1.5,
                    .expert_dropped = 0.25,
                    .expert_in_rounds = 0.125,
                    .expert_rounds = 11};
    job.measured = {
        {.steps = 4, .step = Nanos(1), .forward = Nanos(2), .stall = Nanos(3), .arena_peak = Bytes(4), .states = Bytes(5)}};
    job.plan_digest = plan->digest;
    job.device_kind = DeviceKind::kCuda;
    job.check_due = true;
    job.memory_limits = {{.device_model = "H200", .limit = Bytes(int64_t{90} << 30), .times = 2},
                         {.device_model = "A100", .limit = Bytes(1), .times = 1}};
    const JobEvent first{.sequence = 1, .time = Nanos(1), .state = JobState::kQueued, .kind = "submitted"};
    const JobEvent second{
        .sequence = 2, .time = Nanos(2), .state = JobState::kRunning, .kind = "running", .reason = "all ranks run"};
    ASSERT_TRUE(store
                    ->Commit({InsertPlan{job.id, plan, nullptr}, InsertEvent{job.id, first}, InsertEvent{job.id, second},
                              InsertCheckpoint{job.id, Generation(3), 6, "/c/step-6", Bytes(9), Nanos(3)}, UpdateJob{job}})
                    .ok());
    EXPECT_EQ(store->LoadEvents(job.id, 0, 10).value(), (std::vector<JobEvent>{first, second}));
    EXPECT_EQ(store->LoadEvents(job.id, 1, 10).value(), (std::vector<JobEvent>{second}));
    EXPECT_EQ(store->LoadEvents(job.id, 0, 1).value(), (std::vector<JobEvent>{second})) << "the newest";
    EXPECT_EQ(store->LoadEvents(job.id, 0, 10, second.sequence).value(), (std::vector<JobEvent>{first}));
  }
  const std::unique_ptr<Store> store = Open();
  const std::vector<Store::StoredJob> jobs = store->LoadJobs().value();
  ASSERT_EQ(jobs.size(), 1u);
  const JobRecord& back = jobs[0].record;
  EXPECT_EQ(back.id, job.id);
  EXPECT_EQ(back.submission, 1);
  EXPECT_EQ(back.idempotency_key, "key1");
  EXPECT_EQ(*back.spec, *job.spec);
  EXPECT_EQ(back.spec_digest, job.spec_digest);
  EXPECT_EQ(back.state, JobState::kRunning);
  EXPECT_EQ(back.reason, job.reason);
  EXPECT_EQ(back.submitted, job.submitted);
  EXPECT_EQ(back.started, job.started);
  EXPECT_EQ(back.ended, Nanos(0));
  EXPECT_EQ(back.events, 2);
  EXPECT_EQ(back.generation, Generation(3));
  EXPECT_EQ(back.restarts, 2);
  EXPECT_EQ(back.device_kind, DeviceKind::kCuda);
  EXPECT_EQ(back.memory_limits, job.memory_limits);
  EXPECT_TRUE(back.check_due);
  EXPECT_EQ(back.restart_charge, 3);
  EXPECT_EQ(back.best_steps, 9);
  EXPECT_EQ(back.base_steps, 8);
  EXPECT_EQ(back.resume_step, 6);
  EXPECT_EQ(back.ranks, job.ranks);
  EXPECT_EQ(back.stop, StopKind::kRestart);
  EXPECT_EQ(back.stop_reason, job.stop_reason);
  EXPECT_TRUE(back.cancel_requested);
  EXPECT_EQ(back.checkpoint_path, "/c/step-6");
  EXPECT_EQ(back.checkpoint_step, 6);
  EXPECT_TRUE(std::isnan(back.progress.loss));
  EXPECT_TRUE(std::isinf(back.progress.gradient_norm));
  EXPECT_EQ(back.progress.steps_done, 9);
  EXPECT_EQ(back.progress.validation_loss, 4.5);
  EXPECT_EQ(back.progress.validation_step, 6);
  EXPECT_EQ(back.progress.expert_skew, 1.5);
  EXPECT_EQ(back.progress.expert_dropped, 0.25);
  EXPECT_EQ(back.progress.expert_in_rounds, 0.125);
  EXPECT_EQ(back.progress.expert_rounds, 11);
  EXPECT_EQ(back.measured, job.measured);
  ASSERT_NE(jobs[0].plan, nullptr);
  EXPECT_EQ(PlanText(*jobs[0].plan), PlanText(*plan));
}

TEST_P(StoreTest, ABatchIsAllOrNothing) {
  const std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->Commit({InsertJob{MakeJob(1)}}).ok());
  JobRecord repeated = MakeJob(3);
  repeated.idempotency_key = "key1";
  EXPECT_FALSE(store->Commit({InsertJob{MakeJob(2)}, InsertJob{repeated}}).ok());
  EXPECT_EQ(store->LoadJobs().value().size(), 1u);
  EXPECT_TRUE(store->Commit({InsertJob{MakeJob(2)}}).ok()) << "the failed batch left nothing behind";
}

// The store keeps prepared statements. If one use of a statement fails, this must not affect its next use.
TEST_P(StoreTest, WhatFailsLeavesNothingForTheNext) {
  const std::unique_ptr<Store> store = Open();
  JobRecord long_named = MakeJob(1);
  long_named.reason = std::string(5000, 'x');
  long_named.ranks.push_back({.where = {NodeId("n0"), 0}, .device_uuid = "GPU-0", .host = "10.0.0.1", .port = 4000});
  ASSERT_TRUE(store->Commit({InsertJob{long_named}}).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(store->Commit({InsertJob{MakeJob(2)}, InsertJob{long_named}}).ok()) << "it is there already";
  }
  ASSERT_TRUE(store->Commit({InsertJob{MakeJob(2)}}).ok());
  const absl::StatusOr<std::vector<Store::StoredJob>> jobs = store->LoadJobs();
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ((*jobs)[0].record.ranks, long_named.ranks);
  EXPECT_EQ((*jobs)[1].record.reason, MakeJob(2).reason);
  EXPECT_TRUE((*jobs)[1].record.ranks.empty());
}

TEST_P(StoreTest, ADeletedJobLeavesNothing) {
  const std::unique_ptr<Store> store = Open();
  JobRecord job = MakeJob(1);
  job.ranks = {{.where = {NodeId("n0"), 0}}};
  ASSERT_TRUE(store
                  ->Commit({InsertJob{job}, InsertJob{MakeJob(2)}, UpdateJob{job},
                            InsertPlan{job.id, MakeSmallPlan(*job.spec), nullptr},
                            InsertEvent{job.id, {.sequence = 1, .kind = "submitted"}},
                            InsertCheckpoint{job.id, Generation(1), 6, "/c/step-6", Bytes(9), Nanos(3)}})
                  .ok());
  ASSERT_TRUE(store->Commit({DeleteJob{job.id}}).ok());
  const std::vector<Store::StoredJob> left = store->LoadJobs().value();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].record.id, MakeJob(2).id);
  EXPECT_EQ(store->LoadPlan(job.id).value(), nullptr);
  EXPECT_TRUE(store->LoadEvents(job.id, 0, 10).value().empty());
  EXPECT_FALSE(store->LoadCheckpoint(job.id).value().has_value());
  // The id, the key and the number of the deleted job are free again. No part of this job may appear in the new job.
  ASSERT_TRUE(store->Commit({InsertJob{MakeJob(1)}}).ok());
  EXPECT_TRUE(store->LoadJobs().value()[0].record.ranks.empty());
}

TEST_P(StoreTest, TheNewestCheckpointIsThatOfTheNewestGeneration) {
  const std::unique_ptr<Store> store = Open();
  const JobId job("job1");
  EXPECT_FALSE(store->LoadCheckpoint(job).value().has_value());
  // The second generation began with an earlier checkpoint, because the checkpoint of step 20 was damaged.
  ASSERT_TRUE(store
                  ->Commit({InsertCheckpoint{job, Generation(1), 10, "/c/10", Bytes(1), Nanos(1)},
                            InsertCheckpoint{job, Generation(1), 20, "/c/20", Bytes(2), Nanos(2)},
                            InsertCheckpoint{job, Generation(2), 14, "/c/14", Bytes(3), Nanos(3)},
                            InsertCheckpoint{job, Generation(2), 12, "/c/12", Bytes(4), Nanos(4)},
                            InsertCheckpoint{JobId("job2"), Generation(9), 99, "/c/99", Bytes(9), Nanos(9)}})
                  .ok());
  const std::optional<InsertCheckpoint> newest = store->LoadCheckpoint(job).value();
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->job, job);
  EXPECT_EQ(newest->generation, Generation(2));
  EXPECT_EQ(newest->step, 14);
  EXPECT_EQ(newest->path, "/c/14");
  EXPECT_EQ(newest->bytes, Bytes(3));
  EXPECT_EQ(newest->time, Nanos(3));
}

TEST_P(StoreTest, OldEventsOfAJobAreDropped) {
  const std::unique_ptr<Store> store = Open();
  const JobId job("job1");
  for (int64_t sequence : {int64_t{1}, int64_t{2}, Store::kEventsPerJob, Store::kEventsPerJob + 1}) {
    ASSERT_TRUE(store->Commit({InsertEvent{job, {.sequence = sequence, .kind = "checkpoint"}}}).ok());
  }
  const std::vector<JobEvent> events = store->LoadEvents(job, 0, 100).value();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].sequence, 2);
}

TEST_P(StoreTest, WhatWasAcknowledgedSurvivesKill) {
  int acks[2];
  ASSERT_EQ(::pipe(acks), 0);
  const pid_t writer = ::fork();
  if (writer == 0) {
    absl::StatusOr<std::unique_ptr<Store>> store = TryOpen();
    if (!store.ok()) ::_exit(1);
    for (int64_t n = 1;; ++n) {
      if (!(*store)->Commit({InsertJob{MakeJob(n)}}).ok()) ::_exit(2);
      if (::write(acks[1], &n, sizeof(n)) != sizeof(n)) ::_exit(3);
    }
  }
  ::close(acks[1]);
  int64_t acknowledged = 0;
  while (acknowledged < 20) ASSERT_EQ(::read(acks[0], &acknowledged, sizeof(acknowledged)), 8);
  ::kill(writer, SIGKILL);
  int status = 0;
  ::waitpid(writer, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself: " << status;
  while (::read(acks[0], &acknowledged, sizeof(acknowledged)) == 8) continue;
  ::close(acks[0]);
  const std::vector<Store::StoredJob> jobs = Open()->LoadJobs().value();
  EXPECT_GE(static_cast<int64_t>(jobs.size()), acknowledged);
}

TEST_P(StoreTest, ASecondServerIsRefused) {
  const std::unique_ptr<Store> store = Open();
  const absl::Status second = TryOpen().status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr(place_.name()));
  EXPECT_THAT(std::string(second.message()), HasSubstr("in use by another lynx-server"));
}

TEST_F(StoreFileTest, ADamagedFileIsRefused) {
  { ASSERT_TRUE(Open()->Commit({InsertJob{MakeJob(1)}}).ok()); }
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(4096, '\xA5');
  }
  const absl::Status status = OpenStoreFile(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the database " + path_ + " is damaged"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("restore it from a backup, or move it"));
}

TEST_F(StoreFileTest, AFileThatIsNoDatabaseIsRefused) {
  std::ofstream(path_) << std::string(9000, 'x');
  const absl::Status status = OpenStoreFile(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("move it"));
}

TEST_P(StoreTest, ChangedContentIsFound) {
  { ASSERT_TRUE(Open()->Commit({InsertJob{MakeJob(1)}}).ok()); }
  place_.Execute("UPDATE jobs SET spec=" + place_.Bytes("00"));
  const absl::Status status = Open()->LoadJobs().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("job job1: its spec is not what was written"));
}

TEST_P(StoreTest, TracesAndWhatPlansWereMadeForComeBack) {
  const JobRecord job = MakeJob(1);
  const auto plan = MakeSmallPlan(*job.spec);
  const auto cluster = std::make_shared<const ClusterTopology>(UniformCluster(2, 4, StatedCpuProfile(), Bytes(1 << 30)));
  const StepTrace first{.generation = Generation(1), .step = 1, .plan_digest = plan->digest, .stages = {{1, 2, 3, 4, 5}, {}}};
  StepTrace second = first;
  second.step = 2;
  {
    const std::unique_ptr<Store> store = Open();
    ASSERT_TRUE(store->Commit({InsertJob{job}, InsertPlan{job.id, plan, cluster}}).ok());
    EXPECT_EQ(store->LoadTrace(job.id).value(), std::nullopt);
    ASSERT_TRUE(store->Commit({InsertTrace{job.id, first}}).ok());
    ASSERT_TRUE(store->Commit({InsertTrace{job.id, second}}).ok());
  }
  const std::unique_ptr<Store> store = Open();
  EXPECT_EQ(store->LoadTrace(job.id).value(), second) << "the newest";
  ASSERT_NE(store->LoadCluster(job.id).value(), nullptr);
  EXPECT_EQ(*store->LoadCluster(job.id).value(), *cluster);
  ASSERT_TRUE(store->Commit({InsertPlan{job.id, plan, nullptr}}).ok());
  EXPECT_EQ(store->LoadCluster(job.id).value(), nullptr);
  ASSERT_TRUE(store->Commit({DeleteJob{job.id}}).ok());
  EXPECT_EQ(store->LoadTrace(job.id).value(), std::nullopt);
}

// A job whose plan is for several kinds of nodes needs these kinds when it begins again.
TEST_P(StoreTest, ThePlannedKindsOfNodesComeBackWithTheJob) {
  ClusterTopology mixed = UniformCluster(1, 1, StatedCpuProfile());
  mixed.groups.push_back(mixed.groups[0]);
  mixed.groups[0].name = "group 0";
  mixed.groups[1].name = "group 1";
  mixed.groups[1].profile.flops_per_second /= 3;
  for (const ClusterTopology& cluster : {mixed, UniformCluster(1, 2, StatedCpuProfile())}) {
    const std::unique_ptr<Store> store = Open();
    JobRecord job = MakeJob(cluster == mixed ? 1 : 2);
    JobSpec spec = *job.spec;
    spec.resources.min_ranks = 2;
    job.spec = std::make_shared<const JobSpec>(spec);
    job.spec_digest = SpecDigest(spec);
    const auto plan = std::make_shared<const Plan>(std::get<Plan>(MakePlan({.spec = spec, .cluster = cluster}).value()));
    job.plan_digest = plan->digest;
    const auto stored = std::make_shared<const ClusterTopology>(cluster);
    ASSERT_TRUE(store->Commit({InsertJob{job}, InsertPlan{job.id, plan, stored}, UpdateJob{job}}).ok());
  }
  const std::vector<Store::StoredJob> jobs = Open()->LoadJobs().value();
  ASSERT_EQ(jobs.size(), 2u);
  ASSERT_NE(jobs[0].cluster, nullptr);
  EXPECT_EQ(*jobs[0].cluster, mixed);
  EXPECT_EQ(jobs[1].cluster, nullptr) << "its nodes are of one kind";
}

TEST_P(StoreTest, DamagedTracesAreSaidToBe) {
  const JobRecord job = MakeJob(1);
  const auto plan = MakeSmallPlan(*job.spec);
  {
    const std::unique_ptr<Store> store = Open();
    ASSERT_TRUE(store->Commit({InsertJob{job}, InsertPlan{job.id, plan, nullptr}, InsertTrace{job.id, {}}}).ok());
  }
  place_.Execute("UPDATE traces SET trace=" + place_.Bytes("ff") + "; UPDATE plans SET cluster=" + place_.Bytes("ff"));
  const std::unique_ptr<Store> store = Open();
  EXPECT_THAT(std::string(store->LoadTrace(job.id).status().message()), HasSubstr("its trace is not a message"));
  EXPECT_THAT(std::string(store->LoadCluster(job.id).status().message()), HasSubstr("made for is not a message"));
}

// The database has the form that the first release wrote.
TEST_P(StoreTest, AnOlderSchemaIsBroughtUpToDate) {
  const JobRecord job = MakeJob(1);
  const auto plan = MakeSmallPlan(*job.spec);
  {
    const std::unique_ptr<Store> store = Open();
    ASSERT_TRUE(store->Commit({InsertJob{job}, InsertPlan{job.id, plan, nullptr}}).ok());
  }
  place_.Execute(
      "DROP TABLE traces; ALTER TABLE plans DROP COLUMN cluster; "
      "ALTER TABLE ranks DROP COLUMN device_uuid; DROP TABLE cordons; DROP TABLE queues; "
      "DROP TABLE users; DROP TABLE tokens; DROP TABLE join_tokens; DROP TABLE certificates; DROP TABLE "
      "audit; DROP TABLE nodes; DROP TABLE curves; ALTER TABLE jobs DROP COLUMN owner; " +
      place_.SetSchema(1));
  const std::unique_ptr<Store> store = Open();
  EXPECT_EQ(store->LoadJobs().value().size(), 1u);
  EXPECT_EQ(PlanText(*store->LoadPlan(job.id).value()), PlanText(*plan));
  EXPECT_EQ(store->LoadCluster(job.id).value(), nullptr);
  EXPECT_TRUE(store->Commit({InsertTrace{job.id, {}}}).ok());
}

TEST_P(StoreTest, OwnersAndManagersComeBack) {
  JobRecord job = MakeJob(1);
  job.owner = "alice";
  const QueueConfig queue{
      .name = "research", .weight = 3, .quota = 8, .may_borrow = false, .user_quota = 5, .managers = {"bob", "a.b-c_1"}};
  const QueueConfig plain{.name = "plain"};
  {
    const std::unique_ptr<Store> store = Open();
    ASSERT_TRUE(store->Commit({InsertJob{job}, InsertJob{MakeJob(2)}, PutQueue{queue}, PutQueue{plain}}).ok());
    job.owner = "carol";
    ASSERT_TRUE(store->Commit({UpdateJob{job}}).ok()) << "a job keeps its owner";
  }
  const std::unique_ptr<Store> store = Open();
  EXPECT_EQ(store->LoadJobs().value()[0].record.owner, "alice");
  EXPECT_EQ(store->LoadJobs().value()[1].record.owner, "");
  std::vector<QueueConfig> queues = store->LoadSettings()->queues;
  std::sort(queues.begin(), queues.end(), [](const QueueConfig& a, const QueueConfig& b) { return a.name < b.name; });
  EXPECT_EQ(queues, (std::vector<QueueConfig>{plain, queue}));
}

// In version 7 jobs had no owners, but there were audit records of submissions.
TEST_P(StoreTest, TheAuditRecordsTellWhoOwnsJobsOfAnEarlierVersion) {
  const JobRecord job = MakeJob(1), other = MakeJob(2), unknown = MakeJob(3);
  const auto submitted = [](const JobRecord& of, const std::string& who, const std::string& detail, const char* outcome) {
    return InsertAudit{
        {.time = Nanos(1), .who = who, .what = "Jobs.SubmitJob", .target = of.id.value, .outcome = outcome, .detail = detail},
        of.id};
  };
  const std::vector<Effect> effects = {InsertJob{job},
                                       InsertJob{other},
                                       InsertJob{unknown},
                                       submitted(job, "mallory", "a key of another spec", "ALREADY_EXISTS"),
                                       submitted(job, "alice", "", "OK"),
                                       submitted(job, "bob", "it had been submitted before", "OK"),
                                       submitted(other, "local", "", "OK"),
                                       PutQueue{{.name = "research", .weight = 2}}};
  { ASSERT_TRUE(Open()->Commit(effects).ok()); }
  place_.Execute(
      "ALTER TABLE jobs DROP COLUMN owner; ALTER TABLE queues DROP COLUMN managers; ALTER TABLE queues DROP COLUMN "
      "user_quota; " +
      place_.SetSchema(7));
  const std::unique_ptr<Store> store = Open();
  std::vector<std::string> owners;
  for (const Store::StoredJob& stored : store->LoadJobs().value()) owners.push_back(stored.record.owner);
  EXPECT_EQ(owners, (std::vector<std::string>{"alice", "local", ""}));
  EXPECT_EQ(store->LoadSettings()->queues, (std::vector<QueueConfig>{{.name = "research", .weight = 2}}));
}

TEST_P(StoreTest, NodesAreKnownUntilTheyAreForgotten) {
  {
    const std::unique_ptr<Store> store = Open();
    ASSERT_TRUE(store->Commit({PutNode{NodeId("n2")}, PutNode{NodeId("n1")}, PutNode{NodeId("n3")}}).ok());
    ASSERT_TRUE(store->Commit({PutNode{.node = NodeId("n2"), .forgotten = true}, PutNode{NodeId("n1")}}).ok());
  }
  EXPECT_EQ(Open()->LoadSettings()->nodes, (std::vector<NodeId>{NodeId("n1"), NodeId("n3")}));
}

TEST_P(StoreTest, CurvesComeBack) {
  const JobRecord job = MakeJob(1);
  JobCurves curves;
  curves.AddStep(Generation(2), {.step = 4, .loss = std::nan(""), .tokens = 10, .duration = Nanos(1'000'000'000)}, Nanos(9));
  curves.AddEvaluation(5, 2.5);
  {
    const std::unique_ptr<Store> store = Open();
    ASSERT_TRUE(store->Commit({InsertJob{job}}).ok());
    EXPECT_TRUE(store->LoadCurves(job.id)->empty());
    ASSERT_TRUE(store->PutCurves({{job.id, &curves}, {JobId("unknown"), &curves}}).ok());
    EXPECT_TRUE(store->LoadCurves(JobId("unknown"))->empty()) << "nobody would delete them";
  }
  const std::unique_ptr<Store> store = Open();
  const absl::StatusOr<JobCurves> kept = store->LoadCurves(job.id);
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_EQ(kept->steps().size(), 1u);
  EXPECT_EQ(kept->steps()[0].generation, Generation(2));
  EXPECT_EQ(kept->steps()[0].first_step, 4);
  EXPECT_EQ(kept->steps()[0].time, Nanos(9));
  EXPECT_DOUBLE_EQ(kept->steps()[0].tokens_per_second, 10);
  EXPECT_TRUE(std::isnan(kept->steps()[0].loss));
  EXPECT_EQ(kept->evaluations(), curves.evaluations());
  ASSERT_TRUE(store->Commit({DeleteJob{job.id}}).ok());
  EXPECT_TRUE(store->LoadCurves(job.id)->empty());
}

TEST_P(StoreTest, ANewerSchemaIsRefused) {
  { ASSERT_NE(Open(), nullptr); }
  place_.Execute(place_.SetSchema(kSchemaVersion + 1));
  const absl::Status status = TryOpen().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("has schema ", kSchemaVersion + 1, ", made by a newer lynx-server")));
}

TEST_P(StoreTest, AnotherProgramsDatabaseIsRefused) {
  place_.Execute("CREATE TABLE cookies(id INTEGER)");
  const absl::Status status = TryOpen().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), ::testing::ContainsRegex("not (one of )?lynx-server's"));
}

TEST_F(StoreFileTest, ADirectoryThatIsNotThereIsSaid) {
  const absl::Status status = OpenStoreFile(directory_ + "/none/lynx.db").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot open the database"));
}

TEST_F(StoreFileTest, AFullDiskIsSaidAndLeavesTheStoreUsable) {
  const std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->Commit({InsertJob{MakeJob(1)}}).ok());
  StoreForTests::LimitPages(*store, 1);
  absl::Status status;
  int64_t accepted = 1;
  for (int64_t n = 2; n < 500 && status.ok(); ++n) {
    status = store->Commit({InsertJob{MakeJob(n)}});
    if (status.ok()) accepted = n;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot write to the database " + path_));
  EXPECT_EQ(static_cast<int64_t>(store->LoadJobs().value().size()), accepted);
  StoreForTests::LimitPages(*store, 1'000'000);
  EXPECT_TRUE(store->Commit({InsertJob{MakeJob(1000)}}).ok());
}

}  // namespace
}  // namespace lynx::server
