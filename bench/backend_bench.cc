// Rates of the CPU backend's ops with the shapes of one transformer layer: hidden 384, 6 heads, sequence 256, batch 4, and a
// vocabulary of 8192 for embedding and loss. The ops of experts: 8 experts, of which a token goes to 2, with room for all rows.
// Ops that multiply matrices are reported in GFLOP/s, the others in GB/s read and written. Causal attention counts only the
// visible half of its products, and experts only the rows that have a token.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "worker/backend/backend.h"

namespace lynx {
namespace {

constexpr int64_t kB = 4, kS = 256, kN = kB * kS, kH = 384, kA = 6, kD = kH / kA, kF = 4 * kH, kV = 8192;
constexpr worker::AttentionShape kAttention{.b = kB, .s = kS, .a = kA, .k = kA, .d = kD};
constexpr float kEpsilon = 1e-5f;
constexpr worker::DropoutKey kDropout{0.1, 1, 2, 3, 4, 0};
constexpr worker::DropoutKey kNoDropout{};

worker::RotaryTable RotaryOf(int64_t d) {
  worker::RotaryTable table{.pairs = d / 2};
  for (int64_t i = 0; i < table.pairs; ++i) {
    table.slopes[static_cast<size_t>(i)] = std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(d));
  }
  return table;
}

worker::Backend& TheBackend() {
  static const std::unique_ptr<worker::Backend> backend = worker::MakeCpuBackend(1);
  return *backend;
}

template <class T>
worker::LayerBackend<T>& Ops() {
  if constexpr (std::is_same_v<T, float>) {
    return TheBackend();
  } else {
    return TheBackend().bfloat16();
  }
}

// Values in [-1, 1). Their memory is from the backend, so it has the same alignment as in the engine.
template <class T = float>
T* Values(int64_t count) {
  const Bytes bytes((count * static_cast<int64_t>(sizeof(T)) + 3) / 4 * 4);
  T* data = reinterpret_cast<T*>(TheBackend().Allocate(bytes, "a benchmark's tensor").value().data());
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    data[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return data;
}

// A buffer that is as large as the largest workspace of an attention op.
float* Workspace() {
  static float* const workspace =
      Values(2 * kS * kS + kB * kA * kS + worker::WideHeadFloats<Bfloat16>(kAttention, /*whole=*/4, /*rows=*/3));
  return workspace;
}

std::vector<int32_t> Tokens() {
  std::vector<int32_t> tokens(kN);
  for (int64_t i = 0; i < kN; ++i) tokens[i] = static_cast<int32_t>(i * 7919 % kV);
  return tokens;
}

void ReportFlops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// Says that each call reads or writes `tensors` times `count` elements.
template <class T = float>
void ReportBytes(benchmark::State& state, int64_t tensors, int64_t count) {
  const double bytes = static_cast<double>(tensors * count) * sizeof(T);
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

template <class T>
void LinearForward(benchmark::State& state) {
  const int64_t in = state.range(0), out = state.range(1);
  T *x = Values<T>(kN * in), *w = Values<T>(out * in), *bias = Values<T>(out), *y = Values<T>(kN * out);
  for (auto _ : state) Ops<T>().LinearForward(x, w, bias, kN, in, out, y);
  ReportFlops(state, 2.0 * kN * static_cast<double>(in * out));
}

template <class T>
void LinearBackward(benchmark::State& state) {
  const int64_t in = state.range(0), out = state.range(1);
  T *dx = Values<T>(kN * in), *w = Values<T>(out * in), *dy = Values<T>(kN * out);
  for (auto _ : state) Ops<T>().LinearBackward(dy, w, kN, in, out, dx);
  ReportFlops(state, 2.0 * kN * static_cast<double>(in * out));
}

template <class T>
void LinearWeight(benchmark::State& state) {
  const int64_t in = state.range(0), out = state.range(1);
  T *x = Values<T>(kN * in), *dy = Values<T>(kN * out);
  float *dw = Values(out * in), *dbias = Values(out);
  for (auto _ : state) Ops<T>().LinearWeight(x, dy, kN, in, out, dw, dbias);
  ReportFlops(state, 2.0 * kN * static_cast<double>(in * out));
}

// The sizes (in, out) of the matrix products for QKV, for attention's output, and of the two products of the MLP.
#define LYNX_LINEAR_SHAPES \
  ArgNames({"in", "out"})->Args({kH, 3 * kH})->Args({kH, kH})->Args({kH, kF})->Args({kF, kH})->Unit(benchmark::kMillisecond)
BENCHMARK_TEMPLATE(LinearForward, float)->LYNX_LINEAR_SHAPES;
BENCHMARK_TEMPLATE(LinearForward, Bfloat16)->LYNX_LINEAR_SHAPES;
BENCHMARK_TEMPLATE(LinearBackward, float)->LYNX_LINEAR_SHAPES;
BENCHMARK_TEMPLATE(LinearBackward, Bfloat16)->LYNX_LINEAR_SHAPES;
BENCHMARK_TEMPLATE(LinearWeight, float)->LYNX_LINEAR_SHAPES;
BENCHMARK_TEMPLATE(LinearWeight, Bfloat16)->LYNX_LINEAR_SHAPES;

// FLOPs of one matrix product of attention over all samples and heads, (s, d) x (d, s) or (s, s) x (s, d), visible half only.
constexpr double kCausalProductFlops = 2.0 * kB * kA * kS * kS * kD / 2;

template <class T>
void ProbsForward(benchmark::State& state) {
  T *qkv = Values<T>(kN * 3 * kH), *probs = Values<T>(kB * kA * kS * kS);
  for (auto _ : state) Ops<T>().ProbsForward(kAttention, qkv, Workspace(), probs);
  ReportFlops(state, kCausalProductFlops);
}
BENCHMARK_TEMPLATE(ProbsForward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(ProbsForward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void ContextForward(benchmark::State& state) {
  const worker::DropoutKey& key = state.range(0) != 0 ? kDropout : kNoDropout;
  T *qkv = Values<T>(kN * 3 * kH), *probs = Values<T>(kB * kA * kS * kS), *context = Values<T>(kN * kH);
  for (auto _ : state) Ops<T>().ContextForward(kAttention, probs, qkv, key, Workspace(), context);
  ReportFlops(state, kCausalProductFlops);
}
BENCHMARK_TEMPLATE(ContextForward, float)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(ContextForward, Bfloat16)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

template <class T>
void AttentionBackward(benchmark::State& state) {
  const worker::DropoutKey& key = state.range(0) != 0 ? kDropout : kNoDropout;
  T *qkv = Values<T>(kN * 3 * kH), *probs = Values<T>(kB * kA * kS * kS), *dcontext = Values<T>(kN * kH);
  T* dqkv = Values<T>(kN * 3 * kH);
  for (auto _ : state) {
    Ops<T>().AttentionBackward(kAttention, probs, qkv, dcontext, key, Workspace(), dqkv);
  }
  ReportFlops(state, 4 * kCausalProductFlops);
}
BENCHMARK_TEMPLATE(AttentionBackward, float)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(AttentionBackward, Bfloat16)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

template <class T>
void FlashForward(benchmark::State& state) {
  const worker::DropoutKey& key = state.range(0) != 0 ? kDropout : kNoDropout;
  T *qkv = Values<T>(kN * 3 * kH), *context = Values<T>(kN * kH);
  float* lse = Values(kB * kA * kS);
  for (auto _ : state) Ops<T>().FlashForward(kAttention, qkv, key, Workspace(), context, lse);
  ReportFlops(state, 2 * kCausalProductFlops);
}
BENCHMARK_TEMPLATE(FlashForward, float)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(FlashForward, Bfloat16)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

template <class T>
void FlashBackward(benchmark::State& state) {
  const worker::DropoutKey& key = state.range(0) != 0 ? kDropout : kNoDropout;
  T *qkv = Values<T>(kN * 3 * kH), *context = Values<T>(kN * kH), *dcontext = Values<T>(kN * kH);
  float* lse = Values(kB * kA * kS);
  T* dqkv = Values<T>(kN * 3 * kH);
  Ops<T>().FlashForward(kAttention, qkv, key, Workspace(), context, lse);
  for (auto _ : state) {
    Ops<T>().FlashBackward(kAttention, qkv, context, lse, dcontext, key, Workspace(), dqkv);
  }
  ReportFlops(state, 5 * kCausalProductFlops);
}
BENCHMARK_TEMPLATE(FlashBackward, float)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(FlashBackward, Bfloat16)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

template <class T>
void LayerNormForward(benchmark::State& state) {
  T *x = Values<T>(kN * kH), *gamma = Values<T>(kH), *beta = Values<T>(kH), *y = Values<T>(kN * kH);
  for (auto _ : state) Ops<T>().LayerNormForward(x, gamma, beta, kN, kH, kEpsilon, y);
  ReportBytes<T>(state, 2, kN * kH);
}
BENCHMARK_TEMPLATE(LayerNormForward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(LayerNormForward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void LayerNormBackward(benchmark::State& state) {
  T *x = Values<T>(kN * kH), *gamma = Values<T>(kH), *dy = Values<T>(kN * kH), *dx = Values<T>(kN * kH);
  float *dgamma = Values(kH), *dbeta = Values(kH);
  for (auto _ : state) Ops<T>().LayerNormBackward(x, gamma, dy, kN, kH, kEpsilon, false, dx, dgamma, dbeta);
  ReportBytes<T>(state, 3, kN * kH);
}
BENCHMARK_TEMPLATE(LayerNormBackward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(LayerNormBackward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void RmsNormForward(benchmark::State& state) {
  T *x = Values<T>(kN * kH), *gamma = Values<T>(kH), *y = Values<T>(kN * kH);
  for (auto _ : state) Ops<T>().RmsNormForward(x, gamma, kN, kH, kEpsilon, y);
  ReportBytes<T>(state, 2, kN * kH);
}
BENCHMARK_TEMPLATE(RmsNormForward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(RmsNormForward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void RmsNormBackward(benchmark::State& state) {
  T *x = Values<T>(kN * kH), *gamma = Values<T>(kH), *dy = Values<T>(kN * kH), *dx = Values<T>(kN * kH);
  float* dgamma = Values(kH);
  for (auto _ : state) Ops<T>().RmsNormBackward(x, gamma, dy, kN, kH, kEpsilon, false, dx, dgamma);
  ReportBytes<T>(state, 3, kN * kH);
}
BENCHMARK_TEMPLATE(RmsNormBackward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(RmsNormBackward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void QkNormForward(benchmark::State& state) {
  const T *qkv = Values<T>(kN * 3 * kH), *gamma = Values<T>(kD);
  T* normed = Values<T>(kN * 3 * kH);
  for (auto _ : state) Ops<T>().QkNormForward(kAttention, qkv, gamma, gamma, kEpsilon, normed);
  ReportBytes<T>(state, 2, kN * 3 * kH);
}
BENCHMARK_TEMPLATE(QkNormForward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(QkNormForward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void RopeForward(benchmark::State& state) {
  T* qkv = Values<T>(kN * 3 * kH);
  for (auto _ : state) Ops<T>().RopeForward(kAttention, RotaryOf(kD), qkv);
  ReportBytes<T>(state, 2, kN * 2 * kH);
}
BENCHMARK_TEMPLATE(RopeForward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(RopeForward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void SiluForward(benchmark::State& state) {
  T *gated = Values<T>(kN * 2 * kF), *silu = Values<T>(kN * kF);
  for (auto _ : state) Ops<T>().SiluForward(gated, kN, kF, silu);
  ReportBytes<T>(state, 2, kN * kF);
}
BENCHMARK_TEMPLATE(SiluForward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(SiluForward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void SwigluForward(benchmark::State& state) {
  T *gated = Values<T>(kN * 2 * kF), *silu = Values<T>(kN * kF), *y = Values<T>(kN * kF);
  for (auto _ : state) Ops<T>().SwigluForward(gated, silu, kN, kF, y);
  ReportBytes<T>(state, 3, kN * kF);
}
BENCHMARK_TEMPLATE(SwigluForward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(SwigluForward, Bfloat16)->Unit(benchmark::kMillisecond);

// Measures both backward ops together: SwigluBackward and SiluBackward.
template <class T>
void SwigluBackward(benchmark::State& state) {
  T *gated = Values<T>(kN * 2 * kF), *silu = Values<T>(kN * kF), *dy = Values<T>(kN * kF), *dgated = Values<T>(kN * 2 * kF);
  for (auto _ : state) {
    Ops<T>().SwigluBackward(gated, silu, dy, kN, kF, dgated);
    Ops<T>().SiluBackward(gated, kN, kF, dgated);
  }
  ReportBytes<T>(state, 9, kN * kF);
}
BENCHMARK_TEMPLATE(SwigluBackward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(SwigluBackward, Bfloat16)->Unit(benchmark::kMillisecond);

// Measures both passes of the feed-forward block, with a gate, that every token passes in addition to its experts.
template <class T>
void GatedSwiglu(benchmark::State& state) {
  T *gated = Values<T>(kN * 2 * kF), *dy = Values<T>(kN * kF), *y = Values<T>(kN * kF), *dgated = Values<T>(kN * 2 * kF);
  float *gate = Values(kN), *dproduct = Values(kN);
  for (auto _ : state) {
    Ops<T>().GatedSwigluForward(gated, gate, kN, kF, y);
    Ops<T>().GatedSwigluBackward(gated, gate, dy, kN, kF, dgated, dproduct);
  }
  ReportBytes<T>(state, 8, kN * kF);
}
BENCHMARK_TEMPLATE(GatedSwiglu, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(GatedSwiglu, Bfloat16)->Unit(benchmark::kMillisecond);

// Experts whose scores are those of random tokens. The rooms are as large as if all tokens chose the same expert.
constexpr worker::RouterShape kRouter{.n = kN, .h = kH, .experts = 8, .top_k = 2, .room = kN};
constexpr worker::ExpertShape kExperts{.blocks = kRouter.experts, .room = kRouter.room, .experts = kRouter.experts};
constexpr int64_t kChoices = kRouter.n * kRouter.top_k;

template <class T>
struct Routed {
  T *x = Values<T>(kN * kH), *w = Values<T>(kRouter.experts * kH), *rows = Values<T>(kRouter.rows() * kH);
  float *scores = Values(kN * kRouter.experts), *weights = Values(kRouter.rows());
  worker::RouteChoice* route = reinterpret_cast<worker::RouteChoice*>(Values(kChoices * 3));

  Routed() {
    Ops<T>().RouterForward(kRouter, x, w, nullptr, scores, route);
    Ops<T>().TokensToRows(kRouter, route, x, rows, weights);
  }
};

template <class T>
void RouterForward(benchmark::State& state) {
  const Routed<T> of;
  for (auto _ : state) Ops<T>().RouterForward(kRouter, of.x, of.w, nullptr, of.scores, of.route);
  ReportFlops(state, 2.0 * kN * kH * kRouter.experts);
}
BENCHMARK_TEMPLATE(RouterForward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(RouterForward, Bfloat16)->Unit(benchmark::kMillisecond);

// Measures both gradients together: RouterBackward and RouterWeight.
template <class T>
void RouterBackward(benchmark::State& state) {
  const Routed<T> of;
  T* dx = Values<T>(kN * kH);
  float *dscores = Values(kN * kRouter.experts), *dweights = Values(kRouter.rows()), *dw = Values(kRouter.experts * kH);
  for (auto _ : state) {
    Ops<T>().RouterBackward(kRouter, {.aux = 0.01, .z = 0.001}, of.scores, of.route, dweights, nullptr, of.w, dscores, dx);
    Ops<T>().RouterWeight(kRouter, of.x, dscores, dw);
  }
  ReportFlops(state, 4.0 * kN * kH * kRouter.experts);
}
BENCHMARK_TEMPLATE(RouterBackward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(RouterBackward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void TokensToRows(benchmark::State& state) {
  const Routed<T> of;
  for (auto _ : state) Ops<T>().TokensToRows(kRouter, of.route, of.x, of.rows, of.weights);
  ReportBytes<T>(state, 1, (kChoices + kRouter.rows()) * kH);
}
BENCHMARK_TEMPLATE(TokensToRows, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(TokensToRows, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void RowsToTokens(benchmark::State& state) {
  const Routed<T> of;
  for (auto _ : state) Ops<T>().RowsToTokens(kRouter, of.route, of.rows, false, of.x);
  ReportBytes<T>(state, 1, (kChoices + kN) * kH);
}
BENCHMARK_TEMPLATE(RowsToTokens, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(RowsToTokens, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void ExpertForward(benchmark::State& state) {
  const Routed<T> of;
  T *w = Values<T>(kRouter.experts * 2 * kF * kH), *y = Values<T>(kRouter.rows() * 2 * kF);
  for (auto _ : state) Ops<T>().ExpertForward(kExperts, of.weights, of.rows, w, kH, 2 * kF, y);
  ReportFlops(state, 2.0 * kChoices * kH * 2 * kF);
}
BENCHMARK_TEMPLATE(ExpertForward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(ExpertForward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void ExpertBackward(benchmark::State& state) {
  const Routed<T> of;
  T *w = Values<T>(kRouter.experts * 2 * kF * kH), *dy = Values<T>(kRouter.rows() * 2 * kF);
  for (auto _ : state) Ops<T>().ExpertBackward(kExperts, of.weights, dy, w, kH, 2 * kF, of.rows);
  ReportFlops(state, 2.0 * kChoices * kH * 2 * kF);
}
BENCHMARK_TEMPLATE(ExpertBackward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(ExpertBackward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void ExpertWeight(benchmark::State& state) {
  const Routed<T> of;
  T* dy = Values<T>(kRouter.rows() * 2 * kF);
  float* dw = Values(kRouter.experts * 2 * kF * kH);
  for (auto _ : state) Ops<T>().ExpertWeight(kExperts, of.weights, of.rows, dy, kH, 2 * kF, dw);
  ReportFlops(state, 2.0 * kChoices * kH * 2 * kF);
}
BENCHMARK_TEMPLATE(ExpertWeight, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(ExpertWeight, Bfloat16)->Unit(benchmark::kMillisecond);

// Measures both passes together.
template <class T>
void ExpertSwiglu(benchmark::State& state) {
  const Routed<T> of;
  const int64_t rows = kRouter.rows();
  T *gated = Values<T>(rows * 2 * kF), *silu = Values<T>(rows * kF), *y = Values<T>(rows * kF);
  T* dgated = Values<T>(rows * 2 * kF);
  float* dweights = Values(rows);
  for (auto _ : state) {
    Ops<T>().ExpertSwigluForward(kExperts, of.weights, gated, silu, kF, y);
    Ops<T>().ExpertSwigluBackward(kExperts, of.weights, gated, silu, y, kF, dgated, dweights);
  }
  ReportBytes<T>(state, 1, (3 + 5) * kChoices * kF + 3 * (rows - kChoices) * kF);
}
BENCHMARK_TEMPLATE(ExpertSwiglu, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(ExpertSwiglu, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void GeluForward(benchmark::State& state) {
  T *x = Values<T>(kN * kF), *y = Values<T>(kN * kF);
  for (auto _ : state) Ops<T>().GeluForward(x, kN * kF, y);
  ReportBytes<T>(state, 2, kN * kF);
}
BENCHMARK_TEMPLATE(GeluForward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(GeluForward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void GeluBackward(benchmark::State& state) {
  T *x = Values<T>(kN * kF), *dy = Values<T>(kN * kF);
  for (auto _ : state) Ops<T>().GeluBackward(x, kN * kF, dy);
  ReportBytes<T>(state, 3, kN * kF);
}
BENCHMARK_TEMPLATE(GeluBackward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(GeluBackward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void BiasDropoutAddForward(benchmark::State& state) {
  const worker::DropoutKey& key = state.range(0) != 0 ? kDropout : kNoDropout;
  T *residual = Values<T>(kN * kH), *bias = Values<T>(kH), *y = Values<T>(kN * kH);
  for (auto _ : state) Ops<T>().BiasDropoutAddForward(residual, bias, kS, kN, kH, key, y);
  ReportBytes<T>(state, 3, kN * kH);
}
BENCHMARK_TEMPLATE(BiasDropoutAddForward, float)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(BiasDropoutAddForward, Bfloat16)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

template <class T>
void BiasDropoutAddBackward(benchmark::State& state) {
  T *dout = Values<T>(kN * kH), *dy = Values<T>(kN * kH);
  for (auto _ : state) Ops<T>().BiasDropoutAddBackward(dout, kS, kN, kH, kDropout, dy);
  ReportBytes<T>(state, 2, kN * kH);
}
BENCHMARK_TEMPLATE(BiasDropoutAddBackward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(BiasDropoutAddBackward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void BiasGradient(benchmark::State& state) {
  T* dy = Values<T>(kN * kF);
  float* dbias = Values(kF);
  for (auto _ : state) Ops<T>().BiasGradient(dy, kN, kF, dbias);
  ReportBytes<T>(state, 1, kN * kF);
}
BENCHMARK_TEMPLATE(BiasGradient, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(BiasGradient, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void EmbeddingForward(benchmark::State& state) {
  const std::vector<int32_t> tokens = Tokens();
  T *tok = Values<T>(kV * kH), *out = Values<T>(kN * kH);
  for (auto _ : state) Ops<T>().EmbeddingForward(tokens.data(), tok, 0, kN, kH, kV, out);
  ReportBytes<T>(state, 2, kN * kH);
}
BENCHMARK_TEMPLATE(EmbeddingForward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(EmbeddingForward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void EmbeddingBackward(benchmark::State& state) {
  const std::vector<int32_t> tokens = Tokens();
  T* dout = Values<T>(kN * kH);
  float* dtok = Values(kV * kH);
  for (auto _ : state) Ops<T>().EmbeddingBackward(tokens.data(), dout, 0, kN, kH, kV, dtok);
  ReportBytes<T>(state, 3, kN * kH);
}
BENCHMARK_TEMPLATE(EmbeddingBackward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(EmbeddingBackward, Bfloat16)->Unit(benchmark::kMillisecond);

template <class T>
void PositionForward(benchmark::State& state) {
  T *x = Values<T>(kN * kH), *pos = Values<T>(kS * kH);
  for (auto _ : state) Ops<T>().PositionForward(x, pos, kB * kS, kS, kH, kDropout);
  ReportBytes<T>(state, 3, kN * kH);
}
BENCHMARK_TEMPLATE(PositionForward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(PositionForward, Bfloat16)->Unit(benchmark::kMillisecond);

void LossStats(benchmark::State& state) {
  const std::vector<int32_t> tokens = Tokens();
  float *logits = Values(kN * kV), *stats = Values(kN * 3);
  for (auto _ : state) TheBackend().LossStats(logits, tokens.data(), 0, kN, kV, kV, stats);
  ReportBytes(state, 1, kN * kV);
}
BENCHMARK(LossStats)->Unit(benchmark::kMillisecond);

template <class T>
void LossBackward(benchmark::State& state) {
  const std::vector<int32_t> tokens = Tokens();
  float *logits = Values(kN * kV), *stats = Values(kN * 3);
  TheBackend().LossStats(logits, tokens.data(), 0, kN, kV, kV, stats);
  for (auto _ : state)
    Ops<T>().LossBackward(stats, tokens.data(), 0, 1, kN, kV, kV, 1.0 / kN, logits, reinterpret_cast<T*>(logits));
  ReportBytes<T>(state, 2, kN * kV);
}
BENCHMARK_TEMPLATE(LossBackward, float)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(LossBackward, Bfloat16)->Unit(benchmark::kMillisecond);

constexpr int64_t kLayerParameters = 12 * kH * kH;

void SumOfSquares(benchmark::State& state) {
  float* x = Values(kLayerParameters);
  double sum = 0;
  const std::span<const float> tensors[] = {{x, kLayerParameters}};
  for (auto _ : state) TheBackend().SumOfSquares(tensors, &sum);
  benchmark::DoNotOptimize(sum);
  ReportBytes(state, 1, kLayerParameters);
}
BENCHMARK(SumOfSquares)->Unit(benchmark::kMillisecond);

void AdamW(benchmark::State& state) {
  float *gradient = Values(kLayerParameters), *w = Values(kLayerParameters), *m = Values(kLayerParameters);
  float* v = Values(kLayerParameters);
  TheBackend().Fill(v, kLayerParameters, 0.5f);
  const worker::AdamWArgs args{
      .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = 10, .gradient_scale = 1};
  const worker::AdamWTensor tensors[] = {
      {.count = kLayerParameters, .gradient = gradient, .w = w, .m = m, .v = v, .decays = true}};
  for (auto _ : state) TheBackend().AdamW(args, tensors);
  ReportBytes(state, 7, kLayerParameters);
}
BENCHMARK(AdamW)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lynx
