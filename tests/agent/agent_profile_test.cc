#include "agent/agent_profile.h"

#include <gtest/gtest.h>

namespace lynx::agent {
namespace {

LayerShape Shape(int32_t tp) {
  return {.micro_batch = 1, .seq = 128, .hidden = 256, .heads = 4, .ffn = 1024, .vocab = 256, .tp = tp};
}
MeasureTask ShapeTask(int32_t tp) { return {.kind = MeasureTaskKind::kShape, .shape = Shape(tp)}; }
const MeasureTask kLink{.kind = MeasureTaskKind::kLink};
const MeasureTask kRates{.kind = MeasureTaskKind::kRates};

MeasureResult Result(const std::vector<int32_t>& tps, int64_t flops = 1000) {
  MeasureResult result{.device_kind = "cpu: test",
                       .flops_per_second = flops,
                       .bfloat16_flops_per_second = 2 * flops,
                       .memory_bytes_per_second = 2000,
                       .op_overhead = Nanos(5),
                       .host = {Nanos(6), 600, 700, 800, 1200}};
  for (const int32_t tp : tps) result.measured.push_back({.shape = Shape(tp)});
  return result;
}

AgentProfile MakeProfile(int64_t inter_node = 0) { return {LinkCost{Nanos(7), 70}, inter_node}; }

TEST(AgentProfile, MeasuresTheLinkThenTheRatesThenShapesInOrder) {
  AgentProfile profile = MakeProfile();
  profile.SetWanted({Shape(4), Shape(2)});
  EXPECT_EQ(profile.Next(), kLink);
  profile.RecordLink(
      LinkResult{.link = {Nanos(1), 10}, .overlap_slowdown_permille = 1200, .communication_compute_permille = 90});
  EXPECT_EQ(profile.Next(), kRates);
  EXPECT_FALSE(profile.Profile().has_value());
  profile.RecordDevices(kRates, Result({}));
  ASSERT_TRUE(profile.Profile().has_value());
  EXPECT_EQ(profile.Next(), ShapeTask(4));
  profile.RecordDevices(ShapeTask(4), Result({4}));
  EXPECT_EQ(profile.Next(), ShapeTask(2));
  profile.RecordDevices(ShapeTask(2), Result({2}));
  EXPECT_EQ(profile.Next(), std::nullopt);

  const HardwareProfile known = *profile.Profile();
  EXPECT_EQ(known.host, (HostLink{Nanos(6), 600, 700, 800, 1200}));
  EXPECT_EQ(known.device_kind, "cpu: test");
  EXPECT_EQ(known.flops_per_second, 1000);
  EXPECT_EQ(known.measured.size(), 2u);
  EXPECT_EQ(known.intra_node, (LinkCost{Nanos(1), 10}));
  EXPECT_EQ(known.inter_node, known.intra_node);
  EXPECT_EQ(known.overlap_slowdown_permille, 1200);
  EXPECT_EQ(known.communication_compute_permille, 90);
  EXPECT_EQ(profile.Failure(), "");
}

TEST(AgentProfile, FailuresAreToldAndNotTriedAgain) {
  AgentProfile profile = MakeProfile();
  profile.RecordLink(absl::InternalError("no loopback"));
  profile.RecordDevices(kRates, absl::InternalError("no rates"));
  EXPECT_FALSE(profile.Profile().has_value());
  profile.SetWanted({Shape(1), Shape(2)});
  profile.RecordDevices(ShapeTask(1), absl::DeadlineExceededError("took too long"));
  EXPECT_EQ(profile.Next(), ShapeTask(2));
  EXPECT_EQ(profile.FailedShapes(), std::vector<LayerShape>{Shape(1)});
  for (const char* part : {"no loopback", "no rates", "took too long", "tp 1"}) {
    EXPECT_NE(profile.Failure().find(part), std::string::npos) << profile.Failure();
  }
  profile.RecordDevices(ShapeTask(2), Result({2}));
  EXPECT_EQ(profile.Next(), std::nullopt);
  // The measurement of the shape has also given the rates. The link has the cost that the operator has stated.
  ASSERT_TRUE(profile.Profile().has_value());
  EXPECT_EQ(profile.Profile()->intra_node, (LinkCost{Nanos(7), 70}));
  EXPECT_EQ(profile.Failure().find("no rates"), std::string::npos);
}

TEST(AgentProfile, AShapeThatTheBudgetDidNotReachHasFailed) {
  AgentProfile profile = MakeProfile();
  profile.RecordLink(LinkResult{.link = {Nanos(1), 10}});
  profile.SetWanted({Shape(1)});
  profile.RecordDevices(ShapeTask(1), Result({}));
  EXPECT_EQ(profile.FailedShapes(), std::vector<LayerShape>{Shape(1)});
  EXPECT_NE(profile.Failure().find("within the time allowed"), std::string::npos);
  EXPECT_EQ(profile.Next(), std::nullopt);
}

TEST(AgentProfile, AFailedShapeThatIsWantedAnewIsTriedAnew) {
  AgentProfile profile = MakeProfile();
  profile.RecordLink(LinkResult{.link = {Nanos(1), 10}});
  profile.SetWanted({Shape(1)});
  profile.RecordDevices(ShapeTask(1), absl::InternalError("x"));
  profile.SetWanted({Shape(1)});
  EXPECT_EQ(profile.Next(), std::nullopt);
  profile.SetWanted({});
  EXPECT_TRUE(profile.FailedShapes().empty());
  profile.SetWanted({Shape(1)});
  EXPECT_EQ(profile.Next(), ShapeTask(1));
}

TEST(AgentProfile, WhatIsKnownStaysAsItIs) {
  AgentProfile profile = MakeProfile();
  profile.RecordLink(LinkResult{.link = {Nanos(1), 10}});
  profile.RecordDevices(kRates, Result({}, 1000));
  profile.SetWanted({Shape(1)});
  profile.RecordDevices(ShapeTask(1), Result({1}, 900));
  EXPECT_EQ(profile.Profile()->flops_per_second, 1000);
  EXPECT_EQ(profile.Profile()->bfloat16_flops_per_second, 2000);
}

TEST(AgentProfile, TheRateBetweenNodesCanBeStated) {
  AgentProfile profile = MakeProfile(55);
  profile.RecordLink(LinkResult{.link = {Nanos(1), 10}});
  profile.RecordDevices(kRates, Result({}));
  EXPECT_EQ(profile.Profile()->intra_node.bytes_per_second, 10);
  EXPECT_EQ(profile.Profile()->inter_node, (LinkCost{Nanos(1), 55}));
}

TEST(AgentProfile, HoldsABoundedNumberOfShapesAndKeepsTheWanted) {
  AgentProfile profile = MakeProfile();
  profile.RecordLink(LinkResult{.link = {Nanos(1), 10}});
  profile.SetWanted({Shape(1), Shape(70)});
  for (int32_t tp = 1; tp <= 70; ++tp) profile.RecordDevices(ShapeTask(tp), Result({tp}));
  const std::vector<ShapeTimes> measured = profile.Profile()->measured;
  EXPECT_EQ(measured.size(), AgentProfile::kMaxShapes);
  EXPECT_EQ(measured.front().shape, Shape(1));
  EXPECT_EQ(measured.back().shape, Shape(70));
  EXPECT_EQ(profile.Next(), std::nullopt);

  std::vector<LayerShape> many;
  for (int32_t tp = 100; tp < 200; ++tp) many.push_back(Shape(tp));
  profile.SetWanted(many);
  for (int i = 0; i < 1000; ++i) {
    const std::optional<MeasureTask> next = profile.Next();
    if (!next.has_value()) break;
    profile.RecordDevices(*next, Result({next->shape.tp}));
  }
  EXPECT_EQ(profile.Next(), std::nullopt);
}

const MeasureTask kGpuLinks{.kind = MeasureTaskKind::kGpuLinks};

TEST(AgentProfile, LinksBetweenGpusAreThoseInsideTheNode) {
  AgentProfile profile({Nanos(7), 70}, 0, /*gpus=*/2);
  profile.RecordLink(LinkResult{.link = {Nanos(50), 10}, .overlap_slowdown_permille = 1200});
  EXPECT_EQ(profile.Next(), kGpuLinks);
  EXPECT_EQ(profile.nccl_memory(), Bytes(0));
  const GpuLinksResult links{.link = {Nanos(3), 300},
                             .inner_links = {{2, {Nanos(2), 400}}},
                             .overlap_slowdown_permille = 1070,
                             .communication_compute_permille = 30,
                             .nccl_memory = kGiB,
                             .route_memory = kMiB};
  profile.RecordGpuLinks(links);
  EXPECT_EQ(profile.Next(), kRates);
  profile.RecordDevices(kRates, Result({}));
  const HardwareProfile known = *profile.Profile();
  EXPECT_EQ(known.intra_node, links.link);
  EXPECT_EQ(known.inner_links, links.inner_links);
  EXPECT_EQ(known.inter_node, (LinkCost{Nanos(50), 10})) << "over the node's address";
  EXPECT_EQ(known.overlap_slowdown_permille, 1070);
  EXPECT_EQ(known.communication_compute_permille, 30);
  EXPECT_EQ(profile.nccl_memory(), kGiB + kMiB * 8);
}

TEST(AgentProfile, WithoutLinksBetweenGpusTheAddressStandsInTheirPlaceAndItSaysSo) {
  AgentProfile profile({Nanos(7), 70}, 0, /*gpus=*/2);
  profile.RecordLink(LinkResult{.link = {Nanos(50), 10}});
  profile.RecordGpuLinks(absl::UnimplementedError("this build has no NCCL"));
  profile.RecordDevices(kRates, Result({}));
  EXPECT_EQ(profile.Profile()->intra_node, (LinkCost{Nanos(50), 10}));
  EXPECT_EQ(profile.Failure(), "this build has no NCCL; the link over the node's address stands in their place.");
}

TEST(AgentProfile, OneGpuHasNoLinkToMeasure) {
  AgentProfile profile({Nanos(7), 70}, 0, /*gpus=*/1);
  profile.RecordLink(LinkResult{.link = {Nanos(50), 10}});
  EXPECT_EQ(profile.Next(), kRates);
}

}  // namespace
}  // namespace lynx::agent
