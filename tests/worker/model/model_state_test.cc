#include "worker/model/model_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "planner/problem/layer_graph.h"
#include "planner/program/memory_model.h"
#include "tests/worker/model/small_stages.h"

namespace lynx::worker {
namespace {

// The vocabulary has 13 words. So with tp 2 and 4 its shards have padding, and with tp 8 the last shard is only padding.
ModelSpec SmallModel() {
  ModelSpec model;
  model.layers = 4;
  model.hidden = 32;
  model.heads = 8;
  model.ffn = 48;
  model.seq = 5;
  model.vocab = 13;
  return model;
}

ModelSpec SmallLlama() {
  ModelSpec model = SmallModel();
  model.family = ModelFamily::kLlama;
  model.kv_heads = 4;
  return model;
}

// A head of queries and keys has 6 elements, of which 2 are rotated; one of values has 5.
ModelSpec SmallLatent(int32_t query_rank) {
  ModelSpec model = SmallModel();
  model.family = ModelFamily::kLlama;
  model.attention = AttentionKernel::kFused;
  model.head_dim = 6;
  model.rotary.dims = 2;
  model.latent = {.query_rank = query_rank, .kv_rank = 3, .value_dim = 5};
  return model;
}

int64_t ElementsOf(const std::vector<ParameterSlot>& slots) {
  return slots.empty() ? 0 : slots.back().offset + slots.back().count;
}

void Fill(const ParameterSlot& slot, const ModelSpec& model, uint64_t seed, std::span<float> weights) {
  FillInitialWeights(slot, model, seed, weights.subspan(static_cast<size_t>(slot.offset), static_cast<size_t>(slot.count)));
}

struct Gathered {
  std::vector<float> values;
  std::vector<int> owners;  // for each element, the number of ranks that hold it
};

// Returns the initial weights of the whole model, gathered from all ranks of a layout.
std::map<std::string, Gathered> Gather(const ModelSpec& model, int32_t tp, int32_t pp, uint64_t seed) {
  std::map<std::string, Gathered> whole;
  for (int32_t stage = 0; stage < pp; ++stage) {
    for (int32_t r = 0; r < tp; ++r) {
      const std::vector<ParameterSlot> slots = ParameterSlotsOf(ContextOf(model, {.tp = tp, .pp = pp}, stage), r);
      std::vector<float> weights(static_cast<size_t>(ElementsOf(slots)));
      for (const ParameterSlot& slot : slots) {
        Fill(slot, model, seed, weights);
        Gathered& into = whole[slot.name];
        into.values.resize(static_cast<size_t>(slot.global_rows * slot.global_columns));
        into.owners.resize(into.values.size());
        for (const ParameterPiece& piece : slot.pieces) {
          for (int64_t i = 0; i < piece.rows; ++i) {
            for (int64_t j = 0; j < piece.columns; ++j) {
              const auto at = static_cast<size_t>((piece.row + i) * slot.global_columns + piece.column + j);
              into.values[at] = weights[static_cast<size_t>(slot.offset + piece.offset + i * piece.columns + j)];
              ++into.owners[at];
            }
          }
        }
      }
    }
  }
  return whole;
}

// A large parameter is filled by several threads, each with a part of the rows; single rows are too small for that.
TEST(InitialWeights, OfALargeParameterAreThoseOfItsRows) {
  ModelSpec model = SmallModel();
  model.vocab = 1031;
  model.hidden = 1024;
  const ParameterSlot slot = ParameterSlotsOf(ContextOf(model, {}), 0).front();
  ASSERT_EQ(slot.name, "embed.tok");
  std::vector<float> whole(static_cast<size_t>(slot.count)), by_rows(whole.size());
  FillInitialWeights(slot, model, 3, whole);
  ParameterSlot row = slot;
  for (int64_t r = 0; r < slot.global_rows; ++r) {
    row.pieces = {{.row = r, .rows = 1, .column = 0, .columns = slot.global_columns, .offset = r * slot.global_columns}};
    FillInitialWeights(row, model, 3, by_rows);
  }
  EXPECT_EQ(whole, by_rows);
  EXPECT_EQ(std::count(whole.begin(), whole.end(), 0.0f), 0);
}

TEST(ParameterSlots, NamesAreInOrder) {
  ModelSpec model = SmallModel();
  model.layers = 1;
  std::vector<std::string> names;
  for (const ParameterSlot& slot : ParameterSlotsOf(ContextOf(model, {}), 0)) names.push_back(slot.name);
  EXPECT_EQ(names, (std::vector<std::string>{"embed.tok", "embed.pos", "layers.0.ln1.weight", "layers.0.ln1.bias",
                                             "layers.0.qkv.weight", "layers.0.qkv.bias", "layers.0.proj.weight",
                                             "layers.0.proj.bias", "layers.0.ln2.weight", "layers.0.ln2.bias",
                                             "layers.0.fc1.weight", "layers.0.fc1.bias", "layers.0.fc2.weight",
                                             "layers.0.fc2.bias", "head.ln.weight", "head.ln.bias", "head.out.weight"}));
}

TEST(ParameterSlots, LlamaHasNeitherPositionsNorBiases) {
  ModelSpec model = SmallLlama();
  model.layers = 1;
  std::vector<std::string> names;
  for (const ParameterSlot& slot : ParameterSlotsOf(ContextOf(model, {}), 0)) names.push_back(slot.name);
  EXPECT_EQ(names, (std::vector<std::string>{"embed.tok", "layers.0.ln1.weight", "layers.0.qkv.weight", "layers.0.proj.weight",
                                             "layers.0.ln2.weight", "layers.0.fc1.weight", "layers.0.fc2.weight",
                                             "head.ln.weight", "head.out.weight"}));
}

TEST(ParameterSlots, LatentAttentionHasLatentsInPlaceOfQkv) {
  ModelSpec model = SmallLatent(7);
  model.layers = 1;
  std::vector<std::string> names, by_heads;
  const std::vector<ParameterSlot> slots = ParameterSlotsOf(ContextOf(model, {.tp = 2}), 1);
  for (const ParameterSlot& slot : slots) {
    names.push_back(slot.name);
    if (slot.by_heads) by_heads.push_back(slot.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "embed.tok", "layers.0.ln1.weight", "layers.0.latent.weight", "layers.0.latent_norm.weight",
                       "layers.0.query.weight", "layers.0.key_value.weight", "layers.0.proj.weight", "layers.0.ln2.weight",
                       "layers.0.fc1.weight", "layers.0.fc2.weight", "head.ln.weight", "head.out.weight"}));
  EXPECT_EQ(by_heads, (std::vector<std::string>{"layers.0.latent.weight", "layers.0.latent_norm.weight"}));
  // 8 heads of keys have 4 elements each that are made from latents, in rows 0..31; those of values have 5, in rows 32..71.
  const ParameterSlot& key_value = slots[5];
  EXPECT_EQ(key_value.global_rows, 72);
  EXPECT_EQ(key_value.global_columns, 3);
  ASSERT_EQ(key_value.pieces.size(), 2u);
  EXPECT_EQ(key_value.pieces[0].row, 16);
  EXPECT_EQ(key_value.pieces[0].rows, 16);
  EXPECT_EQ(key_value.pieces[1].row, 52);
  EXPECT_EQ(key_value.pieces[1].rows, 20);
  EXPECT_EQ(slots[4].global_columns, 7);
  EXPECT_EQ(ParameterSlotsOf(ContextOf(SmallLatent(0), {}), 0)[4].global_columns, 32) << "queries from the norm of x";
}

// A head has 4 elements. There are 8 query heads in rows 0..31, 4 key heads in rows 32..47, and 4 value heads in rows 48..63.
// fc1 has 48 rows of the gate, then 48 rows of up.
TEST(ParameterSlots, SharesOfLlamaAreOfEachPart) {
  const std::vector<ParameterSlot> slots = ParameterSlotsOf(ContextOf(SmallLlama(), {.tp = 2}), 1);
  const ParameterSlot& qkv = slots[2];
  ASSERT_EQ(qkv.name, "layers.0.qkv.weight");
  EXPECT_EQ(qkv.global_rows, 64);
  ASSERT_EQ(qkv.pieces.size(), 3u);
  EXPECT_EQ(qkv.pieces[0].row, 16);
  EXPECT_EQ(qkv.pieces[0].rows, 16);
  EXPECT_EQ(qkv.pieces[1].row, 40);
  EXPECT_EQ(qkv.pieces[2].row, 56);
  EXPECT_EQ(qkv.pieces[2].rows, 8);
  const ParameterSlot& fc1 = slots[5];
  ASSERT_EQ(fc1.name, "layers.0.fc1.weight");
  EXPECT_EQ(fc1.global_rows, 96);
  ASSERT_EQ(fc1.pieces.size(), 2u);
  EXPECT_EQ(fc1.pieces[0].row, 24);
  EXPECT_EQ(fc1.pieces[1].row, 72);
  EXPECT_EQ(fc1.pieces[1].rows, 24);
}

// Returns each model with each tensor-parallel size that the model allows.
std::vector<std::pair<ModelSpec, int32_t>> ModelsAndSizes() {
  std::vector<std::pair<ModelSpec, int32_t>> all;
  for (const ModelSpec& model : {SmallModel(), SmallLlama(), SmallLatent(7), SmallLatent(0)}) {
    for (const int32_t tp : {1, 2, 4, 8}) {
      if (model.key_heads() % tp == 0) all.emplace_back(model, tp);
    }
  }
  return all;
}

TEST(ParameterSlots, EveryElementHasOneOwnerOrAllOfThem) {
  for (const auto& [model, tp] : ModelsAndSizes()) {
    std::map<std::string, bool> replicated;
    for (int32_t stage = 0; stage < 2; ++stage) {
      for (const ParameterSlot& slot : ParameterSlotsOf(ContextOf(model, {.tp = tp, .pp = 2}, stage), 0)) {
        replicated[slot.name] = slot.replicated;
      }
    }
    for (const auto& [name, gathered] : Gather(model, tp, 2, 1)) {
      const int expected = replicated.at(name) ? tp : 1;
      for (const int owners : gathered.owners) ASSERT_EQ(owners, expected) << name << " tp " << tp;
    }
  }
}

TEST(ParameterSlots, ArePackedAndInsideTheirCounts) {
  for (const auto& [model, tp] : ModelsAndSizes()) {
    for (int32_t r = 0; r < tp; ++r) {
      int64_t at = 0;
      for (const ParameterSlot& slot : ParameterSlotsOf(ContextOf(model, {.tp = tp}), r)) {
        EXPECT_EQ(slot.offset, at) << slot.name;
        int64_t held = 0;
        for (const ParameterPiece& piece : slot.pieces) {
          EXPECT_EQ(piece.offset, held) << slot.name;
          held += piece.rows * piece.columns;
        }
        EXPECT_LE(held, slot.count) << slot.name;
        at += slot.count;
      }
    }
  }
}

void ExpectPlannedBytes(ModelState& state, const StageContext& context) {
  const StateBytes planned = StatesOf(context);
  EXPECT_EQ(state.bytes(), planned.total());
  size_t optimizer = 2 * state.first_moments().size_bytes(), weights = state.weights().size_bytes();
  if (context.model.dtype == DataType::kBfloat16) {
    optimizer += weights;
    weights = state.rounded_weights().size_bytes();
  }
  EXPECT_EQ(Bytes(static_cast<int64_t>(optimizer)), planned.optimizer);
  EXPECT_EQ(Bytes(static_cast<int64_t>(weights)), planned.weights);
}

// Checks one slot of state.updated(): its pieces must follow each other in the rank's arrays and have the initial values. Adds
// 1 to `held` for each of its elements (row, column).
void Hold(const ParameterSlot& slot, ModelState& state, const std::map<std::string, Gathered>& initial,
          std::map<std::pair<int64_t, int64_t>, int>& held) {
  ASSERT_LE(slot.share_offset + slot.count, static_cast<int64_t>(state.first_moments().size()));
  const float* value = state.UpdatedWeight(slot);
  for (const ParameterPiece& piece : slot.pieces) {
    EXPECT_EQ(piece.offset, value - state.UpdatedWeight(slot));
    for (int64_t row = piece.row; row < piece.row + piece.rows; ++row) {
      for (int64_t column = piece.column; column < piece.column + piece.columns; ++column) {
        ++held[{row, column}];
        const auto place = static_cast<size_t>(row * slot.global_columns + column);
        ASSERT_EQ(*value++, initial.at(slot.name).values[place]) << slot.name;
      }
    }
  }
  const int64_t elements = value - state.UpdatedWeight(slot);
  EXPECT_EQ(slot.count, state.shares_updates() ? elements : std::max(slot.count, elements)) << "no padding in a share";
}

// Matrix products on GPUs are slow with weights that are not aligned.
TEST(UpdatedSlots, LayersAndSharesBeginAligned) {
  for (const auto& [model, tp] : ModelsAndSizes()) {
    for (const int32_t dp : {2, 3, 5, 6, 7}) {
      StageContext context = ContextOf(model, {.tp = tp});
      context.layout.dp = dp;
      context.layout.zero = ZeroStage::kOptimizer;
      const std::vector<ParameterSlot> slots = ParameterSlotsOf(context, 0);
      for (size_t i = 1; i < slots.size(); ++i) {
        if (slots[i].layer == slots[i - 1].layer) continue;
        EXPECT_EQ(slots[i].offset % (dp * kShareAlignment), 0) << slots[i].name << " dp " << dp;
      }
    }
  }
}

// The replicas together must update every element of a parameter exactly once, and its initial value must be the same as in
// other layouts. Also checks everything that the plan says about the memory of states.
TEST(UpdatedSlots, SharesOfAllMembersMakeUpTheWhole) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  for (auto [model, tp] : ModelsAndSizes()) {
    const std::map<std::string, Gathered> initial = Gather(model, 1, 1, 42);
    for (const int32_t dp : {1, 2, 3, 7}) {
      for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
        model.dtype = dtype;
        StageContext context = ContextOf(model, {.tp = tp});
        context.layout.dp = dp;
        context.layout.zero = ZeroStage::kOptimizer;
        std::map<std::string, std::map<std::pair<int64_t, int64_t>, int>> held;  // keys: name, then (row, column)
        for (int32_t index = 0; index < dp; ++index) {
          ModelState state = ModelState::Create(context, tp - 1, index, 42, *backend).value();
          ExpectPlannedBytes(state, context);
          int64_t end = 0;
          for (const ParameterSlot& slot : state.updated()) {
            EXPECT_GE(slot.share_offset, end) << "where another slot is";
            end = slot.share_offset + slot.count;
            Hold(slot, state, initial, held[slot.name]);
          }
        }
        for (const ParameterSlot& slot : ParameterSlotsOf(context, tp - 1)) {
          size_t elements = 0;
          for (const ParameterPiece& piece : slot.pieces) elements += static_cast<size_t>(piece.rows * piece.columns);
          EXPECT_EQ(held[slot.name].size(), elements) << slot.name;
          for (const auto& [element, times] : held[slot.name]) ASSERT_EQ(times, 1) << slot.name;
        }
      }
    }
  }
}

TEST(ParameterSlots, CountsAgreeWithTheLayerGraph) {
  for (const auto& [model, tp] : ModelsAndSizes()) {
    for (const int32_t pp : {1, 2, 4}) {
      for (int32_t stage = 0; stage < pp; ++stage) {
        const StageContext context = ContextOf(model, {.tp = tp, .pp = pp}, stage);
        const LayerShape shape = context.shape();
        int64_t expected = LayerParameters(LayerType::kTransformer, shape) * context.only_slice().layers();
        if (context.has_embedding()) expected += LayerParameters(LayerType::kEmbedding, shape);
        if (context.has_head()) expected += LayerParameters(LayerType::kHead, shape);
        for (int32_t r = 0; r < tp; ++r) EXPECT_EQ(ElementsOf(ParameterSlotsOf(context, r)), expected);
      }
    }
  }
}

TEST(TiedEmbeddings, AreOneWeightOnOneRankAndEqualCopiesOnTwo) {
  ModelSpec model = SmallModel();
  model.tied_embeddings = true;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  ModelState whole = ModelState::Create(ContextOf(model, {}), 0, 0, 42, *backend).value();
  EXPECT_EQ(whole.shared_embedding(), nullptr);
  EXPECT_EQ(whole.WeightOfOps<float>(kHeadLayer, Parameter::kHeadOutWeight),
            whole.WeightOfOps<float>(kEmbeddingLayer, Parameter::kEmbedTok));
  EXPECT_EQ(whole.Gradient(kHeadLayer, Parameter::kHeadOutWeight), whole.Gradient(kEmbeddingLayer, Parameter::kEmbedTok));
  EXPECT_EQ(static_cast<int64_t>(whole.weights().size_bytes()), StatesOf(ContextOf(model, {})).weights.value);
  EXPECT_EQ(whole.LayerRange(kHeadLayer).count, 2 * model.hidden);  // the norm of the head

  for (int32_t r = 0; r < 2; ++r) {
    ModelState first = ModelState::Create(ContextOf(model, {.tp = 2, .pp = 2}, 0), r, 0, 42, *backend).value();
    ModelState last = ModelState::Create(ContextOf(model, {.tp = 2, .pp = 2}, 1), r, 0, 42, *backend).value();
    ASSERT_NE(first.shared_embedding(), nullptr);
    ASSERT_NE(last.shared_embedding(), nullptr);
    EXPECT_FALSE(first.shared_embedding()->copy);
    EXPECT_TRUE(last.shared_embedding()->copy);
    ASSERT_EQ(first.shared_embedding()->count, last.shared_embedding()->count);
    const float *tok = first.WeightOfOps<float>(kEmbeddingLayer, Parameter::kEmbedTok),
                *out = last.WeightOfOps<float>(kHeadLayer, Parameter::kHeadOutWeight);
    for (int64_t i = 0; i < first.shared_embedding()->count; ++i) ASSERT_EQ(tok[i], out[i]);
    EXPECT_EQ(static_cast<int64_t>(last.weights().size_bytes()),
              StatesOf(ContextOf(model, {.tp = 2, .pp = 2}, 1)).weights.value);
  }
}

// The ops of a bfloat16 model read the rounded fp32 weights. They must be rounded again when the fp32 weights have changed.
TEST(Bfloat16Weights, FollowTheFloatOnes) {
  ModelSpec model = SmallModel();
  model.dtype = DataType::kBfloat16;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  for (int32_t stage = 0; stage < 2; ++stage) {
    const StageContext context = ContextOf(model, {.tp = 2, .pp = 2}, stage);
    ModelState state = ModelState::Create(context, 1, 0, 42, *backend).value();
    EXPECT_EQ(state.bytes(), StatesOf(context).total());
    const auto expect_rounded = [&] {
      for (const ParameterSlot& slot : state.slots()) {
        const Bfloat16* const rounded = state.WeightOfOps<Bfloat16>(slot.layer, slot.parameter);
        for (int64_t i = 0; i < slot.count; ++i) {
          ASSERT_EQ(rounded[i].bits, Bfloat16(state.weights()[slot.offset + i]).bits) << slot.name;
        }
      }
    };
    expect_rounded();
    for (float& weight : state.weights()) weight = weight * 3 + 1;
    state.RoundWeights(*backend);
    expect_rounded();
    for (float& gradient : state.gradients()) gradient = 1;
    backend->AdamW({.lr = 0.5, .beta1 = 0.9, .beta2 = 0.9, .eps = 1e-8, .weight_decay = 0.1, .step = 1, .gradient_scale = 1},
                   state.Updates());
    expect_rounded();
  }
}

TEST(InitialWeights, AreTheSameBitsInEveryLayout) {
  for (const auto& [model, tp] : ModelsAndSizes()) {
    const std::map<std::string, Gathered> single = Gather(model, 1, 1, 42);
    for (const int32_t pp : {1, 2, 4}) {
      const std::map<std::string, Gathered> gathered = Gather(model, tp, pp, 42);
      ASSERT_EQ(gathered.size(), single.size());
      for (const auto& [name, expected] : single) {
        EXPECT_EQ(gathered.at(name).values, expected.values) << name << " tp " << tp << " pp " << pp;
      }
    }
  }
}

TEST(InitialWeights, PaddingIsZero) {
  const std::vector<ParameterSlot> slots = ParameterSlotsOf(ContextOf(SmallModel(), {.tp = 8}), 7);
  std::vector<float> weights(static_cast<size_t>(ElementsOf(slots)));
  for (const ParameterSlot& slot : slots) Fill(slot, SmallModel(), 42, weights);
  const ParameterSlot& tok = slots.front();
  ASSERT_EQ(tok.name, "embed.tok");
  EXPECT_EQ(tok.pieces[0].rows, 0);
  EXPECT_EQ(tok.count, 2 * 32);
  for (int64_t i = 0; i < tok.count; ++i) EXPECT_EQ(weights[static_cast<size_t>(i)], 0.0f);
}

TEST(InitialWeights, HaveTheStatedMomentsAndDependOnSeedAndName) {
  ModelSpec model = SmallModel();
  model.hidden = 256;
  model.ffn = 1024;
  const std::map<std::string, Gathered> a = Gather(model, 1, 1, 1);
  const std::map<std::string, Gathered> b = Gather(model, 1, 1, 2);
  const auto deviation = [&](const std::string& name) {
    double sum = 0, squares = 0;
    const std::vector<float>& values = a.at(name).values;
    for (const float v : values) sum += v, squares += double{v} * v;
    const auto n = static_cast<double>(values.size());
    EXPECT_LT(std::abs(sum / n), 4 * 0.02 / std::sqrt(n)) << name;
    return std::sqrt(squares / n);
  };
  EXPECT_NEAR(deviation("layers.0.qkv.weight"), 0.02, 0.0002);
  EXPECT_NEAR(deviation("layers.0.fc1.weight"), 0.02, 0.0002);
  EXPECT_NEAR(deviation("layers.0.fc2.weight"), 0.02 / std::sqrt(8.0), 0.0001);
  EXPECT_NEAR(deviation("layers.0.proj.weight"), 0.02 / std::sqrt(8.0), 0.0001);
  for (const float v : a.at("layers.0.ln1.weight").values) EXPECT_EQ(v, 1.0f);
  for (const float v : a.at("layers.0.qkv.bias").values) EXPECT_EQ(v, 0.0f);
  EXPECT_NE(a.at("embed.pos").values, b.at("embed.pos").values);
  EXPECT_NE(a.at("layers.0.fc1.weight").values, a.at("layers.1.fc1.weight").values);
}

// A Python program has computed these values by the rules in model_state.h. They must never change, because recorded losses
// depend on them.
TEST(InitialWeights, KnownValues) {
  const std::vector<float> values = Gather(SmallModel(), 1, 1, 1234).at("embed.tok").values;
  EXPECT_FLOAT_EQ(values[0], -0.0018499731f);
  EXPECT_FLOAT_EQ(values[1], 0.011950779f);
  EXPECT_FLOAT_EQ(values[415], 0.014555002f);
}

}  // namespace
}  // namespace lynx::worker
