// Tests how tokens are copied to the rows of experts, and how rows are added up to tokens again.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

class Permute : public testing::TestWithParam<RouterShape> {
 protected:
  const RouterShape shape = GetParam();
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  std::vector<RouteChoice> choices;
  const RouteChoice* route = NewRoute();

  // A route by random scores, in the backend's memory.
  const RouteChoice* NewRoute() {
    std::vector<float> scores = RandomFloats(shape.n * shape.experts, 7);
    const reference::ExpertRoute want = reference::RouteOf(shape, reference::Vector(scores.begin(), scores.end()));
    choices = want.choices;
    auto* const copy = reinterpret_cast<RouteChoice*>(memory.Output(static_cast<int64_t>(choices.size()) * 3));
    for (size_t i = 0; i < choices.size(); ++i) {
      choices[i].weight = static_cast<float>(want.weights[i]);
      copy[i] = choices[i];
    }
    return copy;
  }

  template <class T>
  void ExpectRows() {
    const T* x = memory.RandomAt<T>(0, shape.n * shape.h, 1);
    T *rows = memory.OutputOf<T>(shape.rows() * shape.h), *same = memory.OutputOf<T>(shape.rows() * shape.h);
    float* weights = memory.Output(shape.rows());
    OpsOf<T>(*backend).TokensToRows(shape, route, x, rows, weights);
    OpsOf<T>(*backend).TokensToRows(shape, route, x, same, nullptr);
    std::vector<float> want(shape.rows() * shape.h, 0.0f), want_weights(shape.rows(), kNoRow);
    for (size_t i = 0; i < choices.size(); ++i) {
      if (choices[i].place < 0) continue;
      const auto token = static_cast<int64_t>(i) / shape.top_k;
      for (int64_t j = 0; j < shape.h; ++j) want[choices[i].place * shape.h + j] = x[token * shape.h + j];
      want_weights[choices[i].place] = choices[i].weight;
    }
    for (int64_t i = 0; i < shape.rows() * shape.h; ++i) {
      ASSERT_EQ(rows[i], want[i]) << i;
      ASSERT_EQ(same[i], want[i]) << i;
    }
    for (int64_t row = 0; row < shape.rows(); ++row) ASSERT_EQ(weights[row], want_weights[row]) << row;
    memory.ExpectGuardsIntact();
  }

  template <class T>
  void ExpectTokens(bool accumulate) {
    const T* rows = memory.RandomAt<T>(0, shape.rows() * shape.h, 1);
    T* x = accumulate ? memory.RandomAt<T>(0, shape.n * shape.h, 2) : memory.OutputOf<T>(shape.n * shape.h);
    const std::vector<T> before(x, x + shape.n * shape.h);
    OpsOf<T>(*backend).RowsToTokens(shape, route, rows, accumulate, x);
    for (int64_t i = 0; i < shape.n * shape.h; ++i) {
      float sum = accumulate ? static_cast<float>(before[i]) : 0;
      for (int64_t c = 0; c < shape.top_k; ++c) {
        const int32_t place = choices[i / shape.h * shape.top_k + c].place;
        if (place >= 0) sum += rows[place * shape.h + i % shape.h];
      }
      ASSERT_EQ(x[i], T(sum)) << i;  // the order of the additions is given, and the sum is rounded once
    }
    memory.ExpectGuardsIntact();
  }

  // The rounds take the rows of each expert that have no room, in their order, and no row twice.
  void ExpectRounds() {
    const auto count = static_cast<int64_t>(choices.size());
    std::vector<std::vector<size_t>> without_room(shape.experts);
    int32_t most = 0;
    for (size_t i = 0; i < choices.size(); ++i) {
      if (choices[i].place >= 0) continue;
      without_room[choices[i].expert].push_back(i);
      most = std::max(most, static_cast<int32_t>(without_room[choices[i].expert].size()));
    }
    auto* const found = reinterpret_cast<int32_t*>(memory.Output(1));
    backend->MostWithoutRoom(route, count, found);
    ASSERT_TRUE(backend->Finish().ok());
    ASSERT_EQ(*found, most);

    const int64_t room = 2;
    auto* const of_round = reinterpret_cast<RouteChoice*>(memory.Output(3 * count));
    const float* const gradients = memory.Random(shape.experts * room, 3);
    float* const late = memory.Output(count);
    std::fill_n(late, count, 77.0f);
    for (int64_t round = 0; round * room < most + 1; ++round) {  // the last one may take no row
      backend->RouteOfRound(route, count, room, round, of_round);
      backend->WeightGradientsOfChoices(of_round, count, gradients, late);
      ASSERT_TRUE(backend->Finish().ok());
      for (size_t i = 0; i < choices.size(); ++i) {
        const std::vector<size_t>& rows = without_room[choices[i].expert];
        const int64_t number = std::find(rows.begin(), rows.end(), i) - rows.begin() - round * room;
        const bool takes = choices[i].place < 0 && number >= 0 && number < room;
        EXPECT_EQ(of_round[i].expert, choices[i].expert);
        EXPECT_EQ(of_round[i].weight, choices[i].weight);
        if (!takes) {
          ASSERT_LT(of_round[i].place, 0) << "choice " << i << ", round " << round;
          continue;
        }
        ASSERT_EQ(of_round[i].place, choices[i].expert * room + number) << "choice " << i << ", round " << round;
        ASSERT_EQ(late[i], gradients[choices[i].expert * room + number]);
      }
    }
    for (size_t i = 0; i < choices.size(); ++i) EXPECT_EQ(late[i] == 77.0f, choices[i].place >= 0) << i;
    memory.ExpectGuardsIntact();
  }
};

TEST_P(Permute, CopiesTokensToTheirPlaces) { ExpectRows<float>(); }
TEST_P(Permute, CopiesTokensOfBfloat16ToTheirPlaces) { ExpectRows<Bfloat16>(); }
TEST_P(Permute, AddsUpTheRowsOfATokenInTheOrderOfChoices) { ExpectTokens<float>(false); }
TEST_P(Permute, AddsUpTheRowsOfBfloat16AndRoundsOnce) { ExpectTokens<Bfloat16>(false); }
TEST_P(Permute, AddsTheRowsToWhatTheTokenHas) { ExpectTokens<float>(true); }
TEST_P(Permute, AddsTheRowsOfBfloat16ToWhatTheTokenHas) { ExpectTokens<Bfloat16>(true); }
TEST_P(Permute, EveryRowWithoutRoomIsInOneRound) { ExpectRounds(); }

// The cases: one token; rooms that stay empty; dropped rows, so that some tokens have no row; as many choices as experts; rows
// that fit packs; rows longer than the pieces in which they are summed.
INSTANTIATE_TEST_SUITE_P(Shapes, Permute,
                         testing::Values(RouterShape{.n = 1, .h = 3, .experts = 6, .top_k = 2, .room = 1},
                                         RouterShape{.n = 4, .h = 5, .experts = 7, .top_k = 1, .room = 4},
                                         RouterShape{.n = 31, .h = 9, .experts = 4, .top_k = 2, .room = 3},
                                         RouterShape{.n = 5, .h = 24, .experts = 3, .top_k = 3, .room = 5},
                                         RouterShape{.n = 12, .h = 2100, .experts = 5, .top_k = 3, .room = 6},
                                         RouterShape{.n = 300, .h = 64, .experts = 8, .top_k = 2, .room = 80}),
                         [](const auto& info) {
                           return "n" + std::to_string(info.param.n) + "h" + std::to_string(info.param.h);
                         });

}  // namespace
}  // namespace lynx::worker
