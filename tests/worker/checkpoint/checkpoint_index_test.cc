#include "worker/checkpoint/checkpoint_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "common/digest.h"
#include "common/limits.h"
#include "planner/problem/layout_schedule.h"
#include "planner/problem/model_families.h"

namespace lynx::worker {
namespace {

using testing::HasSubstr;

CheckpointIndex SmallIndex() {
  CheckpointIndex index;
  index.identity.job = JobId("job-1");
  index.identity.generation = Generation(2);
  index.identity.step = 100;
  index.identity.seed = 18446744073709551615u;
  index.identity.model = {.layers = 2, .hidden = 8, .heads = 2, .ffn = 32, .seq = 4, .vocab = 13, .dropout = 0.1};
  index.identity.layout = {1, 2, 3};
  index.identity.data = {DataKind::kMegatron, Bytes(12345), std::string(64, 'c')};
  index.files = {{ShardFile({}, 0, 0, 0), Bytes(10), std::string(64, 'a')},
                 {ShardFile({}, 1, 0, 0), Bytes(20), std::string(64, 'b')}};
  return index;
}

// Replaces the digest in `text` by the digest of the changed text, and decodes the result. So the digest is right, and only the
// decoder's other checks can refuse the text.
absl::StatusOr<CheckpointIndex> Reread(std::string text) {
  const size_t digest = text.find("\"digest\":");
  EXPECT_NE(digest, std::string::npos);
  text.erase(digest, text.find(',', digest) + 1 - digest);
  std::string canonical;
  bool quoted = false;
  for (const char c : text) {
    quoted ^= c == '"';
    if (quoted || (c != ' ' && c != '\n')) canonical += c;
  }
  return DecodeIndex("{\"digest\":\"" + Sha256Hex(canonical) + "\"," + canonical.substr(1));
}

absl::Status Resigned(const std::string& text) { return Reread(text).status(); }

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(CheckpointIndex, ReadsWhatItWrites) {
  const auto index = DecodeIndex(EncodeIndex(SmallIndex()));
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->identity, SmallIndex().identity);
  EXPECT_EQ(index->files, SmallIndex().files);
}

TEST(CheckpointIndex, ReadsEverySortOfModel) {
  CheckpointIndex index = SmallIndex();
  index.identity.model.family = ModelFamily::kLlama;
  index.identity.model.dropout = 0;
  index.identity.model.kv_heads = 1;
  index.identity.model.attention = AttentionKernel::kFused;
  index.identity.model.tied_embeddings = true;
  EXPECT_EQ(DecodeIndex(EncodeIndex(index))->identity, index.identity);
}

// The index also stores fields that only some models have. If a run has other values in these fields, it must not begin from
// the checkpoint.
TEST(CheckpointIndex, KeepsWhatTheWeightsWereTrainedWith) {
  CheckpointIndex index = SmallIndex();
  EXPECT_EQ(EncodeIndex(index).find("rotary"), std::string::npos) << "the index of a plain model stays as it was";
  index.identity.model.family = ModelFamily::kLlama;
  index.identity.model.dropout = 0;
  const CheckpointIdentity plain = index.identity;
  const struct {
    std::function<void(ModelSpec&)> change;
    const char* field;
  } cases[] = {
      {[](ModelSpec& m) { m.head_dim = 6; }, "model.headDim is 6 in the checkpoint, 4 here"},
      {[](ModelSpec& m) { m.qkv_bias = true; }, "model.qkvBias is"},
      {[](ModelSpec& m) { m.qk_norm = true; }, "model.qkNorm is"},
      {[](ModelSpec& m) { m.qk_norm = m.qk_norm_whole = true; }, "model.qkNormWhole is"},
      {[](ModelSpec& m) { m.norm_epsilon = 1e-6; }, "model.normEpsilon is 1e-06 in the checkpoint, 1e-05 here"},
      {[](ModelSpec& m) { m.window = 4096; }, "model.window is 4096"},
      {[](ModelSpec& m) { m.rotary.theta = 5e5; }, "model.rope.theta is 500000 in the checkpoint, 10000 here"},
      {[](ModelSpec& m) { m.rotary.dims = 2; }, "model.rope.dims is 2"},
      {[](ModelSpec& m) { m.rotary = {.scaling = RopeScaling::kLinear, .factor = 2}; }, "model.rope.scaling is linear"},
      {[](ModelSpec& m) { m.rotary = {.scaling = RopeScaling::kYarn, .factor = 2, .original_seq = 7, .beta_fast = 3.5}; },
       "model.rope.betaFast is 3.5"},
      {[](ModelSpec& m) {
         m.rotary = {.scaling = RopeScaling::kLlama3, .factor = 2, .original_seq = 7, .high_freq_factor = 9};
       },
       "model.rope.highFreqFactor is 9"},
      {[](ModelSpec& m) { m.moe = {.experts = 8, .top_k = 2}; }, "model.moe.experts is 8 in the checkpoint, 0 here"},
      {[](ModelSpec& m) { m.moe = {.experts = 8, .top_k = 3, .normalized = false}; }, "model.moe.topK is 3 in the checkpoint"},
  };
  for (const auto& c : cases) {
    index.identity = plain;
    c.change(index.identity.model);
    const auto read = DecodeIndex(EncodeIndex(index));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->identity, index.identity);
    EXPECT_THAT(StartDifferenceText(index.identity, plain, /*continues=*/false), HasSubstr(c.field));
    EXPECT_THAT(RunDifferenceText(index.identity, plain), HasSubstr(c.field));
  }
}

TEST(CheckpointIndex, KeepsHowLatentAttentionWorks) {
  CheckpointIndex index = SmallIndex();
  ModelSpec& model = index.identity.model;
  model.family = ModelFamily::kLlama;
  model.attention = AttentionKernel::kFused;
  model.dropout = 0;
  model.rotary = {.dims = 2, .scaling = RopeScaling::kYarn, .factor = 4, .original_seq = 64, .mscale_all_dim = 0.5};
  model.latent = {.query_rank = 6, .kv_rank = 5, .value_dim = 3};
  const CheckpointIdentity here = index.identity;
  const struct {
    std::function<void(ModelSpec&)> change;
    const char* difference;
  } cases[] = {
      {[](ModelSpec& m) { m.latent.query_rank = 0; }, "model.latent.queryRank is 0 in the checkpoint, 6 here"},
      {[](ModelSpec& m) { m.latent.kv_rank = 4; }, "model.latent.kvRank is 4 in the checkpoint, 5 here"},
      {[](ModelSpec& m) { m.latent.value_dim = 9; }, "model.latent.valueDim is 9 in the checkpoint, 3 here"},
      {[](ModelSpec& m) { m.latent = {}, m.rotary.mscale_all_dim = 0; }, "model.latent.kvRank is 0 in the checkpoint, 5 here"},
      {[](ModelSpec& m) { m.rotary.mscale_all_dim = 0.25; }, "model.rope.mscaleAllDim is 0.25 in the checkpoint, 0.5 here"},
  };
  for (const auto& c : cases) {
    index.identity = here;
    c.change(index.identity.model);
    const auto read = DecodeIndex(EncodeIndex(index));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->identity, index.identity);
    EXPECT_THAT(StartDifferenceText(index.identity, here, /*continues=*/false), HasSubstr(c.difference));
  }
  const std::function<void(ModelSpec&)> damages[] = {
      [](ModelSpec& m) { m.rotary.dims = 0; }, [](ModelSpec& m) { m.rotary.dims = m.head_size() + 2; },
      [](ModelSpec& m) { m.latent.value_dim = 0; }, [](ModelSpec& m) { m.kv_heads = 1; },
      [](ModelSpec& m) { m.family = ModelFamily::kGpt; }};
  for (const auto& damage : damages) {
    index.identity = here;
    damage(index.identity.model);
    EXPECT_TRUE(absl::IsDataLoss(DecodeIndex(EncodeIndex(index)).status()));
  }
}

// With other experts, the weights are different weights. With another limit, skew or loss factor, only the run is different,
// and it may begin from these weights.
TEST(CheckpointIndex, KeepsHowExpertsWork) {
  CheckpointIndex index = SmallIndex();
  index.identity.model.family = ModelFamily::kLlama;
  index.identity.model.moe = {.experts = 8, .top_k = 2, .capacity = 1.25};
  const CheckpointIdentity here = index.identity;
  const struct {
    std::function<void(MoeSpec&)> change;
    const char* difference;
    bool of_weights;
  } cases[] = {
      {[](MoeSpec& m) { m.ffn = 24; }, "model.moe.ffn is 24 in the checkpoint, 32 here", true},
      {[](MoeSpec& m) { m.normalized = false; }, "model.moe.normalized is", true},
      {[](MoeSpec& m) { m.capacity = 2; }, "model.moe.capacity is 2 in the checkpoint, 1.25 here", false},
      {[](MoeSpec& m) { m.dropless = true; }, "model.moe.dropless is true in the checkpoint, false here", false},
      {[](MoeSpec& m) { m.skew = 1.5; }, "model.moe.skew is 1.5", false},
      {[](MoeSpec& m) { m.aux_loss = 0.01; }, "model.moe.auxLoss is 0.01", false},
      {[](MoeSpec& m) { m.z_loss = 0.001; }, "model.moe.zLoss is 0.001", false},
      {[](MoeSpec& m) { m.scores = RouterScores::kSigmoid; }, "model.moe.scores is sigmoid in the checkpoint, softmax here",
       true},
      {[](MoeSpec& m) { m.weight_scale = 2.5; }, "model.moe.weightScale is 2.5", true},
      {[](MoeSpec& m) { m.router_bias = true; }, "model.moe.routerBias is", true},
      {[](MoeSpec& m) { m.shared_ffn = 16; }, "model.moe.sharedFfn is 16 in the checkpoint, 0 here", true},
      {[](MoeSpec& m) { m.shared_gate = true; }, "model.moe.sharedGate is", true},
      {[](MoeSpec& m) { m.dense_layers = 1; }, "model.moe.denseLayers is 1 in the checkpoint, 0 here", true},
  };
  for (const auto& c : cases) {
    index.identity = here;
    c.change(index.identity.model.moe);
    const auto read = DecodeIndex(EncodeIndex(index));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->identity, index.identity);
    EXPECT_THAT(RunDifferenceText(index.identity, here), HasSubstr(c.difference));
    EXPECT_EQ(StartDifferenceText(index.identity, here, /*continues=*/false).empty(), !c.of_weights) << c.difference;
  }
  // With another rate of the biases, the run is a different run.
  index.identity = here;
  index.identity.model.moe.scores = RouterScores::kSigmoid;
  index.identity.model.moe.router_bias = true;
  CheckpointIdentity slower = index.identity;
  index.identity.model.moe.bias_rate = 0.001;
  EXPECT_EQ(DecodeIndex(EncodeIndex(index))->identity, index.identity);
  EXPECT_EQ(StartDifferenceText(index.identity, slower, /*continues=*/true), "");
  EXPECT_EQ(RunDifferenceText(index.identity, slower), "model.moe.biasRate is 0.001 in the checkpoint, 0 here");
  // Parts that are left out of training do not make a run different.
  CheckpointIdentity other = index.identity = here;
  other.model.plan_only = kLeftOutFeatures;
  EXPECT_EQ(RunDifferenceText(index.identity, other), "");
  // Here no expert has the width model.ffn, so model.ffn is the size of no weight.
  index.identity = here;
  index.identity.model.moe.ffn = 24;
  other = index.identity;
  other.model.ffn = 48;
  EXPECT_EQ(StartDifferenceText(index.identity, other, /*continues=*/true), "");
  EXPECT_EQ(RunDifferenceText(index.identity, other), "model.ffn is 32 in the checkpoint, 48 here");
  // If the first layers have no experts, model.ffn is their width.
  index.identity.model.moe.dense_layers = other.model.moe.dense_layers = 1;
  EXPECT_EQ(StartDifferenceText(index.identity, other, /*continues=*/true), "model.ffn is 32 in the checkpoint, 48 here");
  EXPECT_EQ(RunDifferenceText(index.identity, other), "model.ffn is 32 in the checkpoint, 48 here");
}

TEST(CheckpointIndex, ExpertsThatNoModelHasAreDamage) {
  CheckpointIndex index = SmallIndex();
  index.identity.model.family = ModelFamily::kLlama;
  index.identity.model.dropout = 0;
  index.identity.model.moe = {.experts = 8, .top_k = 2};
  EXPECT_EQ(DecodeIndex(EncodeIndex(index))->identity, index.identity);
  index.identity.model.moe.experts = 5000;
  EXPECT_TRUE(absl::IsDataLoss(DecodeIndex(EncodeIndex(index)).status()));
  index.identity.model.moe.experts = 8;
  index.identity.model.moe.dense_layers = index.identity.model.layers;
  EXPECT_TRUE(absl::IsDataLoss(DecodeIndex(EncodeIndex(index)).status())) << "no layer would have experts";
  index.identity.model.moe.dense_layers = 0;
  index.identity.model.family = ModelFamily::kGpt;
  EXPECT_TRUE(absl::IsDataLoss(DecodeIndex(EncodeIndex(index)).status()));
}

TEST(CheckpointIndex, ReadsEverySortOfLayout) {
  CheckpointIndex index = SmallIndex();
  index.identity.layout = {.pp = 2, .virtual_stages = 3, .schedule = ScheduleKind::kInterleaved};
  EXPECT_EQ(DecodeIndex(EncodeIndex(index))->identity, index.identity);
  index.identity.layout.weave = WeaveMode::kPairs;
  EXPECT_EQ(DecodeIndex(EncodeIndex(index))->identity, index.identity);
  index.identity.layout = {
      .pp = 2, .dp = 3, .sequence_parallel = true, .zero = ZeroStage::kOptimizer, .schedule = ScheduleKind::kChimera};
  index.identity.layout.rank_order = RankOrder::kTpDpPp;
  index.files.clear();
  for (const std::string& file : ShardFiles(index.identity.layout)) {
    index.files.push_back({file, Bytes(10), std::string(64, 'a')});
  }
  index.identity.layout.ep = 3;
  EXPECT_EQ(index.files.size(), 6u) << "every replica writes";
  EXPECT_EQ(index.files[5].file, "shard-0001-0000-0002.safetensors");
  EXPECT_EQ(DecodeIndex(EncodeIndex(index))->identity, index.identity);
}

// Releases before this version expect a file of every replica, so they must refuse the index. They can read all other indexes.
TEST(CheckpointIndex, FewerFilesThanReplicasAreAVersionOfTheirOwn) {
  CheckpointIndex index = SmallIndex();
  const auto files_of = [&](const ParallelLayout& layout, int32_t replicas) {
    index.identity.layout = layout;
    index.files.clear();
    for (int32_t i = 0; i < layout.tp * replicas; ++i) {
      index.files.push_back({ShardFile(layout, 0, i / replicas, i % replicas), Bytes(10), std::string(64, 'a')});
    }
  };
  for (const ParallelLayout& layout : {ParallelLayout{.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true},
                                       ParallelLayout{.dp = 2, .ep = 2}, ParallelLayout{.tp = 4, .dp = 2, .ep = 2}}) {
    files_of(layout, layout.tp % layout.ep == 0 ? 1 : layout.dp);
    EXPECT_THAT(EncodeIndex(index), HasSubstr("\"version\": 4"));
    EXPECT_EQ(DecodeIndex(EncodeIndex(index))->identity, index.identity);
  }
  const ParallelLayout layout{.tp = 2, .dp = 6, .ep = 4, .sequence_parallel = true};
  files_of(layout, 2);
  EXPECT_EQ(index.files.back().file, "shard-0000-0001-0001.safetensors");
  const std::string text = EncodeIndex(index);
  EXPECT_THAT(text, HasSubstr("\"version\": 5"));
  EXPECT_EQ(DecodeIndex(text)->files, index.files);
  const std::string former = Replaced(text, "\"version\": 5", "\"version\": 4");
  EXPECT_THAT(std::string(Resigned(former).message()), HasSubstr("4 files for tp2 pp1 dp6"));
  files_of(layout, 6);
  EXPECT_THAT(std::string(DecodeIndex(EncodeIndex(index)).status().message()), HasSubstr("12 files for tp2 pp1 dp6"));
  const absl::StatusOr<CheckpointIndex> read = Reread(Replaced(EncodeIndex(index), "\"version\": 5", "\"version\": 4"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->files, index.files);
}

TEST(CheckpointIndex, KeepsTheSlotsOfACustomSchedule) {
  CheckpointIndex index = SmallIndex();
  index.identity.layout = {.pp = 2, .schedule = ScheduleKind::kCustom};
  ASSERT_EQ(SetCustomSchedule("custom ranks=2 microbatches=1\n0F0 0B0\n1F0 1B0\n", index.identity.layout), absl::OkStatus());
  const auto read = DecodeIndex(EncodeIndex(index));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->identity, index.identity);
}

// A plan may have thousands of ranks, one stage after another. The index must be able to store all of them.
TEST(CheckpointIndex, ReadsAsManyRanksAsAJobMayHave) {
  for (const ParallelLayout& layout : {ParallelLayout{1, 1, kMaxRanks}, {8, 1, kMaxRanks / 8}, {1, 5000, 1}}) {
    CheckpointIndex index = SmallIndex();
    index.identity.layout = layout;
    index.files.clear();
    for (int32_t i = 0; i < layout.pp * layout.tp; ++i) {
      index.files.push_back({ShardFile({}, i / layout.tp, i % layout.tp, 0), Bytes(10), std::string(64, 'a')});
    }
    const auto read = DecodeIndex(EncodeIndex(index));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->identity, index.identity);
  }
}

TEST(CheckpointIndex, EveryTruncationAndRandomDamageIsRefused) {
  const std::string text = EncodeIndex(SmallIndex());
  for (size_t length = 0; length + 2 < text.size(); ++length) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeIndex(text.substr(0, length)).status())) << length;
  }
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = text;
    for (int i = 0; i < 2; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto index = DecodeIndex(damaged);  // white space between fields may differ without a change of meaning
    if (index.ok()) {
      EXPECT_EQ(index->identity, SmallIndex().identity) << "seed 11 round " << round;
    }
  }
}

TEST(CheckpointIndex, HostileFieldsAreRefusedByName) {
  const std::string text = EncodeIndex(SmallIndex());
  ASSERT_EQ(Resigned(text), absl::OkStatus());
  const struct {
    std::string from, to, message;
    absl::StatusCode code = absl::StatusCode::kDataLoss;
  } cases[] = {
      {"\"step\": 100", "\"step\": -1", "step is -1"},
      {"\"step\": 100", "\"step\": 1.5", "step is 1.5"},
      {"\"step\": 100", "\"step\": 9223372036854775808", "step is 9223372036854775808"},
      {"\"step\": 100", "\"stepx\": 100", "step is missing"},
      {"\"hidden\": 8", "\"hidden\": 4294967296", "hidden is 4294967296"},
      {"\"heads\": 2", "\"heads\": 0", "heads is 0"},
      {"\"heads\": 2", "\"heads\": \"2\"", "heads is \"2\""},
      {"\"pp\": 2", "\"pp\": 4000", "2 files for tp1 pp4000 dp3"},
      {"\"pp\": 2", "\"pp\": 2000000000", "pp is 2000000000"},
      {"\"pp\": 2", "\"pp\": 65536", "tp1 pp65536 dp3 is more than 65536 ranks"},
      {"\"kind\": \"megatron\"", "\"kind\": \"other\"", "data.kind is other"},
      {"\"bytes\": 12345", "\"bytes\": -1", "bytes is -1"},
      {"shard-0001-0000.safetensors", "../../../etc/passwd", "file 1 is not shard-0001-0000"},
      {"\"bytes\": 20", "\"bytes\": -20", "bytes is -20"},
      {"\"seed\": 18446744073709551615", "\"seed\": -1", "seed"},
      {"\"job\": \"job-1\"", "\"job\": 1", "job is not a string"},
      {"lynx-checkpoint", "other", "format is other"},
      {"\"schedule\": \"1f1b\"", "\"schedule\": \"auto\"", "layout.schedule is auto"},
      {"\"schedule\": \"1f1b\"", "\"schedule\": \"2f2b\"", "layout.schedule is 2f2b"},
      {"\"zero\": \"none\"", "\"zero\": \"auto\"", "layout.zero is auto"},
      {"\"zero\": \"none\"", "\"weave\": \"auto\", \"zero\": \"none\"", "layout.weave is auto"},
      {"\"schedule\": \"1f1b\"", "\"rank_order\": \"auto\", \"schedule\": \"1f1b\"", "layout.rank_order is auto"},
      {"\"virtual_stages\": 1", "\"virtual_stages\": 0", "virtual_stages is 0"},
      {"\"sequence_parallel\": false", "\"sequence_parallel\": 0", "sequence_parallel is neither true nor false"},
      {"\"kv_heads\": 0", "\"kv_heads\": -1", "kv_heads is -1"},
      {"\"family\": \"gpt\"", "\"family\": \"bert\"", "model.family is bert"},
      {"\"attention\": \"unfused\"", "\"attention\": \"none\"", "model.attention is none"},
      {"\"tied_embeddings\": false", "\"tied_embeddings\": 0", "tied_embeddings is neither true nor false"},
      {"\"version\": 4", "\"version\": 1", "format version 1", absl::StatusCode::kFailedPrecondition},
  };
  for (const auto& c : cases) {
    const absl::Status status = Resigned(Replaced(text, c.from, c.to));
    EXPECT_EQ(status.code(), c.code) << c.to << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.to;
  }
}

// Version 3 had no fields for the model's family and the family's features. In version 2 the layout had only tp, pp and dp.
TEST(CheckpointIndex, ReadsPreviousVersions) {
  std::string text = Replaced(EncodeIndex(SmallIndex()), "\"version\": 4", "\"version\": 3");
  const auto drop = [&](const char* line) { text = Replaced(text, line, ""); };
  const auto expect_read = [&] {
    const absl::StatusOr<CheckpointIndex> index = Reread(text);
    ASSERT_TRUE(index.ok()) << index.status() << text;
    EXPECT_EQ(index->identity, SmallIndex().identity);
  };
  drop("    \"attention\": \"unfused\",\n");
  drop("    \"family\": \"gpt\",\n");
  drop("    \"kv_heads\": 0,\n");
  drop("    \"tied_embeddings\": false,\n");
  expect_read();
  text = Replaced(text, "\"version\": 3", "\"version\": 2");
  drop("    \"schedule\": \"1f1b\",\n");
  drop("    \"sequence_parallel\": false,\n");
  drop(",\n    \"virtual_stages\": 1,\n    \"zero\": \"none\"");
  expect_read();
}

}  // namespace
}  // namespace lynx::worker
