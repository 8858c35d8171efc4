// Tests what exports and the plan page say about the order of the nodes of a mixed cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/export/export.h"
#include "planner/report/html_page.h"
#include "tests/planner/report/report_fixtures.h"

namespace lynx {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// Other frameworks give the nodes to the ranks in the order of their hosts. The export cannot set this order.
TEST(Export, SaysOnWhichNodesOfAMixedClusterTheStagesRun) {
  PlanRequest request = SmallRequest(kKiB * 1600);
  request.cluster.groups[0].name = "a100";
  request.cluster.groups[0].nodes = 1;
  request.cluster.groups.push_back(request.cluster.groups[0]);
  request.cluster.groups[1].name = "v100";
  const auto fixture = PlannedStep(request);
  ASSERT_EQ(NodeRunsText(fixture->plan.nodes), "a100 x 1, v100 x 1");
  for (const ExportTarget& target : {NewestTarget(ExportFormat::kMegatron), NewestTarget(ExportFormat::kTorchtitan)}) {
    const auto exported = ExportPlan(target, fixture->request, fixture->plan);
    ASSERT_TRUE(exported.ok()) << exported.status();
    EXPECT_THAT(exported->missing, Contains(AllOf(HasSubstr("the ranks fill a100 x 1, v100 x 1; give "),
                                                  HasSubstr("in which each stage gets the same nodes"))));
  }
  request.spec.parallel.tp = 1;
  request.spec.parallel.dp = 2;
  request.spec.parallel.rank_order = RankOrder::kTpDpPp;
  const auto replicas_first = PlannedStep(request);
  const auto exported = ExportPlan(NewestTarget(ExportFormat::kMegatron), replicas_first->request, replicas_first->plan);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->missing, Contains(HasSubstr("in the plan, stage after stage and in each stage replica after replica")));
  const auto page = HtmlPage(fixture->step);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(*page, HasSubstr("nodes, in the order of the ranks <b>a100 x 1, v100 x 1</b>"));
}

}  // namespace
}  // namespace lynx
