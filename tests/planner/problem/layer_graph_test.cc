#include "planner/problem/layer_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "planner/problem/layout.h"

namespace lynx {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kTransformer = LayerType::kTransformer;

// Returns a shape with b = 2, s = 8, h = 12, a = 4, f = 40, v = 7, t = 2.
LayerShape SmallShape() {
  return {.micro_batch = 2, .seq = 8, .hidden = 12, .heads = 4, .ffn = 40, .vocab = 7, .tp = 2, .dropout = true};
}

TEST(LayerGraphTest, SegmentsRunTheirOpsInTheOrderOfThePass) {
  using enum Op;
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(kTransformer, Segment::kAttn, Pass::kForward),
              ElementsAre(kLn1, kQkv, kProbs, kContext, kProj));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(kTransformer, Segment::kMlp, Pass::kForward),
              ElementsAre(kAdd1, kLn2, kFc1, kGelu, kFc2));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(kTransformer, Segment::kEnd, Pass::kForward), ElementsAre(kAdd2));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(kTransformer, Segment::kMlp, Pass::kBackward), ElementsAre(kAdd2, kFc2, kGelu, kFc1));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(kTransformer, Segment::kAttn, Pass::kBackward),
              ElementsAre(kLn2, kAdd1, kProj, kContext, kProbs, kQkv));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(kTransformer, Segment::kEnd, Pass::kBackward), ElementsAre(kLn1));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(kTransformer, Segment::kMlp, Pass::kWeight), ElementsAre(kAdd2, kFc2, kFc1));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(kTransformer, Segment::kAttn, Pass::kWeight), ElementsAre(kAdd1, kProj, kQkv));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(kTransformer, Segment::kEnd, Pass::kWeight), IsEmpty());
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(LayerType::kEmbedding, Segment::kEmbed, Pass::kForward), ElementsAre(kEmbed));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(LayerType::kEmbedding, Segment::kEnd, Pass::kForward), ElementsAre(kPosition));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(LayerType::kEmbedding, Segment::kEmbed, Pass::kBackward),
              ElementsAre(kPosition, kEmbed));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(LayerType::kHead, Segment::kHead, Pass::kForward), ElementsAre(kLnf, kLogits));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(LayerType::kHead, Segment::kEnd, Pass::kForward), ElementsAre(kLoss));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(LayerType::kHead, Segment::kHead, Pass::kBackward), ElementsAre(kLoss, kLogits));
  EXPECT_THAT(LayerGraph::Of({}).OpsOf(LayerType::kHead, Segment::kHead, Pass::kWeight), ElementsAre(kLogits));
}

TEST(LayerGraphTest, EveryOpRunsOnceInEachPassOfItsLayer) {
  for (const OpInfo& info : LayerGraph::Of({}).ops()) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      int runs = 0;
      for (const Segment segment : LayerGraph::Of({}).SegmentsOf(info.layer_type, pass)) {
        const std::vector<Op> ops = LayerGraph::Of({}).OpsOf(info.layer_type, segment, pass);
        runs += static_cast<int>(std::count(ops.begin(), ops.end(), info.op));
      }
      EXPECT_EQ(runs, 1) << EnumName(info.op);
    }
  }
}

TEST(LayerGraphTest, CollectivesEndTheSegmentsOfMegatron) {
  const auto ends = [](LayerType type, Pass pass) {
    std::vector<Segment> ended;
    for (const Segment s : LayerGraph::Of({}).SegmentsOf(type, pass)) {
      if (LayerGraph::Of({}).EndsInCollective(type, s, pass)) ended.push_back(s);
    }
    return ended;
  };
  EXPECT_THAT(ends(kTransformer, Pass::kForward), ElementsAre(Segment::kAttn, Segment::kMlp));
  EXPECT_THAT(ends(kTransformer, Pass::kBackward), ElementsAre(Segment::kMlp, Segment::kAttn));
  EXPECT_THAT(ends(LayerType::kEmbedding, Pass::kForward), ElementsAre(Segment::kEmbed));
  EXPECT_THAT(ends(LayerType::kEmbedding, Pass::kBackward), IsEmpty());
  EXPECT_THAT(ends(LayerType::kHead, Pass::kForward), ElementsAre(Segment::kHead));
  EXPECT_THAT(ends(LayerType::kHead, Pass::kBackward), ElementsAre(Segment::kHead));
  EXPECT_FALSE(LayerGraph::Of({}).EndsInCollective(kTransformer, Segment::kHead, Pass::kForward));

  const LayerShape shape = SmallShape();
  EXPECT_EQ(CollectiveBytes(kTransformer, Segment::kAttn, Pass::kForward, shape), Bytes(2 * 8 * 12 * 4));
  EXPECT_EQ(CollectiveBytes(LayerType::kHead, Segment::kHead, Pass::kForward, shape), Bytes(2 * 2 * 8 * 3 * 4));
  EXPECT_EQ(CollectiveBytes(LayerType::kHead, Segment::kHead, Pass::kBackward, shape), Bytes(2 * 8 * 12 * 4));
  EXPECT_EQ(CollectiveBytes(kTransformer, Segment::kEnd, Pass::kForward, shape), Bytes(0));
}

TEST(LayerGraphTest, EveryRecomputableTensorHasItsProducers) {
  using enum Op;
  EXPECT_EQ(LayerGraph::Of({}).recomputable().size(), 8u);
  EXPECT_THAT(LayerGraph::Of({}).ProducersOf(Tensor::kX1), ElementsAre(kProj, kAdd1));
  EXPECT_THAT(LayerGraph::Of({}).ProducersOf(Tensor::kLn1), ElementsAre(kLn1));
  EXPECT_THAT(LayerGraph::Of({}).ProducersOf(Tensor::kContext), ElementsAre(kContext));
  EXPECT_THAT(LayerGraph::Of({}).ProducersOf(Tensor::kGelu), ElementsAre(kGelu));
}

TEST(LayerGraphTest, TensorSizes) {
  const LayerShape shape = SmallShape();
  const auto elements = [&](Tensor t) { return TensorBytes(t, shape).value / 4; };
  EXPECT_EQ(elements(Tensor::kX), 2 * 8 * 12);
  EXPECT_EQ(elements(Tensor::kQkv), 2 * 8 * 3 * 6);
  EXPECT_EQ(elements(Tensor::kProbs), 2 * 2 * 8 * 8);
  EXPECT_EQ(elements(Tensor::kContext), 2 * 8 * 6);
  EXPECT_EQ(elements(Tensor::kFc1), 2 * 8 * 20);
  EXPECT_EQ(elements(Tensor::kLogits), 2 * 8 * 4);  // ceil(7 / 2) columns
  EXPECT_EQ(elements(Tensor::kLossStats), 2 * 2 * 8 * 3);
  EXPECT_EQ(elements(Tensor::kGradQkv), elements(Tensor::kQkv));
}

TEST(LayerGraphTest, WorkspaceIsOneScoreSquareForwardAndTwoBackward) {
  LayerShape shape = SmallShape();
  EXPECT_EQ(WorkspaceBytes(Op::kContext, Pass::kForward, shape), Bytes(8 * 8 * 4));
  EXPECT_EQ(WorkspaceBytes(Op::kContext, Pass::kBackward, shape), Bytes(2 * 8 * 8 * 4));
  EXPECT_EQ(WorkspaceBytes(Op::kLoss, Pass::kForward, shape), Bytes(0));
  shape.dropout = false;
  EXPECT_EQ(WorkspaceBytes(Op::kContext, Pass::kForward, shape), Bytes(0));
}

// The elements of tensors have 16 bits. Attention works on copies in fp32: of all keys and values of one head (s x d = 8 x 3),
// and of some rows of the head's other operands.
TEST(LayerGraphTest, WorkspaceInBfloat16HasPartsOfAHeadIn32Bits) {
  LayerShape shape = SmallShape();
  shape.dtype = DataType::kBfloat16;
  const int64_t head = 8 * shape.hidden / shape.heads * 4;  // all positions fit in one round
  const int64_t scores = 8 * 8 * 4;
  EXPECT_EQ(WorkspaceBytes(Op::kProbs, Pass::kForward, shape), Bytes(scores + 2 * head));
  EXPECT_EQ(WorkspaceBytes(Op::kContext, Pass::kForward, shape), Bytes(scores + 2 * head));
  EXPECT_EQ(WorkspaceBytes(Op::kContext, Pass::kBackward, shape), Bytes(2 * scores + 7 * head));
  shape.dropout = false;
  EXPECT_EQ(WorkspaceBytes(Op::kContext, Pass::kForward, shape), Bytes(scores + 2 * head));
  shape.attention = AttentionKernel::kFused;
  EXPECT_EQ(WorkspaceBytes(Op::kFlash, Pass::kForward, shape), Bytes(4 * head));
  EXPECT_EQ(WorkspaceBytes(Op::kFlash, Pass::kBackward, shape), TensorBytes(Tensor::kLse, shape) + Bytes(7 * head));
}

// The model FLOPs of one training pass over B sequences are 72 B L s h^2 (1 + s/6h + v/12hL) (Korthikanti et al. 2022, for f =
// 4h). They are all products of the forward pass, of the input gradients and of the weight gradients.
TEST(LayerGraphTest, FlopsAddUpToThePublishedFormula) {
  const int64_t b = 3, s = 16, h = 32, v = 48, layers = 1;
  const LayerShape shape{.micro_batch = 3, .seq = 16, .hidden = 32, .heads = 4, .ffn = 128, .vocab = 48, .tp = 1};
  int64_t total = 0;
  for (const OpInfo& info : LayerGraph::Of({}).ops()) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward, Pass::kWeight}) total += OpFlops(info.op, pass, shape);
  }
  EXPECT_EQ(total, 72 * b * layers * s * h * h + 12 * b * layers * s * s * h + 6 * b * s * h * v);

  LayerShape sharded = shape;
  sharded.tp = 4;
  for (const OpInfo& info : LayerGraph::Of({}).ops()) {
    EXPECT_EQ(OpFlops(info.op, Pass::kForward, sharded) * 4, OpFlops(info.op, Pass::kForward, shape)) << EnumName(info.op);
  }
}

TEST(LayerGraphTest, TrafficCountsTensorsAndWeights) {
  const LayerShape shape = SmallShape();
  const int64_t x = 2 * 8 * 12 * 4;
  EXPECT_EQ(OpTraffic(Op::kLn1, Pass::kForward, shape), Bytes(2 * x + 2 * 12 * 4));
  EXPECT_EQ(OpTraffic(Op::kAdd1, Pass::kForward, shape), Bytes(3 * x + 12 * 4));
  EXPECT_EQ(OpTraffic(Op::kGelu, Pass::kBackward, shape), Bytes(3 * 2 * 8 * 20 * 4));
  EXPECT_EQ(OpTraffic(Op::kGelu, Pass::kWeight, shape), Bytes(0));
  EXPECT_EQ(OpTraffic(Op::kFc1, Pass::kWeight, shape), Bytes(x + 2 * 8 * 20 * 4 + 2 * (13 * 20) * 4));
  EXPECT_EQ(OpTraffic(Op::kEmbed, Pass::kForward, shape), Bytes(2 * x));
  for (const OpInfo& info : LayerGraph::Of({}).ops()) {
    EXPECT_GT(OpTraffic(info.op, Pass::kForward, shape), Bytes(0)) << EnumName(info.op);
    EXPECT_GT(OpTraffic(info.op, Pass::kBackward, shape), Bytes(0)) << EnumName(info.op);
  }
}

TEST(LayerGraphTest, ParametersOfALayer) {
  // A layer has 12 h^2 + 13 h parameters if f = 4h (Narayanan et al. 2021).
  const LayerShape whole{.micro_batch = 1, .seq = 16, .hidden = 32, .heads = 4, .ffn = 128, .vocab = 48, .tp = 1};
  EXPECT_EQ(LayerParameters(kTransformer, whole), 12 * 32 * 32 + 13 * 32);
  EXPECT_EQ(LayerParameters(LayerType::kEmbedding, whole), (48 + 16) * 32);
  EXPECT_EQ(LayerParameters(LayerType::kHead, whole), 48 * 32 + 2 * 32);
  LayerShape sharded = whole;
  sharded.tp = 4;
  EXPECT_EQ(LayerParameters(kTransformer, sharded), 3 * 32 * 32 + (3 * 8 + 32) + 6 * 32);
}

TEST(LayerGraphTest, NamesAreDistinctAndParseBack) {
  std::set<std::string_view> names;
  for (const OpInfo& info : LayerGraph::Of({}).ops()) {
    Op op;
    ASSERT_TRUE(ParseEnum(EnumName(info.op), op));
    EXPECT_EQ(op, info.op);
    EXPECT_TRUE(names.insert(EnumName(info.op)).second);
  }
  EXPECT_EQ(names.size(), LayerGraph::Of({}).ops().size());
  names.clear();
  for (int i = 0; i < kTensorCount; ++i) {
    Tensor tensor;
    ASSERT_TRUE(ParseEnum(EnumName(static_cast<Tensor>(i)), tensor));
    EXPECT_EQ(tensor, static_cast<Tensor>(i));
    EXPECT_TRUE(names.insert(EnumName(tensor)).second);
  }
  for (const Segment s : {Segment::kEmbed, Segment::kAttn, Segment::kMlp, Segment::kHead, Segment::kEnd}) {
    Segment segment;
    ASSERT_TRUE(ParseEnum(EnumName(s), segment));
    EXPECT_EQ(segment, s);
  }
  Op op;
  Tensor tensor;
  Segment segment;
  EXPECT_FALSE(ParseEnum("softmax", op));
  EXPECT_FALSE(ParseEnum("", tensor));
  EXPECT_FALSE(ParseEnum("none", segment));
  EXPECT_STREQ(EnumName(LayerType::kHead), "head");
}

TEST(LayoutTest, RanksNumberTensorThenStageThenData) {
  const ParallelLayout layout{.tp = 2, .pp = 3, .dp = 2};
  EXPECT_EQ(LayoutText(layout), "tp2 pp3 dp2");
  EXPECT_EQ(RankOf(layout, {.tp = 1, .stage = 0, .dp = 0}), 1);
  EXPECT_EQ(RankOf(layout, {.tp = 0, .stage = 1, .dp = 0}), 2);
  EXPECT_EQ(RankOf(layout, {.tp = 0, .stage = 0, .dp = 1}), 6);
  for (int32_t rank = 0; rank < layout.ranks(); ++rank) EXPECT_EQ(RankOf(layout, CoordinatesOf(layout, rank)), rank);
}

TEST(LayoutTest, ReplicasMayBeNumberedBeforeStages) {
  const ParallelLayout layout{.tp = 2, .pp = 3, .dp = 2, .cp = 2, .rank_order = RankOrder::kTpDpPp};
  EXPECT_EQ(LayoutText(layout), "tp2 pp3 dp2 cp2 order-tp-dp-pp");
  EXPECT_EQ(RankOf(layout, {.tp = 1}), 1);
  EXPECT_EQ(RankOf(layout, {.cp = 1}), 2);
  EXPECT_EQ(RankOf(layout, {.dp = 1}), 4);
  EXPECT_EQ(RankOf(layout, {.stage = 1}), 8);
  for (int32_t rank = 0; rank < layout.ranks(); ++rank) EXPECT_EQ(RankOf(layout, CoordinatesOf(layout, rank)), rank);
}

TEST(LayoutTest, OneStageOrOneReplicaHasOneOrder) {
  ParallelSpec spec{.pp = 2, .dp = 2, .rank_order = RankOrder::kTpDpPp};
  EXPECT_EQ(PinnedLayout(spec).rank_order, RankOrder::kTpDpPp);
  EXPECT_EQ(SpecOf(PinnedLayout(spec), spec).rank_order, RankOrder::kTpDpPp);
  spec.pp = 1;
  EXPECT_EQ(PinnedLayout(spec).rank_order, RankOrder::kTpPpDp);
  spec = {.pp = 2, .dp = 1, .rank_order = RankOrder::kTpDpPp};
  EXPECT_EQ(PinnedLayout(spec).rank_order, RankOrder::kTpPpDp);
}

// Returns the bytes of one layer's stored activations at b = 1 as the papers count them, without padding. They are the stored
// input, all recomputable tensors, and the tensors that are computed together with these.
int64_t StoredPerLayer(const LayerShape& shape, const LayerGraph& graph) {
  int64_t total = TensorBytes(Tensor::kX, shape).value;
  for (Tensor tensor : graph.recomputable()) {
    for (Tensor with : graph.MadeWith(tensor)) total += TensorBytes(with, shape).value;
  }
  return total;
}

// Korthikanti et al. 2022, table 2: a layer stores sbh (10 + 24/t + 5as/(ht)) bytes, and sbh/t (34 + 5as/h) with sequence
// parallelism.
TEST(LayerGraphTest, StoredActivationsAreThoseOfKorthikanti) {
  const int64_t s = 2048, b = 4, h = 6144, a = 64, t = 8;
  LayerShape shape{.micro_batch = 4,
                   .seq = 2048,
                   .hidden = 6144,
                   .heads = 64,
                   .ffn = 4 * 6144,
                   .vocab = 51200,
                   .tp = 8,
                   .dropout = true,
                   .dtype = DataType::kBfloat16,
                   .stored_masks = true};
  EXPECT_EQ(StoredPerLayer(shape, LayerGraph::Of(shape)), s * b * h * 10 + s * b * h * 24 / t + 5 * a * s * s * b / t);
  shape.sequence_parallel = true;
  EXPECT_EQ(StoredPerLayer(shape, LayerGraph::Of(shape)), s * b * h * 34 / t + 5 * a * s * s * b / t);
  shape.sequence_parallel = false;
  shape.tp = 1;
  EXPECT_EQ(StoredPerLayer(shape, LayerGraph::Of(shape)), s * b * h * 34 + 5 * a * s * s * b);
}

// Yuan et al. 2024: a layer stores Sh (12 + 4kv) + 8Sf bytes, where S = sb/(tc) and kv is the share of key and value heads. The
// formula does not include the log-sum-exp.
TEST(LayerGraphTest, StoredActivationsOfLlamaAreThoseOfYuan) {
  const int64_t tokens = 8192 / (2 * 2), h = 8192, f = 28672;
  const LayerShape shape{.micro_batch = 1,
                         .seq = 8192,
                         .hidden = 8192,
                         .heads = 64,
                         .ffn = 28672,
                         .vocab = 32000,
                         .tp = 2,
                         .family = ModelFamily::kLlama,
                         .kv_heads = 8,
                         .attention = AttentionKernel::kFused,
                         .dtype = DataType::kBfloat16,
                         .sequence_parallel = true,
                         .cp = 2};
  const int64_t lse = TensorBytes(Tensor::kLse, shape).value;
  EXPECT_EQ(StoredPerLayer(shape, LayerGraph::Of(shape)) - lse, tokens * h * 12 + tokens * h * 4 / 8 + 8 * tokens * f);
}

TEST(LayerGraphTest, SequenceParallelSegmentsAlternateGatherAndScatter) {
  LayerShape shape = SmallShape();
  shape.sequence_parallel = true;
  const LayerGraph& graph = LayerGraph::Of(shape);
  const auto text = [&](LayerType type, Pass pass) {
    std::string out;
    for (Segment segment : graph.SegmentsOf(type, pass)) {
      out += (out.empty() ? "" : " ") + std::string(EnumName(segment)) + "=";
      for (Op op : graph.OpsOf(type, segment, pass)) out += std::string(EnumName(op)) + ",";
      const Collective kind = graph.CollectiveOf(type, segment, pass).kind;
      out += kind == Collective::kAllGather ? "AG" : kind == Collective::kReduceScatter ? "RS" : "";
    }
    return out;
  };
  EXPECT_EQ(text(kTransformer, Pass::kForward),
            "norm1=ln1,AG attn=qkv,probs,context,proj,RS norm2=add1,ln2,AG mlp=fc1,gelu,fc2,RS end=add2,");
  EXPECT_EQ(text(kTransformer, Pass::kBackward),
            "out=add2,AG mlp=fc2,gelu,fc1,RS norm2=ln2,add1,AG attn=proj,context,probs,qkv,RS end=ln1,");
  EXPECT_EQ(text(LayerType::kEmbedding, Pass::kForward), "embed=embed,RS end=position,");
  EXPECT_EQ(text(LayerType::kEmbedding, Pass::kBackward), "out=position,AG embed=embed,");
  EXPECT_EQ(text(LayerType::kHead, Pass::kForward), "norm1=lnf,AG head=logits,AG end=loss,");
  EXPECT_EQ(text(LayerType::kHead, Pass::kBackward), "head=loss,logits,RS end=lnf,");
  EXPECT_EQ(TensorBytes(Tensor::kLn1, shape) * 2, TensorBytes(Tensor::kLn1Full, shape));
  EXPECT_EQ(graph.ShareOf(Tensor::kLn2Full), Tensor::kLn2);
  EXPECT_TRUE(graph.RepeatsCollective(Tensor::kQkv));
  EXPECT_FALSE(LayerGraph::Of(SmallShape()).RepeatsCollective(Tensor::kQkv));
  EXPECT_THAT(graph.ProducersOf(Tensor::kX1), ElementsAre(Op::kProj, Op::kAdd1));
}

// In every kind of layer graph, an op reads only tensors that were written before, in the forward pass and in the backward
// pass, and every op runs once per pass.
TEST(LayerGraphTest, EveryKindIsWhole) {
  for (int bits = 0; bits < 128; ++bits) {
    LayerShape shape = SmallShape();
    const bool experts = (bits & 32) != 0, exchanged = experts && (bits & 64) != 0;
    if (experts && (bits & 8) == 0) continue;  // only Llama has experts
    if (experts) shape.experts = 4, shape.top_k = 2, shape.expert_ffn = 24, shape.ep = exchanged ? 2 : 1;
    shape.qk_norm = (bits & 16) != 0;
    shape.family = (bits & 8) != 0 ? ModelFamily::kLlama : ModelFamily::kGpt;
    shape.attention = (bits & 4) != 0 ? AttentionKernel::kFused : AttentionKernel::kUnfused;
    shape.stored_masks = (bits & 2) != 0;
    shape.sequence_parallel = (bits & 1) != 0;
    const LayerGraph& graph = LayerGraph::Of(shape);
    std::set<Tensor> written{Tensor::kX};
    for (const OpInfo& info : graph.ops()) {
      for (Tensor read : info.reads) {
        EXPECT_TRUE(written.contains(read)) << bits << " " << EnumName(info.op) << " reads " << EnumName(read);
      }
      written.insert(info.output);
      written.insert(info.side_outputs.begin(), info.side_outputs.end());
      const CollectiveInfo& c = graph.CollectiveOf(info.layer_type, info.forward_segment, Pass::kForward);
      if (c.from == info.output) written.insert(c.to);
      for (const Tensor side : info.side_outputs) {
        if (c.from_weights == side) written.insert(c.to_weights);
      }
      for (Tensor read : info.backward_reads) EXPECT_TRUE(written.contains(read)) << EnumName(info.op);
      for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
        EXPECT_GE(OpTraffic(info.op, pass, shape), Bytes(0));
        int runs = 0;
        for (const Segment segment : graph.SegmentsOf(info.layer_type, pass)) {
          const std::vector<Op>& ops = graph.OpsOf(info.layer_type, segment, pass);
          runs += static_cast<int>(std::count(ops.begin(), ops.end(), info.op));
        }
        EXPECT_EQ(runs, 1) << EnumName(info.op);
      }
    }
    EXPECT_LE(graph.recomputable().size(), static_cast<size_t>(kMaxRecomputable));
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      const std::vector<Segment>& segments = graph.SegmentsOf(LayerType::kTransformer, pass);
      EXPECT_EQ(graph.WindowsOf(pass), std::vector<Segment>(segments.begin(), segments.end() - 1));
      EXPECT_LE(graph.WindowsOf(pass).size(), static_cast<size_t>(kMaxWindows));
      if (!experts) EXPECT_EQ(graph.WindowsOf(pass).size(), shape.sequence_parallel ? 4u : 2u);
    }
  }
}

TEST(LayerGraphTest, PublishedModelsHaveTheirParameters) {
  const ModelSpec llama{.layers = 80,
                        .hidden = 8192,
                        .heads = 64,
                        .ffn = 28672,
                        .seq = 8192,
                        .vocab = 32000,
                        .dropout = 0,
                        .family = ModelFamily::kLlama,
                        .kv_heads = 8};
  EXPECT_EQ(ModelParameters(llama), 68'976'648'192);  // Llama 2 70B
  ModelSpec gpt{.layers = 12, .hidden = 768, .heads = 12, .ffn = 3072, .seq = 1024, .vocab = 50257, .tied_embeddings = true};
  EXPECT_EQ(ModelParameters(gpt), 124'439'808);  // GPT-2 small
  ModelSpec llama3{.layers = 32,
                   .hidden = 4096,
                   .heads = 32,
                   .ffn = 14336,
                   .seq = 8192,
                   .vocab = 128256,
                   .dropout = 0,
                   .family = ModelFamily::kLlama,
                   .kv_heads = 8};
  EXPECT_EQ(ModelParameters(llama3), 8'030'261'248);  // Llama 3.1 8B
  const ModelSpec nemo{.layers = 40,
                       .hidden = 5120,
                       .heads = 32,
                       .ffn = 14336,
                       .seq = 8192,
                       .vocab = 131072,
                       .dropout = 0,
                       .family = ModelFamily::kLlama,
                       .kv_heads = 8,
                       .head_dim = 128};
  EXPECT_EQ(ModelParameters(nemo), 12'247'782'400);  // Mistral Nemo
  const ModelSpec qwen2{.layers = 28,
                        .hidden = 3584,
                        .heads = 28,
                        .ffn = 18944,
                        .seq = 8192,
                        .vocab = 152064,
                        .dropout = 0,
                        .family = ModelFamily::kLlama,
                        .kv_heads = 4,
                        .qkv_bias = true};
  EXPECT_EQ(ModelParameters(qwen2), 7'615'616'512);  // Qwen2.5 7B
  const ModelSpec qwen3{.layers = 36,
                        .hidden = 4096,
                        .heads = 32,
                        .ffn = 12288,
                        .seq = 8192,
                        .vocab = 151936,
                        .dropout = 0,
                        .family = ModelFamily::kLlama,
                        .kv_heads = 8,
                        .qk_norm = true};
  EXPECT_EQ(ModelParameters(qwen3), 8'190'735'360);  // Qwen3 8B
}

// The norms of queries and keys come between the projection and the rotation, and attention reads their result.
TEST(LayerGraphTest, NormedQueriesAndKeysAreATensorOfTheirOwn) {
  LayerShape shape = SmallShape();
  shape.family = ModelFamily::kLlama;
  shape.dropout = false;
  shape.qk_norm = true;
  const LayerGraph& graph = LayerGraph::Of(shape);
  EXPECT_THAT(graph.OpsOf(kTransformer, Segment::kAttn, Pass::kForward),
              ElementsAre(Op::kLn1, Op::kQkv, Op::kQkNorm, Op::kRope, Op::kProbs, Op::kContext, Op::kProj));
  EXPECT_THAT(graph.ProducersOf(Tensor::kQkNormed), ElementsAre(Op::kQkNorm, Op::kRope));
  EXPECT_THAT(graph.ProducersOf(Tensor::kQkv), ElementsAre(Op::kQkv));
  EXPECT_EQ(graph.InputsOf(Tensor::kQkNormed), Bit(Tensor::kQkv));
  EXPECT_EQ(graph.InputsOf(Tensor::kProbs), Bit(Tensor::kQkNormed));
  // The backward pass needs the norms' inputs to compute the norms again.
  EXPECT_TRUE(Contains(graph.ReadBy(Segment::kAttn), Tensor::kQkv));
  EXPECT_TRUE(Contains(graph.ReadBy(Segment::kAttn), Tensor::kQkNormed));
  EXPECT_EQ(TensorBytes(Tensor::kQkNormed, shape), TensorBytes(Tensor::kQkv, shape));
  EXPECT_EQ(OpParameters(Op::kQkNorm, shape), 2 * shape.head_size());
  // A norm over all queries has a weight for each of their elements on the rank.
  shape.qk_norm_whole = true;
  EXPECT_EQ(OpParameters(Op::kQkNorm, shape), (shape.heads + shape.key_heads()) / shape.tp * shape.head_size());
}

TEST(LayerGraphTest, HeadsMayHaveASizeOfTheirOwn) {
  LayerShape shape = SmallShape();
  const int64_t tokens = shape.tokens(), heads = shape.heads / shape.tp;
  const int64_t plain = shape.head_size();
  shape.head_dim = static_cast<int32_t>(3 * plain);
  EXPECT_EQ(shape.qkv_width(), 3 * heads * 3 * plain);
  EXPECT_EQ(TensorBytes(Tensor::kContext, shape), Bytes(tokens * heads * 3 * plain * 4));
  EXPECT_EQ(OpFlops(Op::kProj, Pass::kForward, shape), 2 * tokens * shape.hidden * heads * 3 * plain);
  EXPECT_EQ(OpParameters(Op::kProj, shape), shape.hidden * heads * 3 * plain);
}

}  // namespace
}  // namespace lynx
