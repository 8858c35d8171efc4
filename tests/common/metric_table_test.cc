#include "common/metric_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/golden/golden.h"

namespace lynx {
namespace {

using metric::Metric;
using ::testing::EndsWith;
using ::testing::StartsWith;

TEST(MetricTable, IsThePageOfTheDocumentation) { ExpectGolden("../../docs/metrics.md", metric::MetricPage()); }

TEST(MetricTable, NamesSayUnitAndType) {
  std::set<std::string> names;
  for (const Metric* metric : metric::AllMetrics()) {
    const std::string name = metric->name;
    EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
    EXPECT_THAT(std::string(metric->help), EndsWith(".")) << name;
    if (name.starts_with("DCGM_FI_DEV_")) continue;
    EXPECT_THAT(name, StartsWith("lynx_"));
    const bool counter = metric->type == metric::Type::kCounter;
    EXPECT_EQ(name.ends_with("_total"), counter) << name;
    const std::string base = counter ? name.substr(0, name.size() - 6) : name;
    const std::string unit = metric->unit;
    EXPECT_EQ(unit == "s", base.ends_with("_seconds") || name.starts_with("lynx_device_seconds_")) << name;
    EXPECT_EQ(unit == "B", base.ends_with("_bytes") || base.ends_with("_bytes_sent")) << name;
  }
}

TEST(MetricTable, LabelsAreOfABoundedKind) {
  const std::set<std::string> known = {"version", "state", "result", "reason", "kind", "outcome", "decision",  "phase",
                                       "trigger", "use",   "cause",  "method", "code", "job_id",  "job_name",  "stage",
                                       "rank",    "queue", "layout", "device", "gpu",  "UUID",    "modelName", "Hostname"};
  for (const Metric* metric : metric::AllMetrics()) {
    for (const std::string& label : metric::LabelsOf(*metric)) {
      EXPECT_TRUE(known.contains(label)) << metric->name << " has the label " << label << ": how many values can it have?";
      if (label == "rank") EXPECT_THAT(std::string(metric->name), StartsWith("lynx_rank_"));
    }
  }
}

TEST(MetricTable, KnowsItsOwnAlone) {
  EXPECT_TRUE(metric::IsListed(metric::kJobs));
  const Metric copy = metric::kJobs;
  EXPECT_FALSE(metric::IsListed(copy));
}

}  // namespace
}  // namespace lynx
