// Tests that an op gives the same bits at all addresses. If the addresses of all tensors allow it, a device reads several
// elements together, otherwise one after another.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/worker/backend/rotary.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

constexpr int64_t kB = 2, kS = 6, kN = kB * kS, kH = 24, kCount = kN * kH, kRows = 10;
constexpr AttentionShape kHeads{.b = kB, .s = kS, .a = 4, .k = 2, .d = 32};
constexpr int64_t kQkv = kN * kHeads.width();
constexpr DropoutKey kKey{0.2, 5, 6, 7, 8, 9};

constexpr RouterShape kRouter{.n = kN, .h = kH, .experts = 4, .top_k = 2, .room = 5};
constexpr ExpertShape kExperts{.blocks = 4, .room = 5, .experts = 2};
constexpr int64_t kOfRows = kExperts.rows() * kH;

// A route whose choices are spread evenly over the experts. The last four choices are dropped.
const RouteChoice* Route(TestMemory& memory) {
  auto* const route = reinterpret_cast<RouteChoice*>(memory.Output(kN * kRouter.top_k * 3));
  for (int32_t i = 0; i < kN * kRouter.top_k; ++i) {
    route[i] = {.expert = i % 4, .weight = 0.1f * static_cast<float>(i), .place = i / 4 < 5 ? i % 4 * 5 + i / 4 : -1};
  }
  return route;
}

// The weights of the rows of kExperts: three rows of each block have a token.
const float* RowWeights(TestMemory& memory) {
  std::vector<float> weights = RandomFloats(kExperts.rows(), 8);
  for (size_t row = 0; row < weights.size(); ++row) {
    if (row % kExperts.room >= 3) weights[row] = kNoRow;
  }
  return memory.Copy(weights);
}

// The tensors of one op, on T. All of them begin `shift` elements after an aligned address.
template <class T>
class Tensors {
 public:
  explicit Tensors(int64_t shift) : shift_(shift) {}
  T* operator()(int64_t count, uint64_t seed) { return memory.RandomAt<T>(shift_, count, seed, 2); }

  TestMemory memory;

 private:
  const int64_t shift_;
};

template <class T>
struct OpCase {
  const char* name;
  int64_t count;                                                                 // the number of elements of the op's output
  std::function<void(LayerBackend<T>& ops, Tensors<T>& tensor, T* output)> run;  // the output begins with random numbers
};

template <class T>
std::vector<OpCase<T>> Cases() {
  using Ops = LayerBackend<T>&;
  using New = Tensors<T>&;
  return {
      {"GeluForward", kCount, [](Ops ops, New tensor, T* y) { ops.GeluForward(tensor(kCount, 1), kCount, y); }},
      {"GeluBackward", kCount, [](Ops ops, New tensor, T* dy) { ops.GeluBackward(tensor(kCount, 1), kCount, dy); }},
      {"SiluForward", kCount, [](Ops ops, New tensor, T* y) { ops.SiluForward(tensor(2 * kCount, 1), kN, kH, y); }},
      {"SiluBackward", 2 * kCount, [](Ops ops, New tensor, T* dy) { ops.SiluBackward(tensor(2 * kCount, 1), kN, kH, dy); }},
      {"SwigluForward", kCount,
       [](Ops ops, New tensor, T* y) { ops.SwigluForward(tensor(2 * kCount, 1), tensor(kCount, 2), kN, kH, y); }},
      {"SwigluBackward", 2 * kCount,
       [](Ops ops, New tensor, T* dy) {
         ops.SwigluBackward(tensor(2 * kCount, 1), tensor(kCount, 2), tensor(kCount, 3), kN, kH, dy);
       }},
      {"TokensToRows", kOfRows,
       [](Ops ops, New tensor, T* rows) { ops.TokensToRows(kRouter, Route(tensor.memory), tensor(kCount, 1), rows, nullptr); }},
      {"RowsToTokens", kCount,
       [](Ops ops, New tensor, T* x) { ops.RowsToTokens(kRouter, Route(tensor.memory), tensor(kOfRows, 1), false, x); }},
      {"RowsToTokensThatHaveValues", kCount,
       [](Ops ops, New tensor, T* x) { ops.RowsToTokens(kRouter, Route(tensor.memory), tensor(kOfRows, 1), true, x); }},
      {"ExpertSwigluForward", kOfRows,
       [](Ops ops, New tensor, T* y) {
         ops.ExpertSwigluForward(kExperts, RowWeights(tensor.memory), tensor(2 * kOfRows, 1), tensor(kOfRows, 2), kH, y);
       }},
      {"ExpertSwigluBackward", 2 * kOfRows,
       [](Ops ops, New tensor, T* dy) {
         ops.ExpertSwigluBackward(kExperts, RowWeights(tensor.memory), tensor(2 * kOfRows, 1), tensor(kOfRows, 2),
                                  tensor(kOfRows, 3), kH, dy, tensor.memory.Output(kExperts.rows()));
       }},
      {"GatedSwigluForward", kCount,
       [](Ops ops, New tensor, T* y) {
         ops.GatedSwigluForward(tensor(2 * kCount, 1), tensor.memory.Random(kN, 2), kN, kH, y);
       }},
      {"GatedSwigluBackward", 2 * kCount,
       [](Ops ops, New tensor, T* dy) {
         ops.GatedSwigluBackward(tensor(2 * kCount, 1), tensor.memory.Random(kN, 2), tensor(kCount, 3), kN, kH, dy,
                                 tensor.memory.Output(kN));
       }},
      {"BiasDropoutAddForward", kCount,
       [](Ops ops, New tensor, T* y) { ops.BiasDropoutAddForward(tensor(kCount, 1), tensor(kH, 2), kS, kN, kH, kKey, y); }},
      {"BiasDropoutAddBackward", kCount,
       [](Ops ops, New tensor, T* dy) { ops.BiasDropoutAddBackward(tensor(kCount, 1), kS, kN, kH, kKey, dy); }},
      {"PositionForward", kCount,
       [](Ops ops, New tensor, T* x) { ops.PositionForward(x, tensor(kS * kH, 1), kN, kS, kH, kKey); }},
      {"PositionBackward", kCount,
       [](Ops ops, New tensor, T* dx) { ops.PositionBackward(dx, tensor.memory.Constant(kS * kH, 0), kN, kS, kH, kKey); }},
      {"EmbeddingForward", kCount,
       [](Ops ops, New tensor, T* out) {
         ops.EmbeddingForward(tensor.memory.Tokens(kN, kRows + 3, 1), tensor(kRows * kH, 2), 2, kN, kH, kRows, out);
       }},
      {"RopeForward", kQkv, [](Ops ops, New, T* qkv) { ops.RopeForward(kHeads, PlainRotary(32), qkv); }},
      {"RopeBackward", kQkv, [](Ops ops, New, T* dqkv) { ops.RopeBackward(kHeads, PlainRotary(32), dqkv); }},
      {"QkNormForward", kQkv,
       [](Ops ops, New tensor, T* y) {
         ops.QkNormForward(kHeads, tensor(kQkv, 1), tensor(kHeads.d, 2), tensor(kHeads.d, 3), 1e-5f, y);
       }},
      {"QkNormBackward", kQkv,
       [](Ops ops, New tensor, T* dy) {
         float* const sums = tensor.memory.Constant(2 * kHeads.d, 0);
         ops.QkNormBackward(kHeads, tensor(kQkv, 1), tensor(kHeads.d, 2), tensor(kHeads.d, 3), 1e-5f, dy, sums,
                            sums + kHeads.d);
       }},
  };
}

template <class T>
void ExpectSameBits() {
  std::unique_ptr<Backend> backend = MakeTestBackend();
  for (const OpCase<T>& op : Cases<T>()) {
    std::vector<double> first;
    for (const int64_t shift : {0, 1, 4}) {
      Tensors<T> tensors(shift);
      T* const output = tensors(op.count, 9);
      op.run(OpsOf<T>(*backend), tensors, output);
      tensors.memory.ExpectGuardsIntact();
      const std::vector<double> got = ToDouble(output, op.count);
      if (first.empty()) first = got;
      EXPECT_TRUE(got == first) << op.name << " gives other bits if its tensors begin at element " << shift;
    }
  }
}

TEST(Addresses, OfFloatsDoNotChangeBits) { ExpectSameBits<float>(); }
TEST(Addresses, OfBfloat16DoNotChangeBits) { ExpectSameBits<Bfloat16>(); }

}  // namespace
}  // namespace lynx::worker
