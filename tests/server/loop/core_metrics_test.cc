// Tests the metrics page of a server with threads and a store. The page must work whatever the threads and the store are doing.
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "node/metrics_endpoint.h"
#include "prometheus/text_serializer.h"
#include "server/loop/core.h"
#include "tests/node/http_get.h"
#include "tests/server/store/stored_jobs.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A page for which no thread has to wait is ready within this time, even on a busy machine.
constexpr auto kLongEnough = std::chrono::minutes(1);

// Threads wait at the gate until it is opened. It is opened once, for all threads.
class Gate {
 public:
  void Open() {
    std::call_once(once_, [this] { opened_.set_value(); });
  }
  void Wait() const { is_open_.wait(); }

 private:
  std::once_flag once_;
  std::promise<void> opened_;
  const std::shared_future<void> is_open_ = opened_.get_future().share();
};

class CoreMetricsTest : public ::testing::Test {
 protected:
  CoreMetricsTest() {
    std::string pattern = ::testing::TempDir() + "lynx_core_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~CoreMetricsTest() override {
    released_->Open();
    core_.reset();
    std::filesystem::remove_all(directory_);
  }

  // Starts a server that finds `stored` in its store. Its planner does not finish before the gate `released_` opens.
  void Start(const std::vector<Effect>& stored) {
    absl::StatusOr<std::unique_ptr<Store>> store = OpenStore("", directory_);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->Commit(stored).ok());
    CoreOptions options;
    options.controller.wanted_shapes = [](const JobSpec&, const ClusterTopology&) { return std::vector<LayerShape>(); };
    options.planner = [plans = plans_, released = released_](const PlanRequest&) -> absl::StatusOr<PlanResult> {
      plans->Open();
      released->Wait();
      return absl::CancelledError("the test is over");
    };
    absl::StatusOr<std::unique_ptr<ServerCore>> core = ServerCore::Start(std::move(options), *std::move(store), clock_);
    ASSERT_TRUE(core.ok()) << core.status();
    core_ = *std::move(core);
    Settle();
  }
  // Attaches a node with two devices.
  void AttachNode() {
    AgentState agent{.node = NodeId("n0"), .boot = "a"};
    for (int32_t i = 0; i < 2; ++i)
      agent.devices.push_back({.index = i, .model = "test", .memory = Bytes(1 << 30), .cores = {i}});
    ASSERT_TRUE(core_->loop().Post(WorkerReported{1, "10.0.0.1", {.node = NodeId("n0"), .boot = "w", .address = "10.0.0.1"}}));
    ASSERT_TRUE(core_->loop().Post(AgentReported{2, "10.0.0.1", std::move(agent)}));
    Settle();
  }
  // Waits until everything that was posted earlier is done.
  void Settle() {
    Gate done;
    ASSERT_TRUE(core_->loop().Run([&] { done.Open(); }));
    done.Wait();
  }
  std::string Page() const { return prometheus::TextSerializer().Serialize(core_->metrics().page()->Collect()); }

  std::string directory_;
  RealClock clock_;
  // A planner thread uses these gates too, and it may live longer than the server.
  const std::shared_ptr<Gate> plans_ = std::make_shared<Gate>(), released_ = std::make_shared<Gate>();
  std::unique_ptr<ServerCore> core_;
};

TEST_F(CoreMetricsTest, APageWaitsNeitherForTheOwnerThreadNorForAPlan) {
  Start({InsertJob{MakeJob(1)}});
  AttachNode();
  plans_->Wait();
  Gate held;
  ASSERT_TRUE(core_->loop().Run([&held, released = released_] {
    held.Open();
    released->Wait();
  }));
  held.Wait();
  const absl::StatusOr<int> port = ServeMetrics("127.0.0.1:0", core_->metrics().page(), {});
  ASSERT_TRUE(port.ok()) << port.status();
  std::future<std::string> page = std::async(std::launch::async, [&] { return HttpGet(*port, "/metrics"); });
  const bool answers = page.wait_for(kLongEnough) == std::future_status::ready;
  released_->Open();
  EXPECT_TRUE(answers) << "it waits for one of them";
  EXPECT_THAT(page.get(), HasSubstr("\nlynx_job_ranks{job_id=\"job1\",job_name=\"name1\"} 2\n"));
}

TEST_F(CoreMetricsTest, ACheckpointOfWhichAnEarlierServerHeardIsShownOfAJobThatTrains) {
  JobRecord job = MakeJob(1);
  const std::shared_ptr<const Plan> plan = MakeSmallPlan(*job.spec);
  job.state = JobState::kRunning;
  job.generation = Generation(3);
  job.plan_digest = plan->digest;
  job.checkpoint_step = 8;
  for (int32_t r = 0; r < plan->layout.ranks(); ++r)
    job.ranks.push_back({.where = {NodeId("n0"), r}, .host = "10.0.0.1", .port = 4000 + r});
  Start({InsertJob{job}, InsertPlan{job.id, plan, nullptr}, UpdateJob{job},
         InsertCheckpoint{job.id, Generation(3), 8, "/c/step-8", Bytes(9), Nanos(7'000'000'000)}});
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("\nlynx_job_checkpoint_timestamp_seconds{job_id=\"job1\",job_name=\"name1\"} 7\n"));
  EXPECT_THAT(page, HasSubstr("\nlynx_job_checkpoint_bytes{job_id=\"job1\",job_name=\"name1\"} 9\n"));
  EXPECT_THAT(page, HasSubstr("\nlynx_job_checkpoint_steps{job_id=\"job1\",job_name=\"name1\"} 8\n"));
  EXPECT_THAT(page, HasSubstr("\nlynx_job_checkpoints_total{job_id=\"job1\",job_name=\"name1\"} 0\n"))
      << "counters begin anew with a server";
}

TEST_F(CoreMetricsTest, SoItIsOfOneThatWaitedMeanwhile) {
  JobRecord job = MakeJob(1);
  job.checkpoint_step = 6;
  Start({InsertJob{job}, UpdateJob{job},
         InsertCheckpoint{job.id, Generation(1), 6, "/c/step-6", Bytes(9), Nanos(7'000'000'000)}});
  EXPECT_THAT(Page(), Not(HasSubstr("job_id=\"job1\"")));
  AttachNode();
  EXPECT_THAT(Page(), HasSubstr("\nlynx_job_checkpoint_timestamp_seconds{job_id=\"job1\",job_name=\"name1\"} 7\n"));
}

}  // namespace
}  // namespace lynx::server
