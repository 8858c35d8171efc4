// Tests that nothing of the server's assignment to a rank is lost on its way: in a message to the daemon, and from there into
// the rank's configuration.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "planner/search/make_plan.h"
#include "proto/convert_worker.h"
#include "server/wire/messages.h"

namespace lynx::server {
namespace {

// Returns a job of two ranks, which are a pipeline of two stages.
JobSpec SmallJob() {
  JobSpec spec;
  spec.name = "small";
  spec.model = {.layers = 2, .hidden = 32, .heads = 2, .seq = 16};
  spec.data.path = "/text";
  spec.train.steps = 10;
  spec.train.global_batch = 4;
  spec.resources.max_ranks = 2;
  spec.parallel = {.tp = 1, .pp = 2, .dp = 1};
  spec.scheduling.queue = "q";
  Normalize(spec);
  return spec;
}

RankAssignment SmallAssignment() {
  const JobSpec spec = SmallJob();
  absl::StatusOr<PlanResult> plan = MakePlan({.spec = spec, .cluster = UniformCluster(1, 2, StatedCpuProfile())});
  return {.key = {JobId("job-7"), Generation(3), 1},
          .device = 5,
          .device_kind = DeviceKind::kCuda,
          .device_uuid = "GPU-5",
          .cores = {4, 6},
          .spec = std::make_shared<JobSpec>(spec),
          .plan = std::make_shared<Plan>(std::get<Plan>(*std::move(plan))),
          .peers = std::make_shared<std::vector<RankAddress>>(std::vector<RankAddress>{{"127.0.0.1", 4000}, {"::1", 4001}}),
          .resume_step = 6,
          .checkpoint_directory = "/checkpoints/job-7",
          .yield = true,
          .check = true};
}

class EncodeTest : public ::testing::Test {
 protected:
  EncodeTest() {
    std::string pattern = ::testing::TempDir() + "lynx_encode_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    key_ = ConnectionKey::Open(folder_ + "/connections.key").value();
  }
  ~EncodeTest() override { std::filesystem::remove_all(folder_); }

  v1::RankAssignment Sent(const RankAssignment& assignment) const {
    return Encode(WorkerDesired{.ranks = {assignment}}, Nanos(1), key_).ranks(0);
  }

  std::string folder_;
  ConnectionKey key_;
};

TEST_F(EncodeTest, AnAssignmentReachesTheDaemonAsItIs) {
  const RankAssignment assignment = SmallAssignment();
  const v1::RankAssignment message = Sent(assignment);
  EXPECT_TRUE(message.yield());
  const absl::StatusOr<RankConfig> config = RankConfigFromProto(message);
  ASSERT_TRUE(config.ok()) << config.status();
  RankConfig wanted;
  wanted.job = JobId("job-7");
  wanted.generation = Generation(3);
  wanted.rank = 1;
  wanted.spec = *assignment.spec;
  wanted.context = assignment.plan->ContextOf(1);
  wanted.program = assignment.plan->stages[1].program;
  wanted.arena = assignment.plan->stages[1].arena;
  wanted.plan_digest = assignment.plan->digest;
  wanted.peers = {{"127.0.0.1", 4000}, {"::1", 4001}};
  wanted.connection_secret = key_.SecretOf(JobId("job-7"), Generation(3));
  wanted.checkpoint_directory = "/checkpoints/job-7";
  wanted.resume_step = 6;
  wanted.check = true;
  wanted.device = {.kind = DeviceKind::kCuda, .index = 5, .uuid = "GPU-5"};
  wanted.cores = {4, 6};
  EXPECT_TRUE(*config == wanted) << RankConfigText(*config) << RankConfigText(wanted);
}

// The plan may have been made for a larger skew of experts than the job states. The ranks train the job, and their checkpoints
// are the job's, whatever the plan assumed.
TEST_F(EncodeTest, RanksGetTheJobsSkew) {
  RankAssignment assignment = SmallAssignment();
  Plan skewed = *assignment.plan;
  skewed.model.moe.skew = 1.5;
  assignment.plan = std::make_shared<const Plan>(skewed);
  const absl::StatusOr<RankConfig> config = RankConfigFromProto(Sent(assignment));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->context.model, assignment.spec->model);
}

// Desired states are sent often, and programs are long. So if a rank need not be started, only its key, its device and the
// request to give way are sent.
TEST_F(EncodeTest, ARankThatNeedNotStartIsOnlyNamed) {
  v1::RankAssignment named;
  named.set_job_id("job-7");
  named.set_generation(3);
  named.set_rank(1);
  named.set_device(5);
  named.set_yield(true);
  RankAssignment assignment = SmallAssignment();
  assignment.started = true;
  EXPECT_EQ(Sent(assignment).SerializeAsString(), named.SerializeAsString());
  assignment.started = false;
  assignment.peers = nullptr;
  EXPECT_EQ(Sent(assignment).SerializeAsString(), named.SerializeAsString());
}

}  // namespace
}  // namespace lynx::server
