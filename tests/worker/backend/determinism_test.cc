// Tests that every op gives the same bits again: after other work, with its buffers at other addresses, and while other threads
// run.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/backend/rotary.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

constexpr int64_t kB = 2, kS = 70, kN = kB * kS, kA = 3, kD = 11, kH = 33, kV = 50, kF = 130;
constexpr AttentionShape kAttention{.b = kB, .s = kS, .a = kA, .k = kA, .d = kD, .first_head = 2};
constexpr int64_t kQkv = kN * kAttention.width();
constexpr AttentionShape kRotary{.b = kB, .s = kS, .a = 4, .k = 2, .d = 2 * kD};  // d must be even
constexpr float kEpsilon = 1e-5f;
constexpr DropoutKey kKey{0.2, 5, 6, 7, 8, 9};

constexpr RouterShape kRouter{.n = kN, .h = kH, .experts = 6, .top_k = 2, .room = 40};
constexpr ExpertShape kExperts{.blocks = 6, .room = 40, .experts = 3};
constexpr int64_t kRows = kExperts.rows();

struct OpCase {
  const char* name;
  std::function<std::vector<float>(Backend&, TestMemory&)> run;  // runs the op and returns its outputs
};

std::vector<float> Take(const float* x, int64_t count) { return std::vector<float>(x, x + count); }

std::vector<float> Doubles(double x) {
  std::vector<float> bits(2);
  std::memcpy(bits.data(), &x, sizeof(x));
  return bits;
}

// A route by random scores.
RouteChoice* RandomRoute(Backend& backend, TestMemory& memory) {
  auto* const route = reinterpret_cast<RouteChoice*>(memory.Output(kN * kRouter.top_k * 3));
  backend.RouterForward(kRouter, memory.Random(kN * kH, 1), memory.Random(kRouter.experts * kH, 2), nullptr,
                        memory.Output(kN * kRouter.experts), route);
  return route;
}

// The weights of the rows of kExperts: each block has five rows less than the block before it.
const float* RowWeights(TestMemory& memory) {
  std::vector<float> weights = RandomFloats(kRows, 8);
  for (int64_t row = 0; row < kRows; ++row) {
    if (row % kExperts.room >= kExperts.room - row / kExperts.room * 5) weights[row] = kNoRow;
  }
  return memory.Copy(weights);
}

// If an op has several outputs, one buffer holds them all.
const OpCase kCases[] = {
    {"EmbeddingForward",
     [](Backend& backend, TestMemory& memory) {
       float* out = memory.Output(kN * kH);
       backend.EmbeddingForward(memory.Tokens(kN, kV + 9, 1), memory.Random(kV * kH, 2), 4, kN, kH, kV, out);
       return Take(out, kN * kH);
     }},
    {"EmbeddingBackward",
     [](Backend& backend, TestMemory& memory) {
       float* dtok = memory.Random(kV * kH, 3);
       backend.EmbeddingBackward(memory.Tokens(kN, kV + 9, 1), memory.Random(kN * kH, 2), 4, kN, kH, kV, dtok);
       return Take(dtok, kV * kH);
     }},
    {"PositionForward",
     [](Backend& backend, TestMemory& memory) {
       float* x = memory.Random(kN * kH, 1);
       backend.PositionForward(x, memory.Random(kS * kH, 2), kN, kS, kH, kKey);
       return Take(x, kN * kH);
     }},
    {"PositionBackward",
     [](Backend& backend, TestMemory& memory) {
       float* dx = memory.Random((kN + kS) * kH, 1);
       backend.PositionBackward(dx, dx + kN * kH, kN, kS, kH, kKey);
       return Take(dx, (kN + kS) * kH);
     }},
    {"LayerNormForward",
     [](Backend& backend, TestMemory& memory) {
       float* y = memory.Output(kN * kH);
       backend.LayerNormForward(memory.Random(kN * kH, 1), memory.Random(kH, 2), memory.Random(kH, 3), kN, kH, kEpsilon, y);
       return Take(y, kN * kH);
     }},
    {"LayerNormBackward",
     [](Backend& backend, TestMemory& memory) {
       float* out = memory.Random((kN + 2) * kH, 4);
       backend.LayerNormBackward(memory.Random(kN * kH, 1), memory.Random(kH, 2), memory.Random(kN * kH, 3), kN, kH, kEpsilon,
                                 true, out, out + kN * kH, out + (kN + 1) * kH);
       return Take(out, (kN + 2) * kH);
     }},
    {"LinearForward",
     [](Backend& backend, TestMemory& memory) {
       float* y = memory.Output(kN * kF);
       backend.LinearForward(memory.Random(kN * kH, 1), memory.Random(kF * kH, 2), memory.Random(kF, 3), kN, kH, kF, y);
       return Take(y, kN * kF);
     }},
    {"LinearBackward",
     [](Backend& backend, TestMemory& memory) {
       float* dx = memory.Output(kN * kH);
       backend.LinearBackward(memory.Random(kN * kF, 1), memory.Random(kF * kH, 2), kN, kH, kF, dx);
       return Take(dx, kN * kH);
     }},
    {"LinearWeight",
     [](Backend& backend, TestMemory& memory) {
       float* dw = memory.Random(kF * kH + kF, 3);
       backend.LinearWeight(memory.Random(kN * kH, 1), memory.Random(kN * kF, 2), kN, kH, kF, dw, dw + kF * kH);
       return Take(dw, kF * kH + kF);
     }},
    {"RmsNormForward",
     [](Backend& backend, TestMemory& memory) {
       float* y = memory.Output(kN * kH);
       backend.RmsNormForward(memory.Random(kN * kH, 1), memory.Random(kH, 2), kN, kH, kEpsilon, y);
       return Take(y, kN * kH);
     }},
    {"RmsNormBackward",
     [](Backend& backend, TestMemory& memory) {
       float* out = memory.Random((kN + 1) * kH, 4);
       backend.RmsNormBackward(memory.Random(kN * kH, 1), memory.Random(kH, 2), memory.Random(kN * kH, 3), kN, kH, kEpsilon,
                               true, out, out + kN * kH);
       return Take(out, (kN + 1) * kH);
     }},
    {"QkNormForward",
     [](Backend& backend, TestMemory& memory) {
       float* normed = memory.Output(kQkv);
       backend.QkNormForward(kAttention, memory.Random(kQkv, 1), memory.Random(kD, 2), memory.Random(kD, 3), kEpsilon, normed);
       return Take(normed, kQkv);
     }},
    {"QkNormBackward",
     [](Backend& backend, TestMemory& memory) {
       float* out = memory.Random(kQkv + 2 * kD, 4);
       backend.QkNormBackward(kAttention, memory.Random(kQkv, 1), memory.Random(kD, 2), memory.Random(kD, 3), kEpsilon, out,
                              out + kQkv, out + kQkv + kD);
       return Take(out, kQkv + 2 * kD);
     }},
    {"RopeForward",
     [](Backend& backend, TestMemory& memory) {
       float* qkv = memory.Random(kN * kRotary.width(), 1);
       backend.RopeForward(kRotary, PlainRotary(kRotary.d), qkv);
       return Take(qkv, kN * kRotary.width());
     }},
    {"RopeBackward",
     [](Backend& backend, TestMemory& memory) {
       float* dqkv = memory.Random(kN * kRotary.width(), 1);
       backend.RopeBackward(kRotary, PlainRotary(kRotary.d), dqkv);
       return Take(dqkv, kN * kRotary.width());
     }},
    {"ProbsForward",
     [](Backend& backend, TestMemory& memory) {
       float* probs = memory.Output(kB * kA * kS * kS);
       backend.ProbsForward(kAttention, memory.Random(kQkv, 1), nullptr, probs);
       return Take(probs, kB * kA * kS * kS);
     }},
    {"ContextForward",
     [](Backend& backend, TestMemory& memory) {
       float* context = memory.Output(kN * kA * kD);
       backend.ContextForward(kAttention, memory.Random(kB * kA * kS * kS, 1), memory.Random(kQkv, 2), kKey,
                              memory.Output(kS * kS), context);
       return Take(context, kN * kA * kD);
     }},
    {"AttentionBackward",
     [](Backend& backend, TestMemory& memory) {
       float* dqkv = memory.Output(kQkv);
       backend.AttentionBackward(kAttention, memory.Random(kB * kA * kS * kS, 1), memory.Random(kQkv, 2),
                                 memory.Random(kN * kA * kD, 3), kKey, memory.Output(2 * kS * kS), dqkv);
       return Take(dqkv, kQkv);
     }},
    {"FlashForward",
     [](Backend& backend, TestMemory& memory) {
       float* out = memory.Output(kN * kA * kD + kB * kA * kS);
       backend.FlashForward(kAttention, memory.Random(kQkv, 1), kKey, nullptr, out, out + kN * kA * kD);
       return Take(out, kN * kA * kD + kB * kA * kS);
     }},
    {"FlashBackward",
     [](Backend& backend, TestMemory& memory) {
       float* dqkv = memory.Output(kQkv);
       backend.FlashBackward(kAttention, memory.Random(kQkv, 1), memory.Random(kN * kA * kD, 2),
                             memory.Constant(kB * kA * kS, 4), memory.Random(kN * kA * kD, 3), kKey,
                             memory.Output(kB * kA * kS), dqkv);
       return Take(dqkv, kQkv);
     }},
    {"GeluForward",
     [](Backend& backend, TestMemory& memory) {
       float* y = memory.Output(kN * kF);
       backend.GeluForward(memory.Random(kN * kF, 1, 4), kN * kF, y);
       return Take(y, kN * kF);
     }},
    {"GeluBackward",
     [](Backend& backend, TestMemory& memory) {
       float* dy = memory.Random(kN * kF, 2);
       backend.GeluBackward(memory.Random(kN * kF, 1, 4), kN * kF, dy);
       return Take(dy, kN * kF);
     }},
    {"SiluForward",
     [](Backend& backend, TestMemory& memory) {
       float* silu = memory.Output(kN * kF);
       backend.SiluForward(memory.Random(kN * 2 * kF, 1, 4), kN, kF, silu);
       return Take(silu, kN * kF);
     }},
    {"SiluBackward",
     [](Backend& backend, TestMemory& memory) {
       float* dgated = memory.Random(kN * 2 * kF, 2);
       backend.SiluBackward(memory.Random(kN * 2 * kF, 1, 4), kN, kF, dgated);
       return Take(dgated, kN * 2 * kF);
     }},
    {"SwigluForward",
     [](Backend& backend, TestMemory& memory) {
       float* y = memory.Output(kN * kF);
       backend.SwigluForward(memory.Random(kN * 2 * kF, 1), memory.Random(kN * kF, 2), kN, kF, y);
       return Take(y, kN * kF);
     }},
    {"SwigluBackward",
     [](Backend& backend, TestMemory& memory) {
       float* dgated = memory.Output(kN * 2 * kF);
       backend.SwigluBackward(memory.Random(kN * 2 * kF, 1), memory.Random(kN * kF, 2), memory.Random(kN * kF, 3), kN, kF,
                              dgated);
       return Take(dgated, kN * 2 * kF);
     }},
    {"GatedSwigluForward",
     [](Backend& backend, TestMemory& memory) {
       float* y = memory.Output(kN * kF);
       backend.GatedSwigluForward(memory.Random(kN * 2 * kF, 1), memory.Random(kN, 2), kN, kF, y);
       return Take(y, kN * kF);
     }},
    {"GatedSwigluBackward",
     [](Backend& backend, TestMemory& memory) {
       float* dgated = memory.Output(kN * 2 * kF + kN);
       backend.GatedSwigluBackward(memory.Random(kN * 2 * kF, 1), memory.Random(kN, 2), memory.Random(kN * kF, 3), kN, kF,
                                   dgated, dgated + kN * 2 * kF);
       return Take(dgated, kN * 2 * kF + kN);
     }},
    {"TokenGates",
     [](Backend& backend, TestMemory& memory) {
       float* out = memory.Random(kN + kN * kH + kH, 3);
       const float *x = memory.Random(kN * kH, 1), *w = memory.Random(kH, 2);
       backend.TokenGateForward(x, w, kN, kH, out);
       backend.TokenGateBackward(memory.Random(kN, 4), w, kN, kH, out + kN);
       backend.TokenGateWeight(x, memory.Random(kN, 4), kN, kH, out + kN + kN * kH);
       return Take(out, kN + kN * kH + kH);
     }},
    {"RouterOfSigmoids",
     [](Backend& backend, TestMemory& memory) {
       RouterShape shape = kRouter;
       shape.sigmoid = true;
       constexpr int64_t kScores = kN * kRouter.experts, kRoute = kN * kRouter.top_k * 3;
       float* out = memory.Random(2 * kScores + kRoute + kN * kH, 3);
       auto* const route = reinterpret_cast<RouteChoice*>(out + 2 * kScores);
       const float* const w = memory.Random(kRouter.experts * kH, 2);
       backend.RouterForward(shape, memory.Random(kN * kH, 1), w, memory.Random(kRouter.experts, 4), out, route);
       backend.RouterBackward(shape, {.aux = 1, .z = 0.5, .scale = 0.3}, out, route, memory.Random(kRouter.rows(), 5), nullptr,
                              w, out + kScores, out + 2 * kScores + kRoute);
       return Take(out, 2 * kScores + kRoute + kN * kH);
     }},
    {"RouterForward",
     [](Backend& backend, TestMemory& memory) {
       constexpr int64_t kScores = kN * kRouter.experts, kRoute = kN * kRouter.top_k * 3;
       float* out = memory.Output(kScores + kRoute);
       backend.RouterForward(kRouter, memory.Random(kN * kH, 1), memory.Random(kRouter.experts * kH, 2), nullptr, out,
                             reinterpret_cast<RouteChoice*>(out + kScores));
       return Take(out, kScores + kRoute);
     }},
    {"RouterBackward",
     [](Backend& backend, TestMemory& memory) {
       constexpr int64_t kScores = kN * kRouter.experts;
       float* out = memory.Random(kScores + kN * kH, 3);
       backend.RouterBackward(kRouter, {.aux = 1, .z = 0.5, .scale = 0.3}, memory.Random(kScores, 4),
                              RandomRoute(backend, memory), memory.Random(kRouter.rows(), 5),
                              memory.Random(kN * kRouter.top_k, 7), memory.Random(kRouter.experts * kH, 6), out, out + kScores);
       return Take(out, kScores + kN * kH);
     }},
    {"RouterWeight",
     [](Backend& backend, TestMemory& memory) {
       float* dw = memory.Random(kRouter.experts * kH, 3);
       backend.RouterWeight(kRouter, memory.Random(kN * kH, 1), memory.Random(kN * kRouter.experts, 2), dw);
       return Take(dw, kRouter.experts * kH);
     }},
    {"TokensToRows",
     [](Backend& backend, TestMemory& memory) {
       constexpr int64_t kElements = kRouter.rows() * kH;
       float* rows = memory.Output(kElements + kRouter.rows());
       backend.TokensToRows(kRouter, RandomRoute(backend, memory), memory.Random(kN * kH, 3), rows, rows + kElements);
       return Take(rows, kElements + kRouter.rows());
     }},
    {"RowsToTokens",
     [](Backend& backend, TestMemory& memory) {
       float* x = memory.Output(kN * kH);
       backend.RowsToTokens(kRouter, RandomRoute(backend, memory), memory.Random(kRouter.rows() * kH, 3), false, x);
       return Take(x, kN * kH);
     }},
    {"RowsToTokensThatHaveValues",
     [](Backend& backend, TestMemory& memory) {
       float* x = memory.Random(kN * kH, 4);
       backend.RowsToTokens(kRouter, RandomRoute(backend, memory), memory.Random(kRouter.rows() * kH, 3), true, x);
       return Take(x, kN * kH);
     }},
    {"ExpertForward",
     [](Backend& backend, TestMemory& memory) {
       float* y = memory.Output(kRows * kF);
       backend.ExpertForward(kExperts, RowWeights(memory), memory.Random(kRows * kH, 1), memory.Random(3 * kF * kH, 2), kH, kF,
                             y);
       return Take(y, kRows * kF);
     }},
    {"ExpertBackward",
     [](Backend& backend, TestMemory& memory) {
       float* dx = memory.Output(kRows * kH);
       backend.ExpertBackward(kExperts, RowWeights(memory), memory.Random(kRows * kF, 1), memory.Random(3 * kF * kH, 2), kH, kF,
                              dx);
       return Take(dx, kRows * kH);
     }},
    {"ExpertWeight",
     [](Backend& backend, TestMemory& memory) {
       float* dw = memory.Random(3 * kF * kH, 3);
       backend.ExpertWeight(kExperts, RowWeights(memory), memory.Random(kRows * kH, 1), memory.Random(kRows * kF, 2), kH, kF,
                            dw);
       return Take(dw, 3 * kF * kH);
     }},
    {"ExpertSwigluForward",
     [](Backend& backend, TestMemory& memory) {
       float* y = memory.Output(kRows * kF);
       backend.ExpertSwigluForward(kExperts, RowWeights(memory), memory.Random(kRows * 2 * kF, 1), memory.Random(kRows * kF, 2),
                                   kF, y);
       return Take(y, kRows * kF);
     }},
    {"ExpertSwigluBackward",
     [](Backend& backend, TestMemory& memory) {
       float* dgated = memory.Output(kRows * (2 * kF + 1));
       backend.ExpertSwigluBackward(kExperts, RowWeights(memory), memory.Random(kRows * 2 * kF, 1),
                                    memory.Random(kRows * kF, 2), memory.Random(kRows * kF, 3), kF, dgated,
                                    dgated + kRows * 2 * kF);
       return Take(dgated, kRows * (2 * kF + 1));
     }},
    {"BiasDropoutAddForward",
     [](Backend& backend, TestMemory& memory) {
       float* y = memory.Random(kN * kH, 1);
       backend.BiasDropoutAddForward(memory.Random(kN * kH, 2), memory.Random(kH, 3), kS, kN, kH, kKey, y);
       return Take(y, kN * kH);
     }},
    {"BiasDropoutAddBackward",
     [](Backend& backend, TestMemory& memory) {
       float* dy = memory.Output(kN * kH);
       backend.BiasDropoutAddBackward(memory.Random(kN * kH, 1), kS, kN, kH, kKey, dy);
       return Take(dy, kN * kH);
     }},
    {"BiasGradient",
     [](Backend& backend, TestMemory& memory) {
       float* dbias = memory.Random(kH, 2);
       backend.BiasGradient(memory.Random(kN * kH, 1), kN, kH, dbias);
       return Take(dbias, kH);
     }},
    {"LossStats",
     [](Backend& backend, TestMemory& memory) {
       float* stats = memory.Output(kN * 3);
       backend.LossStats(memory.Random(kN * kV, 1, 5), memory.Tokens(kN, kV + 9, 2), 4, kN, kV, kV - 3, stats);
       return Take(stats, kN * 3);
     }},
    {"LossForward",
     [](Backend& backend, TestMemory& memory) {
       double* const sum = memory.Double(0.1);
       backend.LossForward(memory.Copy(std::vector<float>(2 * kN * 3, 1.7f)), 2, kN, sum);
       return Doubles(*sum);
     }},
    {"LossBackward",
     [](Backend& backend, TestMemory& memory) {
       float* logits = memory.Random(kN * kV, 1, 5);
       backend.LossBackward(memory.Copy(std::vector<float>(2 * kN * 3, 5.5f)), memory.Tokens(kN, kV + 9, 2), 4, 2, kN, kV,
                            kV - 3, 0.01, logits, logits);
       return Take(logits, kN * kV);
     }},
    {"SumOfSquares",
     [](Backend& backend, TestMemory& memory) {
       double* const sum = memory.Double(0.1);
       backend.SumOfSquares(std::vector<std::span<const float>>{{memory.Random(10007, 1), 10007}, {memory.Random(5, 2), 5}},
                            sum);
       return Doubles(*sum);
     }},
    {"AdamW",
     [](Backend& backend, TestMemory& memory) {
       float* w = memory.Random(1009, 1);
       float* m = memory.Random(1009, 2);
       backend.AdamW(
           {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .step = 3, .gradient_scale = 0.7},
           std::vector<AdamWTensor>{{.count = 1009,
                                     .gradient = memory.Random(1009, 3),
                                     .w = w,
                                     .m = m,
                                     .v = memory.Constant(1009, 0.01f),
                                     .decays = true}});
       return Take(w, 1009);
     }},
};

std::vector<std::vector<float>> RunAll(Backend& backend, int64_t skip) {
  std::vector<std::vector<float>> outputs;
  for (const OpCase& op : kCases) {
    TestMemory memory(skip);
    outputs.push_back(op.run(backend, memory));
    memory.ExpectGuardsIntact();
  }
  return outputs;
}

void ExpectSameBits(const std::vector<std::vector<float>>& got, const std::vector<std::vector<float>>& want,
                    const std::string& when) {
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].size(), want[i].size());
    EXPECT_EQ(std::memcmp(got[i].data(), want[i].data(), want[i].size() * sizeof(float)), 0)
        << kCases[i].name << " differs " << when;
  }
}

class Determinism : public testing::TestWithParam<int> {};  // the parameter is the number of BLAS threads

TEST_P(Determinism, EveryOpRepeatsItsBitsAtOtherAddresses) {
  std::unique_ptr<Backend> backend = MakeTestBackend(GetParam());
  const std::vector<std::vector<float>> first = RunAll(*backend, 0);
  // Now every op has run after other ops. `skip` moves the buffers to other addresses: to other places in pages and cache sets.
  for (int64_t skip : {0, 1, 2, 5, 16, 37}) {
    ExpectSameBits(RunAll(*backend, skip), first, "when " + std::to_string(skip) + " * 256 bytes further on");
  }
}

INSTANTIATE_TEST_SUITE_P(BlasThreads, Determinism, testing::Values(1, 2));

TEST(Concurrency, BackendsOnSeveralThreadsDoNotDisturbEachOther) {
  const std::vector<std::vector<float>> alone = RunAll(*MakeTestBackend(1), 0);
  constexpr int kThreads = 4;
  std::vector<std::vector<float>> outputs[kThreads];
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&outputs, i] { outputs[i] = RunAll(*MakeTestBackend(1), i); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) ExpectSameBits(outputs[i], alone, "on thread " + std::to_string(i));
}

}  // namespace
}  // namespace lynx::worker
