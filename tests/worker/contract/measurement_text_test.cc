#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/contract/measurement.h"

namespace lynx::worker {
namespace {

using ::testing::HasSubstr;

LayerShape Shape() {
  return {.micro_batch = 2, .seq = 16, .hidden = 32, .heads = 4, .ffn = 128, .vocab = 256, .tp = 2, .dropout = true};
}

MeasureResult Result() {
  MeasureResult result{.device_kind = "cpu: \"x\"",
                       .measured = {},
                       .flops_per_second = 123456789012,
                       .bfloat16_flops_per_second = 234567890123,
                       .memory_bytes_per_second = 9876543210,
                       .op_overhead = Nanos(77),
                       .host = {Nanos(9), 1000, 2000, 2500, 1300}};
  ShapeTimes times;
  times.shape = Shape();
  for (const OpInfo& info : LayerGraph::Of(Shape()).ops()) {
    const int i = static_cast<int>(info.op);
    times.ops[i] = {Nanos(i + 1), Nanos(100 + i), Nanos(200 + i)};
  }
  times.optimizer_per_mega_parameter = Nanos(5);
  result.measured = {times, times};
  return result;
}

TEST(MeasureText, RequestRoundTrips) {
  const MeasureRequest request{.shapes = {Shape(), {}},
                               .device_kind = DeviceKind::kCuda,
                               .device_uuid = "GPU-1",
                               .cores = {3, 5},
                               .repetitions = 7,
                               .budget_seconds = 1.5};
  MeasureRequest valid = request;
  valid.shapes[1] = Shape();
  valid.shapes[1].sequence_parallel = true;
  valid.shapes[1].family = ModelFamily::kLlama;
  valid.shapes[1].kv_heads = 2;
  valid.shapes[1].attention = AttentionKernel::kFused;
  valid.shapes[1].dtype = DataType::kBfloat16;
  EXPECT_EQ(ParseMeasureRequest(MeasureRequestText(valid)).value(), valid);
}

LayerShape ShapeWithExperts() {
  LayerShape shape = Shape();
  shape.family = ModelFamily::kLlama;
  shape.dropout = false;
  shape.sequence_parallel = true;
  shape.experts = 8, shape.top_k = 2, shape.expert_ffn = 24, shape.ep = 4;
  shape.capacity_permille = 1250, shape.skew_permille = 1100, shape.dropless = true;
  shape.shared_ffn = 48, shape.shared_gate = true;
  return shape;
}

TEST(MeasureText, ExpertsRoundTripAndTheirErrorsNameTheField) {
  const MeasureRequest valid{.shapes = {ShapeWithExperts()}};
  EXPECT_EQ(ParseMeasureRequest(MeasureRequestText(valid)).value(), valid);
  const auto error = [](const auto& change) {
    MeasureRequest request{.shapes = {ShapeWithExperts()}};
    change(request.shapes[0]);
    return std::string(ParseMeasureRequest(MeasureRequestText(request)).status().message());
  };
  EXPECT_THAT(error([](LayerShape& s) { s.top_k = 9; }), HasSubstr("top_k' must be from 1 to experts"));
  EXPECT_THAT(error([](LayerShape& s) { s.expert_ffn = 0; }), HasSubstr("expert_ffn' must be positive"));
  EXPECT_THAT(error([](LayerShape& s) { s.shared_ffn = -1; }), HasSubstr("shared_ffn' must be 0 or more"));
  EXPECT_THAT(error([](LayerShape& s) { s.shared_ffn = 0; }), HasSubstr("shared_gate' must be false without shared_ffn"));
  EXPECT_THAT(error([](LayerShape& s) { s.experts = 0, s.ep = 1; }), HasSubstr("shared_ffn' must be 0 without experts"));
  EXPECT_THAT(error([](LayerShape& s) { s.ep = 3; }), HasSubstr("experts' must be a multiple of ep"));
  EXPECT_THAT(error([](LayerShape& s) { s.ep = 0; }), HasSubstr("ep' must be positive"));
  EXPECT_THAT(error([](LayerShape& s) { s.capacity_permille = 0; }), HasSubstr("capacity_permille' must be positive"));
  EXPECT_THAT(error([](LayerShape& s) { s.sequence_parallel = false; }), HasSubstr("sequence_parallel' must be true"));
  EXPECT_THAT(error([](LayerShape& s) { s.experts = 5000, s.ep = 1; }), HasSubstr("experts' must be from 0 to 4096"));
  EXPECT_THAT(error([](LayerShape& s) { s.family = ModelFamily::kGpt; }), HasSubstr("family' must be llama for experts"));
  EXPECT_THAT(error([](LayerShape& s) { s.experts = 0; }), HasSubstr("ep' must be 1 without experts"));
}

TEST(MeasureText, LatentsRoundTripAndTheirErrorsNameTheField) {
  const auto request = [](const auto& change) {
    LayerShape shape = Shape();
    shape.family = ModelFamily::kLlama;
    shape.attention = AttentionKernel::kFused;
    shape.head_dim = 10, shape.rotary_dims = 4;
    shape.query_rank = 7, shape.kv_rank = 6, shape.value_dim = 5;
    change(shape);
    return MeasureRequest{.shapes = {shape}};
  };
  const MeasureRequest valid = request([](LayerShape&) {});
  EXPECT_EQ(ParseMeasureRequest(MeasureRequestText(valid)).value(), valid);
  const auto error = [&](const auto& change) {
    return std::string(ParseMeasureRequest(MeasureRequestText(request(change))).status().message());
  };
  EXPECT_THAT(error([](LayerShape& s) { s.kv_rank = -1; }), HasSubstr("kv_rank' must be 0 or more"));
  EXPECT_THAT(error([](LayerShape& s) { s.kv_rank = 0; }), HasSubstr("query_rank' must be 0 without kv_rank"));
  EXPECT_THAT(error([](LayerShape& s) { s.kv_rank = s.query_rank = 0; }), HasSubstr("value_dim' must be 0 without kv_rank"));
  EXPECT_THAT(error([](LayerShape& s) { s.query_rank = -1; }), HasSubstr("query_rank' must be 0 or more"));
  EXPECT_THAT(error([](LayerShape& s) { s.value_dim = 0; }), HasSubstr("value_dim' must be positive"));
  EXPECT_THAT(error([](LayerShape& s) { s.family = ModelFamily::kGpt; }), HasSubstr("family' must be llama for latent"));
  EXPECT_THAT(error([](LayerShape& s) { s.attention = AttentionKernel::kUnfused; }), HasSubstr("attention' must be fused"));
  EXPECT_THAT(error([](LayerShape& s) { s.kv_heads = 2; }), HasSubstr("kv_heads' must be heads, or 0"));
  EXPECT_THAT(error([](LayerShape& s) { s.qk_norm = true; }), HasSubstr("kv_rank' must be 0 with qk_norm"));
  EXPECT_THAT(error([](LayerShape& s) { s.rotary_dims = 0; }), HasSubstr("rotary_dims' must be 2 or more"));
}

TEST(MeasureText, ResultRoundTrips) { EXPECT_EQ(ParseMeasureResult(MeasureResultText(Result())).value(), Result()); }

TEST(MeasureText, LinkRoundTrips) {
  const LinkRequest request{.host = "10.0.0.1",
                            .cores = {{0}, {1, 2}},
                            .repetitions = 3,
                            .budget_seconds = 2,
                            .pacing_bytes_per_second = 12,
                            .encrypt = true};
  EXPECT_EQ(ParseLinkRequest(LinkRequestText(request)).value(), request);
  const LinkResult result{.link = {Nanos(10), 20}, .overlap_slowdown_permille = 1100, .communication_compute_permille = 30};
  EXPECT_EQ(ParseLinkResult(LinkResultText(result)).value(), result);
}

std::string ErrorOf(const absl::Status& status) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(MeasureText, ADeviceHasAKindAndAGpuItsUuid) {
  MeasureRequest request{.device_kind = DeviceKind::kAny};
  EXPECT_THAT(ErrorOf(ParseMeasureRequest(MeasureRequestText(request)).status()),
              HasSubstr("'device_kind' must be cpu or cuda"));
  request.device_kind = DeviceKind::kCuda;
  EXPECT_THAT(ErrorOf(ParseMeasureRequest(MeasureRequestText(request)).status()), HasSubstr("'device_uuid'"));
  request = {.device_uuid = "GPU-1"};
  EXPECT_THAT(ErrorOf(ParseMeasureRequest(MeasureRequestText(request)).status()), HasSubstr("'device_uuid'"));
}

TEST(MeasureText, ErrorsNameTheField) {
  EXPECT_THAT(ErrorOf(ParseMeasureRequest("nonsense").status()), HasSubstr("JSON"));
  EXPECT_THAT(ErrorOf(ParseMeasureRequest("[]").status()), HasSubstr("object"));
  EXPECT_THAT(ErrorOf(ParseMeasureRequest(
                          R"({"device_kind":"cpu","device_uuid":"","cores":[],"repetitions":0,"budget_seconds":1,"shapes":[]})")
                          .status()),
              HasSubstr("'repetitions'"));
  EXPECT_THAT(
      ErrorOf(ParseMeasureRequest(
                  R"({"device_kind":"cpu","device_uuid":"","cores":"a","repetitions":1,"budget_seconds":1,"shapes":[]})")
                  .status()),
      HasSubstr("'cores'"));
  EXPECT_THAT(
      ErrorOf(ParseMeasureRequest(R"({"device_kind":"cpu","device_uuid":"","cores":[],"repetitions":1,"budget_seconds":1})")
                  .status()),
      HasSubstr("'shapes'"));
  EXPECT_THAT(
      ErrorOf(
          ParseMeasureRequest(
              R"({"device_kind":"cpu","device_uuid":"","cores":[],"repetitions":1,"budget_seconds":1,"shapes":[{"seq":1}]})")
              .status()),
      HasSubstr("'shapes[0].micro_batch'"));
  EXPECT_THAT(ErrorOf(ParseLinkResult(R"({"latency_ns":1,"bytes_per_second":0,"overlap_slowdown_permille":1000,
                                          "communication_compute_permille":0})")
                          .status()),
              HasSubstr("'bytes_per_second'"));
}

TEST(MeasureText, AShapeMustDivide) {
  MeasureRequest request{.shapes = {Shape()}};
  request.shapes[0].tp = 3;
  EXPECT_THAT(ErrorOf(ParseMeasureRequest(MeasureRequestText(request)).status()), HasSubstr("'shapes[0].heads'"));
  request.shapes[0] = Shape();
  request.shapes[0].sequence_parallel = true;
  request.shapes[0].seq = 15;
  EXPECT_THAT(ErrorOf(ParseMeasureRequest(MeasureRequestText(request)).status()), HasSubstr("'shapes[0].seq'"));
  request.shapes[0] = Shape();
  request.shapes[0].kv_heads = 3;
  EXPECT_THAT(ErrorOf(ParseMeasureRequest(MeasureRequestText(request)).status()), HasSubstr("'shapes[0].kv_heads'"));
  request.shapes[0].kv_heads = 1;  // two ranks cannot share one key head
  EXPECT_THAT(ErrorOf(ParseMeasureRequest(MeasureRequestText(request)).status()), HasSubstr("'shapes[0].kv_heads'"));
  request.shapes[0] = Shape();
  request.shapes[0].family = ModelFamily::kLlama;
  request.shapes[0].hidden = 36;
  EXPECT_THAT(ErrorOf(ParseMeasureRequest(MeasureRequestText(request)).status()), HasSubstr("'shapes[0].hidden'"));
}

TEST(MeasureText, UnknownNamesAreRefused) {
  std::string text = MeasureRequestText({.shapes = {Shape()}});
  text.replace(text.find("\"unfused\""), 9, "\"sparse\"");
  EXPECT_THAT(ErrorOf(ParseMeasureRequest(text).status()), HasSubstr("'shapes[0].attention'"));
  text.replace(text.find("\"gpt\""), 5, "\"bert\"");
  EXPECT_THAT(ErrorOf(ParseMeasureRequest(text).status()), HasSubstr("'shapes[0].family'"));
}

TEST(MeasureText, AResultWithoutAnOpIsRefused) {
  std::string text = MeasureResultText(Result());
  text.replace(text.find("\"gelu\""), 6, "\"golu\"");
  EXPECT_THAT(ErrorOf(ParseMeasureResult(text).status()), HasSubstr("'measured[0].ops.gelu'"));
}

GpuLinksRequest GpuRequest() {
  return {.host = "10.0.0.1",
          .device_uuids = {"GPU-a", "GPU-b", "GPU-c", "GPU-d"},
          .cores = {{0}, {1, 2}, {}, {3}},
          .blocks = {2},
          .repetitions = 7,
          .budget_seconds = 1.5};
}

TEST(MeasureText, LinksBetweenGpusComeBackTheSame) {
  EXPECT_EQ(ParseGpuLinksRequest(GpuLinksRequestText(GpuRequest())).value(), GpuRequest());
  const GpuLinksResult result{.link = {Nanos(4), 70},
                              .inner_links = {{2, {Nanos(3), 80}}, {4, {Nanos(5), 75}}},
                              .overlap_slowdown_permille = 1100,
                              .communication_compute_permille = 20,
                              .nccl_memory = Bytes(777),
                              .route_memory = Bytes(12345)};
  EXPECT_EQ(ParseGpuLinksResult(GpuLinksResultText(result)).value(), result);
}

TEST(MeasureText, LinksBetweenGpusMustMakeSense) {
  const auto request_error = [](auto change) {
    GpuLinksRequest request = GpuRequest();
    change(request);
    return ErrorOf(ParseGpuLinksRequest(GpuLinksRequestText(request)).status());
  };
  EXPECT_THAT(request_error([](auto& r) { r.device_uuids = {"GPU-a"}, r.cores = {}, r.blocks = {}; }),
              HasSubstr("'device_uuids'"));
  EXPECT_THAT(request_error([](auto& r) { r.cores.pop_back(); }), HasSubstr("'cores'"));
  for (const std::vector<int32_t>& blocks : std::vector<std::vector<int32_t>>{{0}, {3}, {4}, {2, 2}, {-2}}) {
    EXPECT_THAT(request_error([&](auto& r) { r.blocks = blocks; }), HasSubstr("'blocks'"));
  }
  EXPECT_THAT(request_error([](auto& r) { r.repetitions = 0; }), HasSubstr("'repetitions'"));
  EXPECT_THAT(request_error([](auto& r) { r.budget_seconds = 0; }), HasSubstr("'budget_seconds'"));
  const auto result_error = [](auto change) {
    GpuLinksResult result{.link = {Nanos(4), 70}, .inner_links = {{2, {Nanos(3), 80}}}};
    change(result);
    return ErrorOf(ParseGpuLinksResult(GpuLinksResultText(result)).status());
  };
  EXPECT_THAT(result_error([](auto& r) { r.link.bytes_per_second = 0; }), HasSubstr("'bytes_per_second'"));
  EXPECT_THAT(result_error([](auto& r) { r.inner_links[0].devices = 1; }), HasSubstr("'inner_links[0].devices'"));
  EXPECT_THAT(result_error([](auto& r) { r.inner_links[0].link.latency = Nanos(-1); }),
              HasSubstr("'inner_links[0].latency_ns'"));
  EXPECT_THAT(result_error([](auto& r) { r.overlap_slowdown_permille = 999; }), HasSubstr("'overlap_slowdown_permille'"));
  EXPECT_THAT(result_error([](auto& r) { r.communication_compute_permille = 1001; }),
              HasSubstr("'communication_compute_permille'"));
  EXPECT_THAT(result_error([](auto& r) { r.nccl_memory = Bytes(-1); }), HasSubstr("'nccl_bytes'"));
  EXPECT_THAT(result_error([](auto& r) { r.route_memory = Bytes(-1); }), HasSubstr("'route_bytes'"));
}

}  // namespace
}  // namespace lynx::worker
