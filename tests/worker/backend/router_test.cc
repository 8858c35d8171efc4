// Tests the router of experts against its formulas, and its gradients against finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"
#include "worker/backend/score_key.h"

namespace lynx::worker {
namespace {

using reference::Vector;

RouteChoice* NewRoute(const RouterShape& shape, TestMemory& memory) {
  return reinterpret_cast<RouteChoice*>(memory.Output(shape.n * shape.top_k * 3));
}

std::vector<RouteChoice> Choices(const RouterShape& shape, const RouteChoice* route) {
  return std::vector<RouteChoice>(route, route + shape.n * shape.top_k);
}

// Expects that the route is the one that follows from the scores.
void ExpectRoute(const RouterShape& shape, const float* scores, const RouteChoice* route, const float* bias = nullptr) {
  const Vector biases = bias == nullptr ? Vector() : ToDouble(bias, shape.experts);
  const reference::ExpertRoute want = reference::RouteOf(shape, ToDouble(scores, shape.n * shape.experts), biases);
  for (int64_t i = 0; i < shape.n * shape.top_k; ++i) {
    const std::string what = "choice " + std::to_string(i % shape.top_k) + " of token " + std::to_string(i / shape.top_k);
    ASSERT_EQ(route[i].expert, want.choices[i].expert) << what;
    ASSERT_EQ(route[i].place, want.choices[i].place) << what;
    ASSERT_NEAR(route[i].weight, want.weights[i], 2e-6 * shape.scale) << what;
  }
}

struct RouterCase {
  std::string name;
  RouterShape shape;
  RouterLosses losses;
};

class Router : public testing::TestWithParam<RouterCase> {
 protected:
  const RouterShape shape = GetParam().shape;
  const RouterLosses losses = GetParam().losses;
  const int64_t n = shape.n, h = shape.h, experts = shape.experts;
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  float* scores = memory.Output(n * experts);
  float* dscores = memory.Output(n * experts);
  RouteChoice* route = NewRoute(shape, memory);
  // Only sigmoids have biases. They are as large as the sigmoids.
  const float* const bias = shape.sigmoid ? memory.Random(experts, 6) : nullptr;

  template <class T>
  void ExpectForward(double tolerance) {
    const T *x = memory.RandomAt<T>(0, n * h, 1, 2), *w = memory.RandomAt<T>(0, experts * h, 2);
    OpsOf<T>(*backend).RouterForward(shape, x, w, bias, scores, route);
    ExpectClose(scores, reference::Linear(ToDouble(x, n * h), ToDouble(w, experts * h), {}, n, h, experts), tolerance,
                "scores");
    ExpectRoute(shape, scores, route, bias);
    memory.ExpectGuardsIntact();
  }

  // `late`: the gradients of the weights of rows that had no room; null: these rows were dropped.
  template <class T>
  void ExpectGradients(double tolerance, const float* late = nullptr) {
    const T *x = memory.RandomAt<T>(0, n * h, 1, 2), *w = memory.RandomAt<T>(0, experts * h, 2);
    const float* dweights = memory.Random(shape.rows(), 3);
    T* dx = memory.RandomAt<T>(0, n * h, 4);
    const Vector dx_before = ToDouble(dx, n * h);
    float* dw = memory.Constant(experts * h, 0.5f);
    LayerBackend<T>& ops = OpsOf<T>(*backend);
    ops.RouterForward(shape, x, w, bias, scores, route);
    ops.RouterBackward(shape, losses, scores, route, dweights, late, w, dscores, dx);
    ops.RouterWeight(shape, x, dscores, dw);

    const std::vector<RouteChoice> choices = Choices(shape, route);
    const auto loss = [&](const Vector& s) {
      const Vector weights = reference::RouteWeights(shape, s, choices);
      double sum = reference::RouterLoss(shape, losses, s, choices);
      for (size_t i = 0; i < choices.size(); ++i) {
        const double late_gradient = late == nullptr ? 0 : late[i];
        sum += (choices[i].place >= 0 ? double{dweights[choices[i].place]} : late_gradient) * weights[i];
      }
      return sum;
    };
    // With many experts, finite differences of the whole loss would take long.
    const Vector scores_d = ToDouble(scores, n * experts);
    if (n * experts < 2000) ExpectClose(dscores, reference::Gradient(loss, scores_d), 1e-5, "dscores");
    Vector want_dx = dx_before, want_dw(experts * h, 0.5);
    for (int64_t i = 0; i < n * experts; ++i) {
      const int64_t token = i / experts, e = i % experts;
      for (int64_t j = 0; j < h; ++j) {
        want_dx[token * h + j] += double{dscores[i]} * w[e * h + j];
        want_dw[e * h + j] += double{dscores[i]} * x[token * h + j];
      }
    }
    ExpectClose(dx, want_dx, tolerance, "dx");
    ExpectClose(dw, want_dw, 4e-6, "dw");
    memory.ExpectGuardsIntact();
  }
};

TEST_P(Router, ForwardEqualsTheFormula) { ExpectForward<float>(4e-6); }
TEST_P(Router, ForwardOfBfloat16EqualsTheFormula) { ExpectForward<Bfloat16>(4e-6); }
TEST_P(Router, BackwardEqualsFiniteDifferences) { ExpectGradients<float>(4e-6); }
TEST_P(Router, BackwardOfBfloat16IsRoundedOnce) { ExpectGradients<Bfloat16>(4e-6); }
TEST_P(Router, BackwardTakesGradientsOfRowsWithoutRoom) {
  ExpectGradients<float>(4e-6, memory.Random(shape.n * shape.top_k, 5));
}

// The last three cases have more choices than a block of a device counts at once, more experts than a block has threads, and
// rows that are longer than the pieces in which rows are summed.
INSTANTIATE_TEST_SUITE_P(
    Shapes, Router,
    testing::Values(
        RouterCase{"OneToken", {.n = 1, .h = 5, .experts = 4, .top_k = 2, .room = 1}, {}},
        RouterCase{"NoneDropped", {.n = 13, .h = 7, .experts = 5, .top_k = 2, .room = 13}, {}},
        RouterCase{"SomeDropped", {.n = 13, .h = 7, .experts = 5, .top_k = 2, .room = 3}, {}},
        RouterCase{"NotNormalized", {.n = 13, .h = 8, .experts = 6, .top_k = 3, .room = 5, .normalized = false}, {}},
        RouterCase{"OneChoice", {.n = 11, .h = 6, .experts = 3, .top_k = 1, .room = 4, .normalized = false}, {}},
        RouterCase{"AllExperts", {.n = 9, .h = 6, .experts = 4, .top_k = 4, .room = 9}, {}},
        RouterCase{"AuxLoss", {.n = 13, .h = 7, .experts = 5, .top_k = 2, .room = 3}, {.aux = 3, .scale = 0.5}},
        RouterCase{"ZLoss", {.n = 13, .h = 7, .experts = 5, .top_k = 2, .room = 3}, {.z = 0.75, .scale = 2}},
        RouterCase{"AllLosses",
                   {.n = 12, .h = 16, .experts = 8, .top_k = 2, .room = 2, .normalized = false},
                   {.aux = 2, .z = 0.5, .scale = 0.25}},
        RouterCase{"Sigmoid", {.n = 13, .h = 7, .experts = 5, .top_k = 2, .room = 3, .sigmoid = true, .scale = 2.5f}, {}},
        RouterCase{"SigmoidNotNormalized",
                   {.n = 13, .h = 8, .experts = 6, .top_k = 3, .room = 5, .normalized = false, .sigmoid = true},
                   {}},
        RouterCase{"SigmoidAllLosses",
                   {.n = 12, .h = 16, .experts = 8, .top_k = 2, .room = 2, .sigmoid = true, .scale = 0.5f},
                   {.aux = 2, .z = 0.5, .scale = 0.25}},
        RouterCase{"SigmoidManyExperts",
                   {.n = 6, .h = 12, .experts = 300, .top_k = 5, .room = 2, .sigmoid = true},
                   {.aux = 1, .z = 1}},
        RouterCase{"Scaled", {.n = 13, .h = 7, .experts = 5, .top_k = 2, .room = 3, .scale = 2.5f}, {.aux = 3}},
        RouterCase{"ScaledNotNormalized",
                   {.n = 13, .h = 8, .experts = 6, .top_k = 3, .room = 5, .normalized = false, .scale = 16},
                   {}},
        RouterCase{"ManyTokens", {.n = 1100, .h = 9, .experts = 6, .top_k = 2, .room = 400}, {.aux = 1}},
        RouterCase{"ManyExperts", {.n = 6, .h = 12, .experts = 300, .top_k = 5, .room = 2}, {.aux = 1, .z = 1}},
        RouterCase{"LongRows", {.n = 21, .h = 700, .experts = 70, .top_k = 2, .room = 4}, {.aux = 1, .z = 1}}),
    [](const auto& info) { return info.param.name; });

TEST(ScoreKeys, AreInTheOrderOfScoresAndThenOfExperts) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::pair<float, int64_t>> descending = {
      {kNan, 3}, {kInfinity, 7}, {2, 0},  {2, 4095}, {1e-30f, 5},     {0.0f, 1},       {-0.0f, 2},
      {0.0f, 3}, {-1e-30f, 0},   {-1, 8}, {-2, 4},   {-kInfinity, 0}, {-kInfinity, 1}, {-kNan, 0}};
  ScoreKey last = kAboveAllKeys;
  for (const auto& [score, expert] : descending) {
    const ScoreKey key = ScoreKeyOf(score, expert);
    EXPECT_LT(key, last) << score << " " << expert;
    EXPECT_GT(key, 0u);
    EXPECT_EQ(ExpertOf(key), expert);
    last = key;
  }
}

// The numbers are small integers, so that scores are exact and many of them are equal.
TEST(RouterTies, TheLowerNumberWins) {
  const RouterShape shape{.n = 40, .h = 3, .experts = 9, .top_k = 4, .room = 20};
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  const auto integers = [&](int64_t count, uint64_t seed) {
    std::vector<float> values = RandomFloats(count, seed, 1.9f);
    for (float& value : values) value = std::round(value);
    return memory.Copy(values);
  };
  float* scores = memory.Output(shape.n * shape.experts);
  RouteChoice* route = NewRoute(shape, memory);
  backend->RouterForward(shape, integers(shape.n * shape.h, 1), integers(shape.experts * shape.h, 2), nullptr, scores, route);
  ExpectRoute(shape, scores, route);

  // All scores are 0, half of them with a minus sign.
  std::vector<float> weights(shape.experts * shape.h, 0.0f);
  for (size_t i = 0; i < weights.size(); i += 2) weights[i] = -0.0f;
  backend->RouterForward(shape, memory.Constant(shape.n * shape.h, 1), memory.Copy(weights), nullptr, scores, route);
  for (int64_t i = 0; i < shape.n * shape.top_k; ++i) {
    ASSERT_EQ(route[i].expert, i % shape.top_k);
    ASSERT_EQ(route[i].weight, 0.25f);
    const int64_t number = i / shape.top_k, without_room = number - shape.room;
    ASSERT_EQ(route[i].place, without_room < 0 ? i % shape.top_k * shape.room + number : -1 - without_room);
  }
  memory.ExpectGuardsIntact();
}

// There are so many choices that a device divides them into parts of more than one piece.
TEST(RouterSizes, ManyChoicesHavePlacesInTheirOrder) {
  const RouterShape shape{.n = 16600, .h = 2, .experts = 11, .top_k = 8, .room = 12000};
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  float* scores = memory.Output(shape.n * shape.experts);
  RouteChoice* route = NewRoute(shape, memory);
  backend->RouterForward(shape, memory.Random(shape.n * shape.h, 1), memory.Random(shape.experts * shape.h, 2), nullptr, scores,
                         route);
  ExpectRoute(shape, scores, route);
  memory.ExpectGuardsIntact();
}

// A device's memory for counts is too small to hold a count for each expert and each piece of the choices.
TEST(RouterSizes, ManyChoicesAmongManyExpertsAreCounted) {
  const RouterShape shape{.n = 2100, .h = 1, .experts = 4096, .top_k = 1024, .room = 1};
  const RouterLosses losses{.aux = 3, .scale = 2};
  std::unique_ptr<Backend> backend = MakeTestBackend();
  const int64_t scores_count = shape.n * shape.experts, route_count = 3 * shape.n * shape.top_k;
  const int64_t count = 2 * scores_count + route_count + 2 * shape.experts + shape.n;
  const auto memory = TestFloatsOf(count);  // more than TestMemory has
  std::fill_n(memory.get(), count, 0.0f);
  float *const scores = memory.get(), *const dscores = scores + scores_count, *const others = dscores + scores_count;
  auto* const route = reinterpret_cast<RouteChoice*>(others);
  float *const dweights = others + route_count, *const w = dweights + shape.experts, *const dx = w + shape.experts;
  std::vector<int64_t> counts(shape.experts);
  for (int64_t i = 0; i < shape.n * shape.top_k; ++i) {
    const int64_t expert = (i / shape.top_k + i % shape.top_k) % shape.experts;
    route[i] = {.expert = static_cast<int32_t>(expert), .weight = 1.0f / static_cast<float>(shape.top_k), .place = -1};
    ++counts[expert];
  }
  backend->RouterBackward(shape, losses, scores, route, dweights, nullptr, w, dscores, dx);
  ASSERT_TRUE(backend->Finish().ok());
  // All scores are 0, so every softmax is 1 / E. The gradient of a score is (slope of its expert - mean slope) / E.
  const auto n = static_cast<double>(shape.n), choices = n * static_cast<double>(shape.top_k);
  const auto experts = static_cast<double>(shape.experts);
  const double factor = losses.scale * losses.aux * experts / n / choices;
  for (const int64_t token : {int64_t{0}, shape.n - 1}) {
    for (int64_t e = 0; e < shape.experts; ++e) {
      const double slope = factor * (static_cast<double>(counts[e]) - choices / experts);
      ASSERT_NEAR(dscores[token * shape.experts + e], slope / experts, 1e-5 * factor * choices / experts / experts) << e;
    }
  }
}

// A step with numbers that are not finite can be skipped (train.onNonFinite). So its route must contain only valid experts and
// places.
TEST(RouterNumbers, OfScoresThatAreNotFiniteStayInRange) {
  const RouterShape shape{.n = 6, .h = 2, .experts = 5, .top_k = 3, .room = 6};
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  std::vector<float> x = RandomFloats(shape.n * shape.h, 1);
  x[0] = std::numeric_limits<float>::quiet_NaN();
  x[3] = -std::numeric_limits<float>::quiet_NaN();
  x[4] = std::numeric_limits<float>::infinity();
  float *scores = memory.Output(shape.n * shape.experts), *dscores = memory.Output(shape.n * shape.experts);
  RouteChoice* route = NewRoute(shape, memory);
  const float* w = memory.Random(shape.experts * shape.h, 2);
  backend->RouterForward(shape, memory.Copy(x), w, nullptr, scores, route);
  std::set<int32_t> places;
  for (int64_t token = 0; token < shape.n; ++token) {
    std::set<int32_t> chosen;
    for (int64_t c = 0; c < shape.top_k; ++c) {
      const RouteChoice& choice = route[token * shape.top_k + c];
      EXPECT_TRUE(choice.expert >= 0 && choice.expert < shape.experts) << choice.expert;
      EXPECT_TRUE(choice.place >= 0 && choice.place / shape.room == choice.expert) << choice.place;
      EXPECT_TRUE(chosen.insert(choice.expert).second) << choice.expert;
      EXPECT_TRUE(places.insert(choice.place).second) << choice.place;
    }
  }
  backend->RouterBackward(shape, {.aux = 1, .z = 1}, scores, route, memory.Random(shape.rows(), 3), nullptr, w, dscores,
                          memory.Constant(shape.n * shape.h, 0));
  EXPECT_TRUE(std::isnan(dscores[0]));  // the fault shows in the gradient
  EXPECT_TRUE(std::isfinite(dscores[5 * shape.experts]));
  memory.ExpectGuardsIntact();
}

// Exponentials of scores that are far apart must not overflow.
TEST(RouterNumbers, OfLargeScoresAreFinite) {
  const RouterShape shape{.n = 1, .h = 1, .experts = 3, .top_k = 2, .room = 1};
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  float *scores = memory.Output(3), *dscores = memory.Output(3);
  RouteChoice* route = NewRoute(shape, memory);
  const float* w = memory.Copy({1000, -1000, 999});
  backend->RouterForward(shape, memory.Constant(1, 1), w, nullptr, scores, route);
  EXPECT_EQ(route[0].expert, 0);
  EXPECT_EQ(route[1].expert, 2);
  EXPECT_NEAR(route[0].weight, 1 / (1 + std::exp(-1.0)), 1e-6);
  backend->RouterBackward(shape, {.aux = 1, .z = 1e-3}, scores, route, memory.Constant(3, 1), nullptr, w, dscores,
                          memory.Constant(1, 0));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isfinite(dscores[i])) << i;
}

// A bias changes only the choice of experts. The weights are still those of the sigmoids.
TEST(RouterBias, OnlyChooses) {
  const RouterShape shape{.n = 7, .h = 3, .experts = 6, .top_k = 2, .room = 7, .sigmoid = true};
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  float* scores = memory.Output(shape.n * shape.experts);
  RouteChoice* route = NewRoute(shape, memory);
  const float *x = memory.Random(shape.n * shape.h, 1), *w = memory.Random(shape.experts * shape.h, 2);
  backend->RouterForward(shape, x, w, memory.Copy({0, 0, 0, 9, 0, 8}), scores, route);
  for (int64_t token = 0; token < shape.n; ++token) {
    const auto sigmoid = [&](int64_t e) { return 1 / (1 + std::exp(-double{scores[token * shape.experts + e]})); };
    const RouteChoice* const own = route + token * shape.top_k;
    EXPECT_EQ(own[0].expert, 3);
    EXPECT_EQ(own[1].expert, 5);
    EXPECT_NEAR(own[0].weight, sigmoid(3) / (sigmoid(3) + sigmoid(5)), 1e-6);
  }
  memory.ExpectGuardsIntact();
}

TEST(RouterLoads, CountEachChoiceAndMoveTheBias) {
  std::unique_ptr<Backend> backend = MakeTestBackend();
  for (const auto& [n, experts] : {std::pair<int64_t, int64_t>{5, 4}, {2500, 300}}) {
    TestMemory memory;
    const RouterShape shape{.n = n, .h = 1, .experts = experts, .top_k = 2, .room = 1};
    RouteChoice* route = NewRoute(shape, memory);
    std::vector<double> want(static_cast<size_t>(experts), 3);
    for (int64_t i = 0; i < n * shape.top_k; ++i) {
      route[i] = {.expert = static_cast<int32_t>(i * i % (experts - 1)), .place = static_cast<int32_t>(i % 3) - 2};
      ++want[static_cast<size_t>(route[i].expert)];
    }
    float *const loads = memory.Constant(experts, 3), *const bias = memory.Constant(experts, 0.25f);
    backend->CountChoices(route, n * shape.top_k, experts, loads);
    ASSERT_TRUE(backend->Finish().ok());
    const double even = want[0];  // then some loads are equal to `even`
    backend->MoveRouterBias(loads, experts, even, 0.125f, bias);
    ASSERT_TRUE(backend->Finish().ok());
    for (int64_t e = 0; e < experts; ++e) {
      const double load = want[static_cast<size_t>(e)];
      ASSERT_EQ(loads[e], load) << e;
      ASSERT_EQ(bias[e], load < even ? 0.375f : load > even ? 0.125f : 0.25f) << e;
    }
    memory.ExpectGuardsIntact();
  }
}

}  // namespace
}  // namespace lynx::worker
