#include "proto/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "tests/proto/random_values.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kSeed = 20260117;

TEST(ConvertTest, SpecsComeBackTheSame) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 500; ++i) {
    const JobSpec spec = lynx::testing::RandomSpec(random);
    v1::JobSpec parsed;
    ASSERT_TRUE(parsed.ParseFromString(ToProto(spec).SerializeAsString()));
    const absl::StatusOr<JobSpec> back = FromProto(parsed);
    ASSERT_TRUE(back.ok()) << i << ": " << back.status();
    EXPECT_EQ(*back, spec) << i;
  }
}

TEST(ConvertTest, SpecWithoutFfnIsNormalized) {
  std::mt19937_64 random(kSeed);
  JobSpec spec = lynx::testing::RandomSpec(random);
  v1::JobSpec message = ToProto(spec);
  message.mutable_model()->set_ffn(0);
  const absl::StatusOr<JobSpec> back = FromProto(message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->model.ffn, 4 * spec.model.hidden);
}

// A message without the field ep has no groups of experts.
TEST(ConvertTest, ExpertGroupsComeBackAndAreBounded) {
  const ParallelLayout layout{.tp = 2, .pp = 3, .dp = 4, .ep = 8};
  EXPECT_EQ(FromProto(ToProto(layout)).value(), layout);
  v1::ParallelLayout message = ToProto(layout);
  message.set_ep(0);
  EXPECT_EQ(FromProto(message)->ep, 1);
  message.set_ep(3);
  EXPECT_THAT(std::string(FromProto(message).status().message()),
              StartsWith("layout.ep is 3: must divide tp * cp * dp, which is 8"));
  message.set_ep(-1);
  EXPECT_THAT(std::string(FromProto(message).status().message()), StartsWith("layout.ep is -1: must be from 0"));
}

// Shapes with experts are the keys of measured profiles.
TEST(ConvertTest, ShapesWithExpertsComeBackAndAreBounded) {
  ModelSpec model{.layers = 2, .hidden = 16, .heads = 4, .ffn = 30, .seq = 8, .dropout = 0, .family = ModelFamily::kLlama};
  model.moe = {.experts = 8, .top_k = 2, .ffn = 20, .capacity = 1.25, .skew = 1.5, .shared_ffn = 24, .shared_gate = true};
  const LayerShape shape = ShapeOf(model, {.tp = 4, .dp = 2, .ep = 4, .sequence_parallel = true}, 2);
  const v1::LayerShape good = ToProto(shape);
  EXPECT_EQ(FromProto(good, "shape").value(), shape);
  struct Case {
    std::function<void(v1::ExpertShape&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](v1::ExpertShape& e) { e.set_experts(1); }, "shape.experts.experts is 1: must be from 2 to 4096"},
      {[](v1::ExpertShape& e) { e.set_experts(4097); }, "shape.experts.experts is 4097"},
      {[](v1::ExpertShape& e) { e.set_top_k(9); }, "shape.experts.top_k is 9: must be from 1 to 8"},
      {[](v1::ExpertShape& e) { e.set_ffn(0); }, "shape.experts.ffn is 0"},
      {[](v1::ExpertShape& e) { e.set_ep(0); }, "shape.experts.ep is 0"},
      {[](v1::ExpertShape& e) { e.set_ep(3); }, "shape.experts.experts is 8: must be a multiple of ep, which is 3"},
      {[](v1::ExpertShape& e) { e.set_capacity_permille(8001); }, "shape.experts.capacity_permille is 8001"},
      {[](v1::ExpertShape& e) { e.set_skew_permille(999); }, "shape.experts.skew_permille is 999: must be from 1000 to 8000"},
      {[](v1::ExpertShape& e) { e.set_shared_ffn(-1); }, "shape.experts.shared_ffn is -1"},
      {[](v1::ExpertShape& e) { e.set_shared_ffn(0); }, "shape.experts.shared_gate is true: must be false without shared_ffn"},
      {[](v1::ExpertShape& e) { e.set_capacity_permille(0), e.set_dropless(true); },
       "shape.experts.dropless is true: must be false without a capacity"},
  };
  for (const Case& c : cases) {
    v1::LayerShape message = good;
    c.change(*message.mutable_experts());
    EXPECT_THAT(std::string(FromProto(message, "shape").status().message()), StartsWith(c.message));
  }
}

TEST(ConvertTest, ShapesWithLatentAttentionComeBackAndAreBounded) {
  ModelSpec model{.layers = 2, .hidden = 16, .heads = 4, .ffn = 30, .seq = 8, .dropout = 0, .family = ModelFamily::kLlama};
  model.attention = AttentionKernel::kFused;
  model.rotary.dims = 2;
  model.latent = {.query_rank = 6, .kv_rank = 5, .value_dim = 3};
  const LayerShape shape = ShapeOf(model, {.tp = 2}, 2);
  const v1::LayerShape good = ToProto(shape);
  EXPECT_EQ(FromProto(good, "shape").value(), shape);
  const struct {
    std::function<void(v1::LayerShape&)> change;
    const char* message;
  } cases[] = {
      {[](v1::LayerShape& s) { s.mutable_latent()->set_query_rank(-1); }, "shape.latent.query_rank is -1: must be from 0"},
      {[](v1::LayerShape& s) { s.mutable_latent()->set_kv_rank(0); }, "shape.latent.kv_rank is 0: must be from 1"},
      {[](v1::LayerShape& s) { s.mutable_latent()->set_value_dim(0); }, "shape.latent.value_dim is 0: must be from 1"},
      {[](v1::LayerShape& s) { s.mutable_latent()->set_query_rank(131073); },
       "shape.latent.query_rank is 131073: must be from 0"},
      {[](v1::LayerShape& s) { s.mutable_latent()->set_kv_rank(131073); }, "shape.latent.kv_rank is 131073: must be from 1"},
      {[](v1::LayerShape& s) { s.mutable_latent()->set_value_dim(131073); }, "shape.latent.value_dim is 131073: must be"},
      {[](v1::LayerShape& s) { s.set_qk_norm(true); }, "shape.latent is present: must be in a llama with fused attention"},
      {[](v1::LayerShape& s) { s.set_qkv_bias(true); }, "shape.latent is present: must be in a llama with fused attention"},
      {[](v1::LayerShape& s) { s.set_rotary_dims(0); }, "shape.latent is present: must be in a llama with fused attention"},
      {[](v1::LayerShape& s) { s.set_kv_heads(2); }, "shape.latent is present: must be in a llama with fused attention"},
      {[](v1::LayerShape& s) { s.set_attention(v1::ATTENTION_KERNEL_UNFUSED); }, "shape.latent is present: must be in"},
  };
  for (const auto& c : cases) {
    v1::LayerShape message = good;
    c.change(message);
    EXPECT_THAT(std::string(FromProto(message, "shape").status().message()), StartsWith(c.message));
  }
}

v1::JobSpec GoodSpec() {
  JobSpec spec;
  spec.name = "gpt-bytes";
  spec.model = {.layers = 4, .hidden = 64, .heads = 4, .seq = 32};
  spec.data.path = "/data/text";
  spec.train.steps = 10;
  spec.train.global_batch = 16;
  spec.resources.max_ranks = 8;
  Normalize(spec);
  return ToProto(spec);
}

TEST(ConvertTest, BadSpecsNameTheField) {
  ASSERT_TRUE(FromProto(GoodSpec()).ok()) << FromProto(GoodSpec()).status();
  const double infinity = std::numeric_limits<double>::infinity();
  struct Case {
    std::function<void(v1::JobSpec&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](v1::JobSpec& s) { s.clear_model(); }, "model.layers is 0"},
      {[](v1::JobSpec& s) { s.clear_data(); }, "data.kind is 0: must be one of text (1)"},
      {[](v1::JobSpec& s) { s.mutable_data()->set_kind(static_cast<v1::DataKind>(9)); }, "data.kind is 9"},
      {[](v1::JobSpec& s) { s.mutable_data()->set_path("relative"); }, "data.path is \"relative\": must be an absolute path"},
      {[](v1::JobSpec& s) { s.mutable_data()->set_path("/a\nb"); }, "data.path is \"/a\\nb\": must not hold line ends"},
      {[](v1::JobSpec& s) { s.clear_train(); }, "train.schedule is 0"},
      {[](v1::JobSpec& s) { s.mutable_train()->set_schedule(static_cast<v1::LrSchedule>(-1)); }, "train.schedule is -1"},
      {[](v1::JobSpec& s) { s.mutable_train()->clear_optimizer(); }, "train.optimizer.lr is 0"},
      {[=](v1::JobSpec& s) { s.mutable_train()->mutable_optimizer()->set_lr(infinity); }, "train.optimizer.lr is inf"},
      {[](v1::JobSpec& s) { s.mutable_train()->set_steps(-1); }, "train.steps is -1"},
      {[](v1::JobSpec& s) { s.clear_resources(); }, "resources.ranks (least) is 0"},
      {[](v1::JobSpec& s) { s.mutable_resources()->set_activation_memory_per_rank_bytes(int64_t{1} << 60); },
       "resources.activationMemoryPerRank is 1152921504606846976: must be from 0"},
      {[](v1::JobSpec& s) { s.mutable_parallel()->set_tp(-2); }, "parallel.tp is -2"},
      {[](v1::JobSpec& s) { s.mutable_parallel()->set_ep(-2); }, "parallel.ep is -2"},
      {[](v1::JobSpec& s) { s.mutable_model()->mutable_moe()->set_experts(4097); }, "model.moe.experts is 4097"},
      {[](v1::JobSpec& s) { s.mutable_model()->mutable_moe()->set_top_k(2); }, "model.moe says how experts work"},
      {[](v1::JobSpec& s) { s.mutable_model()->mutable_moe()->set_shared_ffn(2); }, "model.moe says how experts work"},
      {[](v1::JobSpec& s) { s.mutable_model()->mutable_latent()->set_kv_rank(-1); }, "model.latent.kvRank is -1"},
      {[](v1::JobSpec& s) { s.mutable_model()->mutable_latent()->set_value_dim(2); }, "model.latent says how latent attention"},
      {[](v1::JobSpec& s) { s.clear_recompute(); }, "recompute is 0: must be one of auto (1)"},
      {[](v1::JobSpec& s) { s.set_recompute(static_cast<v1::RecomputeMode>(60)); }, "recompute is 60"},
      {[](v1::JobSpec& s) { s.clear_checkpoint(); }, "checkpoint.keep is 0"},
      {[](v1::JobSpec& s) { s.mutable_checkpoint()->set_directory("x/y"); }, "checkpoint.directory is \"x/y\""},
      {[](v1::JobSpec& s) { s.set_max_restarts(-1); }, "maxRestarts is -1"},
      {[](v1::JobSpec& s) { s.mutable_scheduling()->set_queue("Big"); }, "scheduling.queue is \"Big\": must be 1 to 48"},
      {[](v1::JobSpec& s) { s.mutable_scheduling()->set_priority(1001); }, "scheduling.priority is 1001: must be from -1000"},
      {[](v1::JobSpec& s) { s.mutable_scheduling()->add_after("a b"); }, "scheduling.after is \"a b\""},
      {[](v1::JobSpec& s) {
         for (int i = 0; i < 101; ++i) s.mutable_scheduling()->add_after("a");
       },
       "scheduling.after is 101 jobs long"},
      {[](v1::JobSpec& s) { s.mutable_scheduling()->set_time_limit_ns(-1); }, "scheduling.timeLimit is -1 ns"},
      {[](v1::JobSpec& s) { s.add_on_failure(); }, "onFailure (exit code) is -1"},
      {[](v1::JobSpec& s) { s.add_on_failure()->set_exit_code(256); }, "onFailure (exit code) is 256"},
      {[](v1::JobSpec& s) { s.add_on_failure()->set_log("a\nb"); }, "onFailure is log a"},
      {[](v1::JobSpec& s) { s.add_on_failure()->set_action(static_cast<v1::FailureAction>(3)); },
       "onFailure[0].action is 3: must be one of retry (0)"},
      {[](v1::JobSpec& s) {
         for (int i = 0; i < 33; ++i) s.add_on_failure()->set_exit_code(1);
       },
       "onFailure is 33 rules long"},
  };
  for (const Case& c : cases) {
    v1::JobSpec message = GoodSpec();
    c.change(message);
    const absl::Status status = FromProto(message).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), StartsWith(c.message));
  }
}

TEST(ConvertTest, LongValuesAreCutInErrors) {
  v1::JobSpec message = GoodSpec();
  message.mutable_data()->set_path(std::string(4000, 'p'));
  const absl::Status status = FromProto(message).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("ppp...\""));
  EXPECT_LT(status.message().size(), 300u);
}

TEST(ConvertTest, LayoutsComeBackAndAreBounded) {
  const ParallelLayout layout{2, 3, 4};
  EXPECT_EQ(FromProto(ToProto(layout)).value(), layout);
  v1::ParallelLayout zero = ToProto(layout);
  zero.set_pp(0);
  EXPECT_THAT(std::string(FromProto(zero, "x").status().message()), StartsWith("x.pp is 0: must be from 1"));
  const v1::ParallelLayout large = ToProto(ParallelLayout{65536, 65536, 65536});
  EXPECT_THAT(std::string(FromProto(large).status().message()), StartsWith("layout.tp * pp * dp is"));
}

TEST(ConvertTest, ProfilesComeBackTheSame) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 200; ++i) {
    const HardwareProfile profile = lynx::testing::RandomProfile(random);
    v1::HardwareProfile parsed;
    ASSERT_TRUE(parsed.ParseFromString(ToProto(profile).SerializeAsString()));
    const absl::StatusOr<HardwareProfile> back = FromProto(parsed);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, profile);
  }
}

TEST(ConvertTest, ClustersComeBackTheSame) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 20; ++i) {
    ClusterTopology cluster = UniformCluster(3, 4, lynx::testing::RandomProfile(random), Bytes(1 << 30));
    cluster.groups[0].profile.inner_links.clear();  // random inner links need not divide the 4 devices of a node, as they must
    cluster.groups[0].name = "first";
    cluster.groups[0].host_memory = Bytes(int64_t{1} << 40);
    cluster.groups[0].host_is_device = true;
    cluster.groups.push_back(cluster.groups[0]);
    cluster.groups[1].nodes = 1;
    cluster.shared_cores = {{.devices = {0, 2}, .at_once_permille = 1000}, {.devices = {1, 3, 15}, .at_once_permille = 1500}};
    const absl::StatusOr<ClusterTopology> back = FromProto(ToProto(cluster));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, cluster);
  }
}

TEST(ConvertTest, BadClustersNameTheField) {
  using C = v1::ClusterTopology;
  const std::pair<std::function<void(C&)>, const char*> cases[] = {
      {[](C& c) { c.clear_groups(); }, "cluster.groups is 0 entries long"},
      {[](C& c) { c.mutable_groups(0)->set_name(std::string(300, 'n')); }, "cluster.groups[0].name is 300 characters long"},
      {[](C& c) { c.mutable_groups(0)->set_memory_per_device_bytes(-1); }, "cluster.groups[0].memory_per_device_bytes is -1"},
      {[](C& c) { c.mutable_groups(0)->set_host_memory_bytes(-1); }, "cluster.groups[0].host_memory_bytes is -1"},
      {[](C& c) { c.mutable_groups(0)->set_nodes(0); }, "cluster: "},
      {[](C& c) { c.mutable_groups(0)->mutable_profile()->set_flops_per_second(-1); },
       "cluster.groups[0].profile.flops_per_second is -1"},
      {[](C& c) { c.add_shared_cores(); }, "cluster.shared_cores[0].devices is 0 entries long"},
      {[](C& c) { c.add_shared_cores()->add_devices(0); }, "cluster: shared cores of the cluster carry 0 thousandths"},
  };
  for (const auto& [change, message] : cases) {
    C cluster = ToProto(UniformCluster(2, 2, StatedCpuProfile()));
    change(cluster);
    EXPECT_THAT(std::string(FromProto(cluster).status().message()), StartsWith(message));
  }
}

TEST(ConvertTest, BadProfilesNameTheField) {
  HardwareProfile good;
  good.flops_per_second = good.memory_bytes_per_second = 1;
  good.intra_node = good.inter_node = {Nanos(1), 1};
  good.measured.push_back({.shape = {.micro_batch = 1, .seq = 8, .hidden = 16, .heads = 4, .ffn = 32, .vocab = 256}});
  ASSERT_TRUE(FromProto(ToProto(good)).ok()) << FromProto(ToProto(good)).status();
  using P = v1::HardwareProfile;
  struct Case {
    std::function<void(P&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](P& p) { p.set_device_kind(std::string(300, 'k')); }, "profile.device_kind is 300 characters long"},
      {[](P& p) { p.set_flops_per_second(0); }, "profile.flops_per_second is 0"},
      {[](P& p) { p.set_memory_bytes_per_second(-5); }, "profile.memory_bytes_per_second is -5"},
      {[](P& p) { p.set_op_overhead_ns(-1); }, "profile.op_overhead_ns is -1"},
      {[](P& p) { p.clear_intra_node(); }, "profile.intra_node.bytes_per_second is 0"},
      {[](P& p) { p.mutable_inter_node()->set_latency_ns(-1); }, "profile.inter_node.latency_ns is -1"},
      {[](P& p) { p.set_overlap_slowdown_permille(999); }, "profile.overlap_slowdown_permille is 999"},
      {[](P& p) { p.set_communication_compute_permille(1001); }, "profile.communication_compute_permille is 1001"},
      {[](P& p) { *p.add_measured() = p.measured(0); }, "profile.measured[1].shape is repeated"},
      {[](P& p) { p.mutable_measured(0)->mutable_shape()->set_tp(3); },
       "profile.measured[0].shape.heads is 4: must be a multiple of tp, which is 3"},
      {[](P& p) { p.mutable_measured(0)->mutable_shape()->set_seq(-8); }, "profile.measured[0].shape.seq is -8"},
      {[](P& p) { p.mutable_measured(0)->mutable_ops(2)->set_op("nothing"); },
       "profile.measured[0].ops[2].op is \"nothing\": the shape's layers have no op of this name"},
      {[](P& p) { p.mutable_measured(0)->mutable_ops(2)->set_op(p.measured(0).ops(1).op()); },
       "profile.measured[0].ops[2].op is \"position\": must appear once"},
      {[](P& p) { p.mutable_measured(0)->mutable_ops()->RemoveLast(); },
       "profile.measured[0].ops is incomplete: op loss is missing"},
      {[](P& p) { p.mutable_measured(0)->mutable_ops(3)->set_backward_ns(-1); },
       "profile.measured[0].ops[3].backward_ns is -1"},
      {[](P& p) { p.mutable_measured(0)->set_optimizer_ns_per_mega_parameter(int64_t{1} << 60); },
       "profile.measured[0].optimizer_ns_per_mega_parameter is 1152921504606846976"},
      {[](P& p) {
         const v1::ShapeTimes first = p.measured(0);
         for (int i = 0; i < 64; ++i) *p.add_measured() = first;
       },
       "profile.measured is 65 entries long"},
      {[](P& p) { p.set_bfloat16_flops_per_second(-1); }, "profile.bfloat16_flops_per_second is -1"},
      {[](P& p) { p.set_float8_flops_per_second(-1); }, "profile.float8_flops_per_second is -1"},
      {[](P& p) { p.set_float4_flops_per_second(-1); }, "profile.float4_flops_per_second is -1"},
      {[](P& p) { p.set_adapters(-1); }, "profile.adapters is -1"},
      {[](P& p) { p.set_pod_nodes(-1); }, "profile.pod_nodes is -1"},
      {[](P& p) { p.set_oversubscription_permille(999); }, "profile.oversubscription_permille is 999"},
      {[](P& p) { p.add_efficiency(); }, "profile.efficiency is 6 entries long"},
      {[](P& p) { p.mutable_efficiency(1)->add_points()->set_permille(1); }, "profile.efficiency[1].points[0].size is 0"},
      {[](P& p) { p.mutable_efficiency(1)->add_points()->set_size(1); }, "profile.efficiency[1].points[0].permille is 0"},
      {[](P& p) {
         for (int64_t size : {9, 9}) {
           v1::EfficiencyPoint& point = *p.mutable_efficiency(0)->add_points();
           point.set_size(size);
           point.set_permille(5);
         }
       },
       "profile.efficiency[0].points[1].size is 9: must be from 10"},
      {[](P& p) {
         for (int i = 0; i < 65; ++i) p.mutable_efficiency(0)->add_points();
       },
       "profile.efficiency[0].points is 65 entries long"},
      {[](P& p) { p.mutable_gemm_tiles()->set_rows(-1); }, "profile.gemm_tiles.rows is -1"},
      {[](P& p) { p.add_inner_links()->set_devices(1); }, "profile.inner_links[0].devices is 1"},
      {[](P& p) { p.add_inner_links()->set_devices(2); }, "profile.inner_links[0].link.bytes_per_second is 0"},
      {[](P& p) {
         for (int i = 0; i < 5; ++i) p.add_inner_links();
       },
       "profile.inner_links is 5 entries long"},
      {[](P& p) { p.mutable_host()->set_latency_ns(-1); }, "profile.host.latency_ns is -1"},
      {[](P& p) { p.mutable_host()->set_to_host_bytes_per_second(-2); }, "profile.host.to_host_bytes_per_second is -2"},
      {[](P& p) { p.mutable_host()->set_from_host_bytes_per_second(-2); }, "profile.host.from_host_bytes_per_second is -2"},
      {[](P& p) { p.mutable_host()->set_both_bytes_per_second(-2); }, "profile.host.both_bytes_per_second is -2"},
      {[](P& p) { p.mutable_host()->set_op_slowdown_permille(999); }, "profile.host.op_slowdown_permille is 999"},
  };
  for (const Case& c : cases) {
    P message = ToProto(good);
    c.change(message);
    const absl::Status status = FromProto(message).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), StartsWith(c.message));
  }
}

}  // namespace
}  // namespace lynx
