#include "server/metrics/job_timeline.h"

#include <gtest/gtest.h>

#include <map>

namespace lynx::server {
namespace {

Nanos At(double seconds) { return NanosFromSeconds(seconds); }

// The timeline of a job with two devices, together with the job's reports.
struct Followed {
  void Event(JobState state, const std::string& kind, double seconds, int32_t devices = 2) {
    Take(timeline.OnEvent({.time = At(seconds), .state = state, .kind = kind}, devices));
  }
  void Step(int64_t step, bool is_new, double seconds, double duration = 1) {
    Take(timeline.OnStep(step, At(duration), is_new, At(seconds), 2));
  }
  void Begin() {
    Event(JobState::kQueued, "submitted", 0, 0);
    Event(JobState::kPlanning, "planning", 4);
    Event(JobState::kPlanning, "planned", 5);
    Event(JobState::kStarting, "placed", 5);
    Event(JobState::kRunning, "running", 8);
    Step(0, true, 9);
  }
  void Take(const JobTimeline::Report& report) {
    for (const JobTimeline::Spent& part : report.spent) {
      used[part.use] += part.device_seconds;
      if (part.use != DeviceUse::kTraining) lost[part.cause] += part.device_seconds;
    }
    if (report.queue_wait.has_value()) waits.push_back(Seconds(*report.queue_wait));
    if (report.first_step.has_value()) first_steps.push_back(Seconds(*report.first_step));
    if (!report.recovered.has_value()) return;
    recovered.clear();
    for (const auto& [phase, time] : *report.recovered) recovered[phase] = Seconds(time);
  }
  double All() const {
    double sum = 0;
    for (const auto& [use, seconds] : used) sum += seconds;
    return sum;
  }

  JobTimeline timeline;
  std::map<DeviceUse, double> used;
  std::map<LossCause, double> lost;
  std::map<RecoveryPhase, double> recovered;
  std::vector<double> waits, first_steps;
};

TEST(JobTimeline, AFirstStart) {
  Followed job;
  job.Begin();
  job.Step(1, true, 11);
  EXPECT_EQ(job.waits, std::vector<double>{4});
  EXPECT_EQ(job.first_steps, std::vector<double>{5});
  EXPECT_EQ(job.used,
            (std::map<DeviceUse, double>{{DeviceUse::kPlanning, 2}, {DeviceUse::kStarting, 6}, {DeviceUse::kTraining, 6}}));
  EXPECT_EQ(job.lost, (std::map<LossCause, double>{{LossCause::kStart, 8}}));
  job.Event(JobState::kSucceeded, "succeeded", 12, 0);
  EXPECT_EQ(job.used[DeviceUse::kStopping], 2) << "its last checkpoint";
  job.Step(2, true, 13);
  EXPECT_EQ(job.All(), 16) << "it has ended";
}

TEST(JobTimeline, OtherRanksOfAStepCountNothing) {
  Followed job;
  job.Begin();
  job.Step(0, false, 9.5);
  job.Step(1, true, 10);
  job.Step(1, false, 10.25);
  EXPECT_EQ(job.used[DeviceUse::kTraining], 4);
  EXPECT_EQ(job.used.count(DeviceUse::kRedoing), 0u);
}

TEST(JobTimeline, ALostNodeThatTheJobWaitsFor) {
  Followed job;
  job.Begin();
  job.Step(1, true, 10);
  job.Event(JobState::kRunning, "node-lost", 13);
  job.Step(2, true, 13.5);  // a rank that has not noticed the loss yet reports this step: it does not count
  job.Event(JobState::kQueued, "restarting", 15, 0);
  job.Event(JobState::kStarting, "placed", 25);
  job.Event(JobState::kRunning, "running", 26);
  job.Step(0, false, 28);
  EXPECT_TRUE(job.recovered.empty());
  job.Step(1, false, 30);
  job.Step(2, true, 31);
  EXPECT_EQ(job.recovered, (std::map<RecoveryPhase, double>{{RecoveryPhase::kDetect, 3},
                                                            {RecoveryPhase::kStop, 2},
                                                            {RecoveryPhase::kWait, 10},
                                                            {RecoveryPhase::kStart, 1},
                                                            {RecoveryPhase::kRedo, 4}}));
  EXPECT_EQ(job.used[DeviceUse::kDetecting], 6);
  EXPECT_EQ(job.used[DeviceUse::kStopping], 4);
  EXPECT_EQ(job.used[DeviceUse::kRedoing], 8);
  EXPECT_EQ(job.lost[LossCause::kNode], 6 + 4 + 2 + 8) << "in the queue it has no devices";
  EXPECT_EQ(job.waits, (std::vector<double>{4, 10}));
  EXPECT_EQ(job.first_steps.size(), 1u);
}

TEST(JobTimeline, ASecondLossWhileItStartsAddsToTheFirst) {
  Followed job;
  job.Begin();
  job.Event(JobState::kRunning, "rank-lost", 10);
  job.Event(JobState::kStarting, "restarting", 11);
  job.Event(JobState::kStarting, "rank-lost", 14);
  job.Event(JobState::kStarting, "restarting", 16);
  job.Event(JobState::kRunning, "running", 17);
  job.Step(1, true, 18);
  EXPECT_EQ(job.recovered, (std::map<RecoveryPhase, double>{{RecoveryPhase::kDetect, 1},
                                                            {RecoveryPhase::kStop, 3},
                                                            {RecoveryPhase::kWait, 0},
                                                            {RecoveryPhase::kStart, 4},
                                                            {RecoveryPhase::kRedo, 0}}));
  EXPECT_EQ(job.lost[LossCause::kRank], 16);
}

TEST(JobTimeline, RanksThatGiveWayTrainUntilTheyHave) {
  Followed job;
  job.Begin();
  job.Event(JobState::kRunning, "replan-adopted", 9.5);
  job.Step(1, true, 10);
  job.Event(JobState::kRunning, "planned", 12);
  job.Event(JobState::kStarting, "replanned", 12, 4);
  job.Event(JobState::kRunning, "running", 13, 4);
  EXPECT_EQ(job.used[DeviceUse::kTraining], 4);
  EXPECT_EQ(job.lost[LossCause::kReplan], 2 * 2 + 4 * 1);
  job.Step(2, true, 14);
  EXPECT_TRUE(job.recovered.empty()) << "nothing was lost";
}

TEST(JobTimeline, OneThatHasNotGivenWayGoesOn) {
  Followed job;
  job.Begin();
  job.Event(JobState::kRunning, "preempted", 10);
  job.Event(JobState::kRunning, "goes-on", 70);
  job.Step(1, true, 71);
  EXPECT_DOUBLE_EQ(job.used[DeviceUse::kTraining], 2 + 2 * 62);
  EXPECT_EQ(job.lost.count(LossCause::kPreempted), 0u);
}

TEST(JobTimeline, AStepThatIsHeardOfBeforeTheJobRuns) {
  Followed job;
  job.Event(JobState::kQueued, "submitted", 0, 0);
  job.Event(JobState::kStarting, "placed", 1);
  job.Step(0, true, 5, 3);
  job.Event(JobState::kStarting, "checkpoint", 5);
  job.Event(JobState::kRunning, "running", 6);
  job.Step(1, true, 8);
  EXPECT_EQ(job.used[DeviceUse::kStarting], 2);
  EXPECT_EQ(job.used[DeviceUse::kTraining], 12);
}

TEST(JobTimeline, OneThatAnotherServerBegan) {
  Followed job;
  job.Event(JobState::kRunning, "server-restarted", 100);
  job.Step(50, true, 101);
  EXPECT_EQ(job.used, (std::map<DeviceUse, double>{{DeviceUse::kTraining, 2}}));
  EXPECT_TRUE(job.waits.empty());
  EXPECT_TRUE(job.first_steps.empty()) << "not known";
}

TEST(JobTimeline, AClockThatIsSetBackCountsNothing) {
  Followed job;
  job.Begin();
  const double before = job.All();
  job.Step(1, true, 3);
  EXPECT_EQ(job.All(), before);
  job.Step(2, true, 4);
  EXPECT_EQ(job.All(), before + 2);
}

}  // namespace
}  // namespace lynx::server
