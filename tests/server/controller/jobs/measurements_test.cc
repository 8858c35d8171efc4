#include "server/controller/jobs/measurements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/parts_fixture.h"

namespace lynx::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A job that is planned for one device on each of two nodes.
class MeasurementsTest : public ::testing::Test {
 protected:
  MeasurementsTest() {
    parts_.options.wanted_shapes = [](const JobSpec&, const ClusterTopology&) { return std::vector<LayerShape>(1); };
    parts_.AddNode("n1", 1, 1);
    parts_.AddNode("n2", 1, 3);
    job_.record.state = JobState::kPlanning;
    job_.planning.reservation.devices = {{NodeId("n1"), 0}, {NodeId("n2"), 0}};
    parts_.At(1);
    parts_.step.TakeAgents();
    measurements_.Begin(job_);
  }
  void Measured(const std::string& node) {
    HardwareProfile profile;
    profile.measured.resize(1);
    parts_.nodes.At(NodeId(node)).agent.profile = std::make_shared<const HardwareProfile>(profile);
  }
  testing::PartsFixture parts_;
  Measurements measurements_{parts_.options, parts_.step, parts_.jobs, parts_.nodes};
  LiveJob& job_ = parts_.AddJob("a");
};

TEST_F(MeasurementsTest, AJobWaitsForOneNodeAfterAnother) {
  EXPECT_THAT(parts_.step.TakeAgents(), ElementsAre(NodeId("n1"), NodeId("n2")));
  EXPECT_THAT(measurements_.ShapesFor(parts_.nodes.At(NodeId("n1"))).shapes, SizeIs(1));
  EXPECT_TRUE(measurements_.Waits(job_));
  EXPECT_THAT(measurements_.TakeWaiters(NodeId("n2")), IsEmpty());
  EXPECT_THAT(measurements_.TakeWaiters(NodeId("n1")), ElementsAre(JobId("a")));
  Measured("n1");
  EXPECT_TRUE(measurements_.Waits(job_));
  EXPECT_THAT(measurements_.TakeWaiters(NodeId("n2")), ElementsAre(JobId("a")));
  Measured("n2");
  EXPECT_FALSE(measurements_.Waits(job_));
  measurements_.End(job_);
  EXPECT_THAT(measurements_.ShapesFor(parts_.nodes.At(NodeId("n1"))).shapes, IsEmpty());
}

TEST_F(MeasurementsTest, AFailedShapeIsNotAwaited) {
  Measured("n1");
  parts_.nodes.At(NodeId("n2")).agent.failed_shapes.resize(1);
  EXPECT_FALSE(measurements_.Waits(job_));
}

TEST_F(MeasurementsTest, ANodeWithoutAgentIsNotAwaited) {
  Measured("n1");
  parts_.nodes.At(NodeId("n2")).agent_link = {};
  EXPECT_FALSE(measurements_.Waits(job_));
}

TEST_F(MeasurementsTest, TheWaitHasALimitAndAnEventNamesTheLateNodes) {
  Measured("n1");
  parts_.At(62);
  EXPECT_FALSE(measurements_.Waits(job_));
  measurements_.TellDuration(job_);
  const std::vector<InsertEvent> events = parts_.Take<InsertEvent>();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(events[0].event.reason, ::testing::HasSubstr("not all has been measured within 1m01s, on n2;"));
}

TEST_F(MeasurementsTest, ANodeThatTrainsDoesNotMeasureForAJobThatTrains) {
  job_.replanning.trigger = "devices are free";
  parts_.nodes.At(NodeId("n1")).jobs.insert(JobId("other"));
  EXPECT_THAT(measurements_.ShapesFor(parts_.nodes.At(NodeId("n1"))).shapes, IsEmpty());
  EXPECT_THAT(measurements_.ShapesFor(parts_.nodes.At(NodeId("n2"))).shapes, SizeIs(1));
}

// A plan whose shape is `micro_batch`.
Plan PlanWith(int32_t micro_batch) {
  Plan plan;
  plan.micro_batch = micro_batch;
  return plan;
}

class MeasurementsOfPlansTest : public MeasurementsTest {
 protected:
  MeasurementsOfPlansTest() {
    parts_.options.wanted_shape_of = [](const JobSpec&, const Plan& plan) {
      return LayerShape{.micro_batch = plan.micro_batch};
    };
    job_.record.spec = std::make_shared<const JobSpec>();
    Measured("n1");
    Measured("n2");
    measurements_.End(job_);
    parts_.step.TakeAgents();
  }
};

TEST_F(MeasurementsOfPlansTest, APlansOwnShapeIsMeasuredOnce) {
  EXPECT_FALSE(measurements_.BeginFor(job_, PlanWith(LayerShape().micro_batch))) << "its shape has been measured";
  EXPECT_TRUE(measurements_.BeginFor(job_, PlanWith(4)));
  EXPECT_THAT(parts_.step.TakeAgents(), ElementsAre(NodeId("n1"), NodeId("n2")));
  EXPECT_THAT(measurements_.ShapesFor(parts_.nodes.At(NodeId("n1"))).shapes, SizeIs(2));
  EXPECT_TRUE(measurements_.Waits(job_));
  for (const char* node : {"n1", "n2"}) parts_.nodes.At(NodeId(node)).agent.failed_shapes = {LayerShape{.micro_batch = 4}};
  EXPECT_FALSE(measurements_.Waits(job_));
  EXPECT_FALSE(measurements_.BeginFor(job_, PlanWith(4))) << "it cannot be measured";
}

// Each new plan may need op times of another shape, but at some time the job must begin.
TEST_F(MeasurementsOfPlansTest, AJobIsMeasuredForAFewPlansOnly) {
  int rounds = 0;
  for (int32_t size = 2; measurements_.BeginFor(job_, PlanWith(size)); ++size, ++rounds) {
    for (const char* node : {"n1", "n2"}) {
      parts_.nodes.At(NodeId(node)).agent.failed_shapes.push_back(LayerShape{.micro_batch = size});
    }
  }
  EXPECT_EQ(rounds, 3);
  measurements_.Begin(job_);
  EXPECT_TRUE(measurements_.BeginFor(job_, PlanWith(100))) << "the next time that it is planned it may be measured again";
}

// All rounds together have a time limit of 60 s. It began at second 1.
TEST_F(MeasurementsOfPlansTest, AllRoundsShareOneTimeLimit) {
  parts_.At(40);
  EXPECT_TRUE(measurements_.BeginFor(job_, PlanWith(4)));
  parts_.At(60);
  EXPECT_TRUE(measurements_.Waits(job_));
  parts_.At(61);
  EXPECT_FALSE(measurements_.Waits(job_));
  EXPECT_FALSE(measurements_.BeginFor(job_, PlanWith(8)));
}

// While nothing is asked of an agent, it forgets which shapes it could not measure.
TEST_F(MeasurementsOfPlansTest, AShapeThatFailedBeforeDoesNotMatter) {
  parts_.nodes.At(NodeId("n2")).agent.profile = std::make_shared<const HardwareProfile>();
  EXPECT_TRUE(measurements_.BeginFor(job_, PlanWith(4)));
}

TEST_F(MeasurementsOfPlansTest, TheEventCountsTheShapesOfItsRound) {
  EXPECT_TRUE(measurements_.BeginFor(job_, PlanWith(4)));
  parts_.At(11);
  measurements_.TellDuration(job_);
  const std::vector<InsertEvent> events = parts_.Take<InsertEvent>();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(events[0].event.reason, ::testing::HasSubstr("op times of 1 layer shape were measured in 10"));
}

TEST_F(MeasurementsOfPlansTest, WithoutAFunctionEveryPlanStands) {
  parts_.options.wanted_shape_of = nullptr;
  EXPECT_FALSE(measurements_.BeginFor(job_, PlanWith(4)));
}

}  // namespace
}  // namespace lynx::server
