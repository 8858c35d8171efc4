// Runs the ops of a feed-forward block with experts one after another, without an engine, and compares them with the block's
// formulas in double, and between layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/rng.h"
#include "tests/worker/model/small_stages.h"
#include "worker/engine/layer_ops.h"
#include "worker/model/model_state.h"

namespace lynx::worker {
namespace {

using Vector = std::vector<double>;

constexpr double kLossScale = 1.0 / 24;  // there are two microbatches of 12 tokens
constexpr uint64_t kSeed = 3;

// A model with one layer, whose experts drop some rows.
ModelSpec OneLayer() {
  ModelSpec model = SmallMoe();
  model.layers = 1;
  model.hidden = 12;
  model.heads = 2;
  model.moe = {.experts = 4, .top_k = 2, .ffn = 10, .capacity = 0.8, .aux_loss = 0.5, .z_loss = 0.25};
  return model;
}

StageContext ContextOfBatch(const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch) {
  StageContext context = ContextOf(model, layout);
  context.micro_batch = micro_batch;
  return context;
}

// The feed-forward block of one layer, on one rank.
class Block {
 public:
  Block(const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch, int32_t tp_rank, int32_t data_index)
      : context_(ContextOfBatch(model, layout, micro_batch)), shape_(context_.shape()),
        state_(ModelState::Create(context_, tp_rank, data_index, kSeed, *backend_).value()),
        ops_(LayerOps::Make(context_, tp_rank, kSeed, kLossScale, &loss_, *backend_, state_)) {
    // The initial weights are so small that all experts would be nearly the same.
    for (float& weight : state_.weights()) weight *= 15;
    state_.RoundWeights(*backend_);
    ops_->BeginStep(0);
  }

  // Returns the memory of a tensor. At first, all its elements are NaN.
  float* At(Tensor tensor) {
    std::vector<float>& memory = memory_[static_cast<size_t>(tensor)];
    if (memory.empty()) {
      memory.assign(static_cast<size_t>(TensorBytes(tensor, shape_).value / 4), std::numeric_limits<float>::quiet_NaN());
      table_.at[static_cast<size_t>(tensor)] = memory.data();
    }
    return memory.data();
  }
  int64_t Count(Tensor tensor) const { return TensorBytes(tensor, shape_).value / 4; }

  void SetNumbers(Tensor tensor, uint64_t seed) {
    float* const values = At(tensor);
    for (int64_t i = 0; i < Count(tensor); ++i) {
      values[i] = static_cast<float>(static_cast<double>(Mix64(seed * 1000003 + static_cast<uint64_t>(i)) >> 11) * 0x1p-52 - 1);
    }
  }

  void Forward(std::initializer_list<Op> ops) {
    AllocateAll();
    for (const Op op : ops) ops_->Forward(op, 0, {}, table_);
  }
  void Backward(std::initializer_list<Op> ops) {
    for (const Op op : ops) ops_->Backward(op, 0, {}, table_);
  }
  void Weight(std::initializer_list<Op> ops) {
    for (const Op op : ops) ops_->Weight(op, 0, table_);
  }

  // Runs all passes on a rank that holds all experts. x1 and grad must be set.
  void RunAlone() {
    using enum Op;
    Forward({kLn2, kRouter, kPermute, kFc1, kSilu, kSwiglu, kFc2, kUnpermute, kAdd2});
    Backward({kAdd2, kUnpermute, kFc2, kSwiglu, kSilu, kFc1, kPermute, kRouter, kLn2});
    Weight({kFc2, kFc1, kRouter});
  }

  const LayerShape& shape() const { return shape_; }
  ModelState& state() { return state_; }
  const std::vector<float>& next_x() const { return next_x_; }
  const RouteChoice* route() { return reinterpret_cast<const RouteChoice*>(At(Tensor::kRoute)); }
  std::vector<float> Values(Tensor tensor) { return std::vector<float>(At(tensor), At(tensor) + Count(tensor)); }
  std::vector<float> Gradient(Parameter parameter) {
    const float* const from = state_.Gradient(0, parameter);
    return std::vector<float>(from, from + state_.Slot(0, parameter).count);
  }
  Vector Weights(Parameter parameter) {
    const float* const from = state_.WeightOfOps<float>(0, parameter);
    return Vector(from, from + state_.Slot(0, parameter).count);
  }

 private:
  void AllocateAll() {
    for (const OpInfo& info : context_.graph().ops()) {
      if (info.layer_type != LayerType::kTransformer) continue;
      if (info.output != Tensor::kX && info.output != Tensor::kWorkspace) At(info.output);
      for (const Tensor tensor : info.side_outputs) At(tensor);
      for (const TensorUse& use : info.gradients) At(use.tensor);
    }
    for (const OpInfo& info : context_.graph().ops()) {
      if (info.op != Op::kFc1 && info.op != Op::kUnpermute) continue;
      for (const Tensor tensor : info.reads) At(tensor);
    }
    next_x_.assign(static_cast<size_t>(Count(Tensor::kX)), std::numeric_limits<float>::quiet_NaN());
    table_.next_x = next_x_.data();
  }

  const StageContext context_;
  const LayerShape shape_;
  const std::unique_ptr<Backend> backend_ = MakeCpuBackend(1);
  ModelState state_;
  double loss_ = 0;
  const std::unique_ptr<LayerOps> ops_;
  std::array<std::vector<float>, kTensorCount> memory_;
  std::vector<float> next_x_;
  TensorTable table_;
};

// Computes the results of the block in double, with the experts that the ops have chosen.
struct Formula {
  const ModelSpec model;
  const int64_t n, h = model.hidden, experts = model.moe.experts, top_k = model.moe.top_k, f = model.expert_ffn();
  const std::vector<RouteChoice> choices;

  Vector Norm(const Vector& x1, const Vector& gamma) const {
    Vector normed(x1.size());
    for (int64_t token = 0; token < n; ++token) {
      double squares = 0;
      for (int64_t i = 0; i < h; ++i) squares += x1[token * h + i] * x1[token * h + i] / static_cast<double>(h);
      for (int64_t i = 0; i < h; ++i)
        normed[token * h + i] = x1[token * h + i] / std::sqrt(squares + model.norm_epsilon) * gamma[i];
    }
    return normed;
  }

  // Returns expert(x) of one token.
  Vector Expert(const double* x, const double* w1, const double* w2) const {
    Vector inner(f), out(h);
    for (int64_t i = 0; i < f; ++i) {
      double gate = 0, up = 0;
      for (int64_t j = 0; j < h; ++j) gate += w1[i * h + j] * x[j], up += w1[(f + i) * h + j] * x[j];
      inner[i] = gate / (1 + std::exp(-gate)) * up;
    }
    for (int64_t i = 0; i < h; ++i) {
      for (int64_t j = 0; j < f; ++j) out[i] += w2[i * f + j] * inner[j];
    }
    return out;
  }

  struct Result {
    Vector x;
    double losses = 0;  // the losses of the router
  };
  Result Run(const Vector& x1, const Vector& gamma, const Vector& router, const Vector& w1, const Vector& w2) const {
    const Vector normed = Norm(x1, gamma);
    Result result{x1};
    Vector shares(experts);
    for (const RouteChoice& choice : choices) shares[choice.expert] += 1 / static_cast<double>(choices.size());
    const double scale = kLossScale;  // the means are over n tokens, and have the factor n / all tokens of the step
    for (int64_t token = 0; token < n; ++token) {
      Vector softmax(experts);
      double sum = 0, chosen = 0;
      for (int64_t e = 0; e < experts; ++e) {
        double score = 0;
        for (int64_t i = 0; i < h; ++i) score += router[e * h + i] * normed[token * h + i];
        sum += softmax[e] = std::exp(score);
      }
      for (int64_t e = 0; e < experts; ++e) {
        result.losses += scale * model.moe.aux_loss * static_cast<double>(experts) * shares[e] * softmax[e] / sum;
      }
      result.losses += scale * model.moe.z_loss * std::log(sum) * std::log(sum);
      const RouteChoice* const own = &choices[token * top_k];
      for (int64_t c = 0; c < top_k; ++c) chosen += softmax[own[c].expert];
      for (int64_t c = 0; c < top_k; ++c) {
        if (own[c].place < 0) continue;
        const int64_t e = own[c].expert;
        const Vector out = Expert(&normed[token * h], &w1[e * 2 * f * h], &w2[e * h * f]);
        for (int64_t i = 0; i < h; ++i) result.x[token * h + i] += softmax[e] / chosen * out[i];
      }
    }
    return result;
  }
};

void ExpectClose(const std::vector<float>& got, const Vector& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0;
  for (const double value : want) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance * largest) << what << " " << i;
}

// Returns the gradient of `loss`, computed by central differences.
Vector GradientOf(const std::function<double(const Vector&)>& loss, Vector at) {
  constexpr double kStep = 1e-5;
  Vector gradient(at.size());
  for (size_t i = 0; i < at.size(); ++i) {
    const double old = at[i];
    at[i] = old + kStep;
    const double above = loss(at);
    at[i] = old - kStep;
    gradient[i] = (above - loss(at)) / (2 * kStep);
    at[i] = old;
  }
  return gradient;
}

TEST(ExpertOps, EqualTheFormulaAndFiniteDifferences) {
  const ModelSpec model = OneLayer();
  Block block(model, LayoutOf(1, 1, 1), 2, 0, 0);
  block.SetNumbers(Tensor::kX1, 1);
  block.SetNumbers(Tensor::kGrad, 2);
  const std::vector<float> grad = block.Values(Tensor::kGrad), x1_floats = block.Values(Tensor::kX1);
  block.RunAlone();

  const Formula formula{.model = model, .n = 12, .choices = std::vector<RouteChoice>(block.route(), block.route() + 24)};
  const auto dropped =
      std::count_if(formula.choices.begin(), formula.choices.end(), [](const RouteChoice& choice) { return choice.place < 0; });
  EXPECT_TRUE(dropped > 0 && dropped < 12) << dropped;
  const Vector x1(x1_floats.begin(), x1_floats.end()),
      gamma = block.Weights(Parameter::kLn2Weight), router = block.Weights(Parameter::kRouterWeight),
      w1 = block.Weights(Parameter::kExpertsFc1Weight), w2 = block.Weights(Parameter::kExpertsFc2Weight);
  ExpectClose(block.next_x(), formula.Run(x1, gamma, router, w1, w2).x, 1e-5, "x");

  const auto loss = [&](const Vector& x, const Vector& g, const Vector& r, const Vector& first, const Vector& second) {
    const Formula::Result result = formula.Run(x, g, r, first, second);
    double sum = result.losses;
    for (size_t i = 0; i < grad.size(); ++i) sum += grad[i] * result.x[i];
    return sum;
  };
  using V = const Vector&;
  ExpectClose(block.Values(Tensor::kGrad), GradientOf([&](V v) { return loss(v, gamma, router, w1, w2); }, x1), 1e-5, "dx1");
  ExpectClose(block.Gradient(Parameter::kLn2Weight), GradientOf([&](V v) { return loss(x1, v, router, w1, w2); }, gamma), 1e-5,
              "dgamma");
  ExpectClose(block.Gradient(Parameter::kRouterWeight), GradientOf([&](V v) { return loss(x1, gamma, v, w1, w2); }, router),
              1e-5, "drouter");
  ExpectClose(block.Gradient(Parameter::kExpertsFc1Weight), GradientOf([&](V v) { return loss(x1, gamma, router, v, w2); }, w1),
              1e-5, "dw1");
  ExpectClose(block.Gradient(Parameter::kExpertsFc2Weight), GradientOf([&](V v) { return loss(x1, gamma, router, w1, v); }, w2),
              1e-5, "dw2");
}

// Slot i of member m goes to slot m of member i, as in the all-to-all of an expert group.
void Exchange(std::vector<std::unique_ptr<Block>>& members, Tensor from, Tensor to) {
  for (size_t m = 0; m < members.size(); ++m) {
    for (size_t i = 0; i < members.size(); ++i) {
      const int64_t slot = members[m]->Count(from) / static_cast<int64_t>(members.size());
      std::copy_n(members[m]->At(from) + static_cast<int64_t>(i) * slot, slot,
                  members[i]->At(to) + static_cast<int64_t>(m) * slot);
    }
  }
}

void RunTogether(std::vector<std::unique_ptr<Block>>& members) {
  using enum Op;
  for (auto& member : members) member->Forward({kLn2, kRouter, kPermute});
  Exchange(members, Tensor::kRows, Tensor::kExpertRows);
  Exchange(members, Tensor::kRowWeights, Tensor::kExpertWeights);
  for (auto& member : members) member->Forward({kFc1, kSilu, kSwiglu, kFc2});
  Exchange(members, Tensor::kExpertOut, Tensor::kCombined);
  for (auto& member : members) {
    member->Forward({kUnpermute, kAdd2});
    member->Backward({kAdd2, kUnpermute});
  }
  Exchange(members, Tensor::kGradCombined, Tensor::kGradExpertOut);
  for (auto& member : members) member->Backward({kFc2, kSwiglu, kSilu, kFc1});
  Exchange(members, Tensor::kGradExpertRows, Tensor::kGradRows);
  Exchange(members, Tensor::kGradExpertWeights, Tensor::kGradRowWeights);
  for (auto& member : members) {
    member->Backward({kPermute, kRouter, kLn2});
    member->Weight({kFc2, kFc1, kRouter});
  }
}

// Two ranks with two experts each compute the same bits as one rank with all experts and two microbatches.
TEST(ExpertOps, OfAnExpertGroupChangeNoBit) {
  const ModelSpec model = OneLayer();
  std::vector<std::unique_ptr<Block>> members;
  for (int32_t member = 0; member < 2; ++member) {
    members.push_back(std::make_unique<Block>(model, LayoutOf(1, 2, 2), 2, 0, member));
    members.back()->SetNumbers(Tensor::kX1, 10 + member);
    members.back()->SetNumbers(Tensor::kGrad, 20 + member);
  }
  RunTogether(members);

  Block alone(model, LayoutOf(1, 1, 1), 2, 0, 0);
  for (int32_t member = 0; member < 2; ++member) {
    alone.SetNumbers(Tensor::kX1, 10 + member);
    alone.SetNumbers(Tensor::kGrad, 20 + member);
    alone.RunAlone();
    EXPECT_EQ(members[member]->next_x(), alone.next_x()) << member;
    EXPECT_EQ(members[member]->Values(Tensor::kGrad), alone.Values(Tensor::kGrad)) << member;
  }
  for (const Parameter parameter : {Parameter::kExpertsFc1Weight, Parameter::kExpertsFc2Weight}) {
    std::vector<float> both = members[0]->Gradient(parameter);
    const std::vector<float> second = members[1]->Gradient(parameter);
    both.insert(both.end(), second.begin(), second.end());
    EXPECT_EQ(both, alone.Gradient(parameter));
  }
}

// With sequence parallelism, the second rank has the second half of the tokens. The gradients of ln2 and of the block's output
// are tensors of this half.
TEST(ExpertOps, OfAShareOfTheSequenceChangeNoBit) {
  const ModelSpec model = OneLayer();
  Block share(model, LayoutOf(2, 1, 1), 2, 1, 0), alone(model, LayoutOf(1, 1, 1), 1, 0, 0);
  ASSERT_EQ(share.Count(Tensor::kX1), alone.Count(Tensor::kX1));
  ASSERT_EQ(share.Count(Tensor::kGradLn2), alone.Count(Tensor::kGradLn2));
  for (Block* const block : {&share, &alone}) {
    block->SetNumbers(Tensor::kX1, 1);
    block->SetNumbers(Tensor::kGrad, 2);
    block->RunAlone();
  }
  EXPECT_EQ(share.next_x(), alone.next_x());
  EXPECT_EQ(share.Values(Tensor::kGrad), alone.Values(Tensor::kGrad));
  for (const Parameter parameter :
       {Parameter::kLn2Weight, Parameter::kRouterWeight, Parameter::kExpertsFc1Weight, Parameter::kExpertsFc2Weight}) {
    EXPECT_EQ(share.Gradient(parameter), alone.Gradient(parameter));
  }
}

}  // namespace
}  // namespace lynx::worker
