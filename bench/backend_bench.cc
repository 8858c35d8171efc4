// Rates of the CPU backend's ops at the shapes of one transformer layer: hidden 384, 6 heads, sequence 256, batch 4,
// and a vocabulary of 8192 for embedding and loss. GFLOP/s for what multiplies matrices (a causal half counts as
// half), GB/s read and written for the rest.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/backend/backend.h"

namespace lynx {
namespace {

constexpr int64_t kB = 4, kS = 256, kN = kB * kS, kH = 384, kA = 6, kD = kH / kA, kF = 4 * kH, kV = 8192;
constexpr AttentionShape kAttention{.b = kB, .s = kS, .a = kA, .k = kA, .d = kD};
constexpr DropoutKey kDropout{0.1, 1, 2, 3, 4, 0};
constexpr DropoutKey kNoDropout{};

Backend& TheBackend() {
  static const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  return *backend;
}

// Values in [-1, 1), from memory of the backend's own so that alignment is the engine's.
float* Values(int64_t count) {
  float* data = TheBackend().Allocate(Bytes(count * 4), "a benchmark's tensor").value().data();
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    data[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return data;
}

std::vector<int32_t> Tokens() {
  std::vector<int32_t> tokens(kN);
  for (int64_t i = 0; i < kN; ++i) tokens[i] = static_cast<int32_t>(i * 7919 % kV);
  return tokens;
}

void ReportFlops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// `tensors` times `count` floats are read or written by one call.
void ReportBytes(benchmark::State& state, int64_t tensors, int64_t count) {
  const double bytes = static_cast<double>(tensors * count) * sizeof(float);
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void LinearForward(benchmark::State& state) {
  const int64_t in = state.range(0), out = state.range(1);
  float *x = Values(kN * in), *w = Values(out * in), *bias = Values(out), *y = Values(kN * out);
  for (auto _ : state) TheBackend().LinearForward(x, w, bias, kN, in, out, y);
  ReportFlops(state, 2.0 * kN * static_cast<double>(in * out));
}

void LinearBackward(benchmark::State& state) {
  const int64_t in = state.range(0), out = state.range(1);
  float *dx = Values(kN * in), *w = Values(out * in), *dy = Values(kN * out);
  for (auto _ : state) TheBackend().LinearBackward(dy, w, kN, in, out, dx);
  ReportFlops(state, 2.0 * kN * static_cast<double>(in * out));
}

void LinearWeight(benchmark::State& state) {
  const int64_t in = state.range(0), out = state.range(1);
  float *x = Values(kN * in), *dw = Values(out * in), *dbias = Values(out), *dy = Values(kN * out);
  for (auto _ : state) TheBackend().LinearWeight(x, dy, kN, in, out, dw, dbias);
  ReportFlops(state, 2.0 * kN * static_cast<double>(in * out));
}

// QKV, attention's projection, the two of the MLP.
#define LYNX_LINEAR_SHAPES \
  ArgNames({"in", "out"})  \
      ->Args({kH, 3 * kH}) \
      ->Args({kH, kH})     \
      ->Args({kH, kF})     \
      ->Args({kF, kH})     \
      ->Unit(benchmark::kMillisecond)
BENCHMARK(LinearForward)->LYNX_LINEAR_SHAPES;
BENCHMARK(LinearBackward)->LYNX_LINEAR_SHAPES;
BENCHMARK(LinearWeight)->LYNX_LINEAR_SHAPES;

// One (rows, d) x (d, columns) product per visible block.
constexpr double kCausalProductFlops = 2.0 * kB * kA * kS * kS * kD / 2;

void ProbsForward(benchmark::State& state) {
  float *qkv = Values(kN * 3 * kH), *probs = Values(kB * kA * kS * kS);
  for (auto _ : state) TheBackend().ProbsForward(kAttention, qkv, probs);
  ReportFlops(state, kCausalProductFlops);
}
BENCHMARK(ProbsForward)->Unit(benchmark::kMillisecond);

void ContextForward(benchmark::State& state) {
  const DropoutKey& key = state.range(0) != 0 ? kDropout : kNoDropout;
  float *qkv = Values(kN * 3 * kH), *probs = Values(kB * kA * kS * kS), *context = Values(kN * kH);
  float* workspace = Values(kS * kS);
  for (auto _ : state) TheBackend().ContextForward(kAttention, probs, qkv, key, workspace, context);
  ReportFlops(state, kCausalProductFlops);
}
BENCHMARK(ContextForward)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void AttentionBackward(benchmark::State& state) {
  const DropoutKey& key = state.range(0) != 0 ? kDropout : kNoDropout;
  float *qkv = Values(kN * 3 * kH), *probs = Values(kB * kA * kS * kS), *dcontext = Values(kN * kH);
  float *workspace = Values(2 * kS * kS), *dqkv = Values(kN * 3 * kH);
  for (auto _ : state) {
    TheBackend().AttentionBackward(kAttention, probs, qkv, dcontext, key, workspace, dqkv);
  }
  ReportFlops(state, 4 * kCausalProductFlops);
}
BENCHMARK(AttentionBackward)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void FlashForward(benchmark::State& state) {
  const DropoutKey& key = state.range(0) != 0 ? kDropout : kNoDropout;
  float *qkv = Values(kN * 3 * kH), *context = Values(kN * kH), *lse = Values(kB * kA * kS);
  for (auto _ : state) TheBackend().FlashForward(kAttention, qkv, key, context, lse);
  ReportFlops(state, 2 * kCausalProductFlops);
}
BENCHMARK(FlashForward)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void FlashBackward(benchmark::State& state) {
  const DropoutKey& key = state.range(0) != 0 ? kDropout : kNoDropout;
  float *qkv = Values(kN * 3 * kH), *context = Values(kN * kH), *dcontext = Values(kN * kH), *lse = Values(kB * kA * kS);
  float *workspace = Values(kB * kA * kS), *dqkv = Values(kN * 3 * kH);
  TheBackend().FlashForward(kAttention, qkv, key, context, lse);
  for (auto _ : state) {
    TheBackend().FlashBackward(kAttention, qkv, context, lse, dcontext, key, workspace, dqkv);
  }
  ReportFlops(state, 5 * kCausalProductFlops);
}
BENCHMARK(FlashBackward)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void LayerNormForward(benchmark::State& state) {
  float *x = Values(kN * kH), *gamma = Values(kH), *beta = Values(kH), *y = Values(kN * kH);
  for (auto _ : state) TheBackend().LayerNormForward(x, gamma, beta, kN, kH, y);
  ReportBytes(state, 2, kN * kH);
}
BENCHMARK(LayerNormForward)->Unit(benchmark::kMillisecond);

void LayerNormBackward(benchmark::State& state) {
  float *x = Values(kN * kH), *gamma = Values(kH), *dy = Values(kN * kH), *dx = Values(kN * kH);
  float *dgamma = Values(kH), *dbeta = Values(kH);
  for (auto _ : state) TheBackend().LayerNormBackward(x, gamma, dy, kN, kH, false, dx, dgamma, dbeta);
  ReportBytes(state, 3, kN * kH);
}
BENCHMARK(LayerNormBackward)->Unit(benchmark::kMillisecond);

void RmsNormForward(benchmark::State& state) {
  float *x = Values(kN * kH), *gamma = Values(kH), *y = Values(kN * kH);
  for (auto _ : state) TheBackend().RmsNormForward(x, gamma, kN, kH, y);
  ReportBytes(state, 2, kN * kH);
}
BENCHMARK(RmsNormForward)->Unit(benchmark::kMillisecond);

void RmsNormBackward(benchmark::State& state) {
  float *x = Values(kN * kH), *gamma = Values(kH), *dy = Values(kN * kH), *dx = Values(kN * kH), *dgamma = Values(kH);
  for (auto _ : state) TheBackend().RmsNormBackward(x, gamma, dy, kN, kH, false, dx, dgamma);
  ReportBytes(state, 3, kN * kH);
}
BENCHMARK(RmsNormBackward)->Unit(benchmark::kMillisecond);

void RopeForward(benchmark::State& state) {
  float* qkv = Values(kN * 3 * kH);
  for (auto _ : state) TheBackend().RopeForward(kAttention, qkv);
  ReportBytes(state, 2, kN * 2 * kH);
}
BENCHMARK(RopeForward)->Unit(benchmark::kMillisecond);

void SiluForward(benchmark::State& state) {
  float *gated = Values(kN * 2 * kF), *silu = Values(kN * kF);
  for (auto _ : state) TheBackend().SiluForward(gated, kN, kF, silu);
  ReportBytes(state, 2, kN * kF);
}
BENCHMARK(SiluForward)->Unit(benchmark::kMillisecond);

void SwigluForward(benchmark::State& state) {
  float *gated = Values(kN * 2 * kF), *silu = Values(kN * kF), *y = Values(kN * kF);
  for (auto _ : state) TheBackend().SwigluForward(gated, silu, kN, kF, y);
  ReportBytes(state, 3, kN * kF);
}
BENCHMARK(SwigluForward)->Unit(benchmark::kMillisecond);

// Both backward ops.
void SwigluBackward(benchmark::State& state) {
  float *gated = Values(kN * 2 * kF), *silu = Values(kN * kF), *dy = Values(kN * kF), *dgated = Values(kN * 2 * kF);
  for (auto _ : state) {
    TheBackend().SwigluBackward(gated, silu, dy, kN, kF, dgated);
    TheBackend().SiluBackward(gated, kN, kF, dgated);
  }
  ReportBytes(state, 9, kN * kF);
}
BENCHMARK(SwigluBackward)->Unit(benchmark::kMillisecond);

void GeluForward(benchmark::State& state) {
  float *x = Values(kN * kF), *y = Values(kN * kF);
  for (auto _ : state) TheBackend().GeluForward(x, kN * kF, y);
  ReportBytes(state, 2, kN * kF);
}
BENCHMARK(GeluForward)->Unit(benchmark::kMillisecond);

void GeluBackward(benchmark::State& state) {
  float *x = Values(kN * kF), *dy = Values(kN * kF);
  for (auto _ : state) TheBackend().GeluBackward(x, kN * kF, dy);
  ReportBytes(state, 3, kN * kF);
}
BENCHMARK(GeluBackward)->Unit(benchmark::kMillisecond);

void BiasDropoutAddForward(benchmark::State& state) {
  const DropoutKey& key = state.range(0) != 0 ? kDropout : kNoDropout;
  float *residual = Values(kN * kH), *bias = Values(kH), *y = Values(kN * kH);
  for (auto _ : state) TheBackend().BiasDropoutAddForward(residual, bias, kS, kN, kH, key, y);
  ReportBytes(state, 3, kN * kH);
}
BENCHMARK(BiasDropoutAddForward)->ArgName("dropout")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void BiasDropoutAddBackward(benchmark::State& state) {
  float *dout = Values(kN * kH), *dy = Values(kN * kH);
  for (auto _ : state) TheBackend().BiasDropoutAddBackward(dout, kS, kN, kH, kDropout, dy);
  ReportBytes(state, 2, kN * kH);
}
BENCHMARK(BiasDropoutAddBackward)->Unit(benchmark::kMillisecond);

void BiasGradient(benchmark::State& state) {
  float *dy = Values(kN * kF), *dbias = Values(kF);
  for (auto _ : state) TheBackend().BiasGradient(dy, kN, kF, dbias);
  ReportBytes(state, 1, kN * kF);
}
BENCHMARK(BiasGradient)->Unit(benchmark::kMillisecond);

void EmbeddingForward(benchmark::State& state) {
  const std::vector<int32_t> tokens = Tokens();
  float *tok = Values(kV * kH), *out = Values(kN * kH);
  for (auto _ : state) TheBackend().EmbeddingForward(tokens.data(), tok, 0, kN, kH, kV, out);
  ReportBytes(state, 2, kN * kH);
}
BENCHMARK(EmbeddingForward)->Unit(benchmark::kMillisecond);

void EmbeddingBackward(benchmark::State& state) {
  const std::vector<int32_t> tokens = Tokens();
  float *dtok = Values(kV * kH), *dout = Values(kN * kH);
  for (auto _ : state) TheBackend().EmbeddingBackward(tokens.data(), dout, 0, kN, kH, kV, dtok);
  ReportBytes(state, 3, kN * kH);
}
BENCHMARK(EmbeddingBackward)->Unit(benchmark::kMillisecond);

void PositionForward(benchmark::State& state) {
  float *x = Values(kN * kH), *pos = Values(kS * kH);
  for (auto _ : state) TheBackend().PositionForward(x, pos, kB * kS, kS, kH, kDropout);
  ReportBytes(state, 3, kN * kH);
}
BENCHMARK(PositionForward)->Unit(benchmark::kMillisecond);

void LossStats(benchmark::State& state) {
  const std::vector<int32_t> tokens = Tokens();
  float *logits = Values(kN * kV), *stats = Values(kN * 3);
  for (auto _ : state) TheBackend().LossStats(logits, tokens.data(), 0, kN, kV, kV, stats);
  ReportBytes(state, 1, kN * kV);
}
BENCHMARK(LossStats)->Unit(benchmark::kMillisecond);

void LossBackward(benchmark::State& state) {
  const std::vector<int32_t> tokens = Tokens();
  float *logits = Values(kN * kV), *stats = Values(kN * 3);
  TheBackend().LossStats(logits, tokens.data(), 0, kN, kV, kV, stats);
  for (auto _ : state) TheBackend().LossBackward(stats, tokens.data(), 0, 1, kN, kV, kV, 1.0 / kN, logits);
  ReportBytes(state, 2, kN * kV);
}
BENCHMARK(LossBackward)->Unit(benchmark::kMillisecond);

constexpr int64_t kLayerParameters = 12 * kH * kH;

void SumOfSquares(benchmark::State& state) {
  float* x = Values(kLayerParameters);
  for (auto _ : state) benchmark::DoNotOptimize(TheBackend().SumOfSquares(x, kLayerParameters));
  ReportBytes(state, 1, kLayerParameters);
}
BENCHMARK(SumOfSquares)->Unit(benchmark::kMillisecond);

void AdamW(benchmark::State& state) {
  float *gradient = Values(kLayerParameters), *w = Values(kLayerParameters), *m = Values(kLayerParameters);
  float* v = Values(kLayerParameters);
  TheBackend().Fill(v, kLayerParameters, 0.5f);
  const AdamWArgs args{
      .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = 10, .gradient_scale = 1};
  for (auto _ : state) TheBackend().AdamW(args, kLayerParameters, gradient, w, m, v);
  ReportBytes(state, 7, kLayerParameters);
}
BENCHMARK(AdamW)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lynx
