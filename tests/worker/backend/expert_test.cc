// Tests the ops on the rows of experts against their formulas and finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

using reference::Vector;

struct ExpertCase {
  ExpertShape shape;
  int64_t in, out;
  std::vector<int64_t> filled;  // the number of rows of each block that have a token
};

class Experts : public testing::TestWithParam<ExpertCase> {
 protected:
  const ExpertShape shape = GetParam().shape;
  const int64_t in = GetParam().in, out = GetParam().out, rows = shape.rows();
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  const std::vector<float> weights_of_rows = Weights();
  const float* weights = memory.Copy(weights_of_rows);

  std::vector<float> Weights() const {
    std::vector<float> all = RandomFloats(rows, 5);
    for (int64_t row = 0; row < rows; ++row) {
      float& weight = all[row];
      weight = Has(row) ? 0.5f * (weight + 1) : kNoRow;
    }
    return all;
  }
  bool Has(int64_t row) const { return row % shape.room < GetParam().filled[row / shape.room]; }

  // Returns random rows. Rows without a token are 0.
  template <class T>
  T* Rows(int64_t columns, uint64_t seed, float scale = 1) {
    T* all = memory.RandomAt<T>(0, rows * columns, seed, scale);
    for (int64_t i = 0; i < rows * columns; ++i) {
      if (!Has(i / columns)) all[i] = 0.0f;
    }
    return all;
  }
  template <class T>
  void ExpectEmptyRowsAreZero(const T* all, int64_t columns) {
    for (int64_t i = 0; i < rows * columns; ++i) {
      if (Has(i / columns)) continue;
      ASSERT_EQ(all[i], 0.0f) << "row " << i / columns;
    }
  }

  template <class T>
  void ExpectProducts() {
    const int64_t matrix = out * in;
    const T *x = Rows<T>(in, 1), *dy = Rows<T>(out, 3), *w = memory.RandomAt<T>(0, shape.experts * matrix, 2);
    T *y = memory.OutputOf<T>(rows * out), *dx = memory.OutputOf<T>(rows * in);
    float* dw = memory.Constant(shape.experts * matrix, 0.5f);
    LayerBackend<T>& ops = OpsOf<T>(*backend);
    ops.ExpertForward(shape, weights, x, w, in, out, y);
    ops.ExpertBackward(shape, weights, dy, w, in, out, dx);
    ops.ExpertWeight(shape, weights, x, dy, in, out, dw);
    Vector want_y(rows * out), want_dx(rows * in), want_dw(shape.experts * matrix, 0.5);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t first = row / shape.room % shape.experts * matrix;
      for (int64_t i = 0; i < matrix; ++i) {
        want_y[row * out + i / in] += double{x[row * in + i % in]} * w[first + i];
        want_dx[row * in + i % in] += double{dy[row * out + i / in]} * w[first + i];
        want_dw[first + i] += double{dy[row * out + i / in]} * x[row * in + i % in];
      }
    }
    ExpectClose(y, want_y, 4e-6, "y");
    ExpectClose(dx, want_dx, 4e-6, "dx");
    ExpectClose(dw, want_dw, 4e-6, "dw");
    ExpectEmptyRowsAreZero(y, out);
    ExpectEmptyRowsAreZero(dx, in);
    memory.ExpectGuardsIntact();
  }

  int64_t* Counters(int64_t count) {
    auto* const counters = reinterpret_cast<int64_t*>(memory.Output(2 * count));
    std::fill_n(counters, count, 7);
    return counters;
  }
  void ExpectCounts() {
    int64_t *by_expert = Counters(shape.experts), *total = Counters(1), *only_total = Counters(1);
    for (int repeated = 0; repeated < 2; ++repeated) backend->CountRows(shape, weights, by_expert, total);
    backend->CountRows(shape, weights, nullptr, only_total);
    ASSERT_TRUE(backend->Finish().ok());
    std::vector<int64_t> want(shape.experts, 7);
    int64_t rows_with_token = 0;
    for (int64_t block = 0; block < shape.blocks; ++block) {
      want[block % shape.experts] += 2 * GetParam().filled[block];
      rows_with_token += GetParam().filled[block];
    }
    EXPECT_EQ(std::vector<int64_t>(by_expert, by_expert + shape.experts), want);
    EXPECT_EQ(*total, 7 + 2 * rows_with_token);
    EXPECT_EQ(*only_total, 7 + rows_with_token);
    memory.ExpectGuardsIntact();
  }

  template <class T>
  void ExpectSwiglu(double tolerance) {
    const int64_t f = in;
    const T *gated = Rows<T>(2 * f, 1, 4), *dy = Rows<T>(f, 2);
    T *silu = memory.OutputOf<T>(rows * f), *y = memory.OutputOf<T>(rows * f), *dgated = memory.OutputOf<T>(rows * 2 * f);
    float* dweights = memory.Output(rows);
    LayerBackend<T>& ops = OpsOf<T>(*backend);
    ops.SiluForward(gated, rows, f, silu);
    ops.ExpertSwigluForward(shape, weights, gated, silu, f, y);
    ops.ExpertSwigluBackward(shape, weights, gated, silu, dy, f, dgated, dweights);
    ops.SiluBackward(gated, rows, f, dgated);

    const Vector gated_d = ToDouble(gated, rows * 2 * f), weights_d = ToDouble(weights, rows), dy_d = ToDouble(dy, rows * f);
    ExpectClose(y, reference::ExpertSwiglu(gated_d, weights_d, f), tolerance, "y");
    ExpectEmptyRowsAreZero(silu, f);
    ExpectEmptyRowsAreZero(y, f);
    ExpectEmptyRowsAreZero(dgated, 2 * f);
    ExpectEmptyRowsAreZero(dweights, 1);
    // The weight is a factor, so its gradient is the product of dy and the result for a weight of 1.
    const Vector of_one = reference::Swiglu(gated_d, rows, f);
    Vector want_dweights(rows), want_dgated(rows * 2 * f);
    for (int64_t i = 0; i < rows * f; ++i) want_dweights[i / f] += dy_d[i] * of_one[i];
    ExpectClose(dweights, want_dweights, tolerance, "dweights");
    if (rows * f > 1000) return;  // only the small shapes are tested by finite differences
    ExpectClose(dgated,
                reference::Gradient(
                    [&](const Vector& v) { return reference::Dot(reference::ExpertSwiglu(v, weights_d, f), dy_d); }, gated_d),
                tolerance, "dgated");
    memory.ExpectGuardsIntact();
  }
};

TEST_P(Experts, ProductsAreThoseOfTheirExperts) { ExpectProducts<float>(); }
TEST_P(Experts, ProductsOfBfloat16AreRoundedOnce) { ExpectProducts<Bfloat16>(); }
TEST_P(Experts, SwigluEqualsTheFormula) { ExpectSwiglu<float>(2e-6); }
// silu is rounded before the multiplication, and one half of dgated is rounded twice.
TEST_P(Experts, SwigluOfBfloat16EqualsTheFormula) { ExpectSwiglu<Bfloat16>(kBfloat16Rounding); }
TEST_P(Experts, RowsAreCounted) { ExpectCounts(); }

// One row; one expert; blocks of several ranks, with empty, full and partly filled rooms; rooms of many rows; long rows.
INSTANTIATE_TEST_SUITE_P(Shapes, Experts,
                         testing::Values(ExpertCase{{.blocks = 1, .room = 1, .experts = 1}, 1, 1, {1}},
                                         ExpertCase{{.blocks = 3, .room = 4, .experts = 1}, 5, 7, {4, 0, 2}},
                                         ExpertCase{{.blocks = 4, .room = 5, .experts = 4}, 7, 6, {5, 1, 0, 3}},
                                         ExpertCase{{.blocks = 6, .room = 3, .experts = 2}, 16, 8, {0, 3, 2, 1, 0, 0}},
                                         ExpertCase{{.blocks = 4, .room = 90, .experts = 2}, 24, 32, {90, 61, 1, 0}},
                                         ExpertCase{{.blocks = 2, .room = 2, .experts = 2}, 2100, 3, {1, 2}},
                                         // There are more blocks than threads in a block of a device.
                                         ExpertCase{
                                             {.blocks = 600, .room = 2, .experts = 300}, 1, 1, std::vector<int64_t>(600, 1)}),
                         [](const auto& info) {
                           const ExpertShape& shape = info.param.shape;
                           return "blocks" + std::to_string(shape.blocks) + "room" + std::to_string(shape.room) + "experts" +
                                  std::to_string(shape.experts);
                         });

}  // namespace
}  // namespace lynx::worker
