// The router of experts: the scores, the choice of experts, and the gradients of the scores. For a token with the scores s and
// P = softmax(s), the weight of its choice c is w_c = P_c, or P_c divided by the sum over its choices. g is the gradient of the
// weights; it is 0 for a dropped row. a_e and z are the gradients of the two losses:
//   a_e = scale aux E f_e / n,   z = 2 scale z_loss logsumexp(s) / n
//   ds_e = P_e (a_e - sum_j a_j P_j + z), and for the choices also
//     w_c (g_c - sum_j g_j w_j)   if the weights are normalized,
//     P_e ([e is chosen] g_e - sum_j g_j P_j) for all e otherwise
// With a factor k of the weights, g above is k times the gradient of the weights, and w is without k. With sigmoids, let S_e be
// the sigmoid of s_e, and P_e = S_e divided by the sum of all S:
//   ds_e = S_e (1 - S_e) (a_e - sum_j a_j P_j) / (sum of all S) + z softmax(s)_e, and for the choices also
//     w_c (1 - S_c) (g_c - sum_j g_j w_j), without the sum if the weights are not normalized
#include <algorithm>
#include <array>
#include <cmath>

#include "common/check.h"
#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/gemm.h"
#include "worker/backend/cpu/simd.h"
#include "worker/backend/score_key.h"

namespace lynx::worker::cpu {
namespace {

// The number of columns of a row that are processed at once.
constexpr int64_t kColumns = 256;

// Softmax of a token's scores: P_e = e^(s_e - max) / sum.
struct SoftmaxOf {
  float max, sum;
};

LYNX_SIMD SoftmaxOf Softmax(const float* scores, int64_t experts) {
  float max = scores[0];
#pragma omp simd reduction(max : max)
  for (int64_t e = 0; e < experts; ++e) max = std::max(max, scores[e]);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t e = 0; e < experts; ++e) sum += Exp(scores[e] - max);
  return {max, sum};
}

// Returns e^(-x), limited to e^87 so that its reciprocal is still a normal number.
inline float ExpMinus(float x) { return Exp(x < -87.0f ? 87.0f : -x); }

inline float Sigmoid(float x) { return 1.0f / (1.0f + ExpMinus(x)); }

using ByExpert = std::array<float, kMaxExperts>;

// Returns the sigmoids of a token's scores, each with the bias of its expert.
LYNX_SIMD void BiasedSigmoids(const float* scores, int64_t experts, const float* bias, float* out) {
#pragma omp simd
  for (int64_t e = 0; e < experts; ++e) out[e] = Sigmoid(scores[e]);
  for (int64_t e = 0; e < experts && bias != nullptr; ++e) out[e] += bias[e];
}

// Chooses the experts of one token. Does not set the places.
void Choose(const RouterShape& shape, const float* scores, const float* bias, RouteChoice* choices) {
  ByExpert biased;
  const float* chosen_by = scores;
  SoftmaxOf softmax{};
  if (shape.sigmoid) {
    BiasedSigmoids(scores, shape.experts, bias, biased.data());
    chosen_by = biased.data();
  } else {
    softmax = Softmax(scores, shape.experts);
  }
  ScoreKey last = kAboveAllKeys;
  float chosen = 0;
  for (int64_t c = 0; c < shape.top_k; ++c) {
    ScoreKey best = 0;
    for (int64_t e = 0; e < shape.experts; ++e) {
      const ScoreKey key = ScoreKeyOf(chosen_by[e], e);
      if (key < last && key > best) best = key;
    }
    last = best;
    choices[c].expert = ExpertOf(best);
    const float score = scores[choices[c].expert];
    choices[c].weight = shape.sigmoid ? Sigmoid(score) : Exp(score - softmax.max);
    chosen += choices[c].weight;
  }
  const float sum = shape.normalized ? chosen : shape.sigmoid ? 1.0f : softmax.sum;
  for (int64_t c = 0; c < shape.top_k; ++c) choices[c].weight = choices[c].weight / sum * shape.scale;
}

// Returns a_e of every expert.
ByExpert SlopesOfAux(const RouterShape& shape, const RouterLosses& losses, const RouteChoice* route) {
  ByExpert slopes{};
  if (losses.aux == 0) return slopes;
  std::array<int64_t, kMaxExperts> counts{};
  const int64_t choices = shape.n * shape.top_k;
  for (int64_t i = 0; i < choices; ++i) ++counts[static_cast<size_t>(route[i].expert)];
  const double factor = losses.scale * losses.aux * static_cast<double>(shape.experts) / static_cast<double>(shape.n);
  for (size_t e = 0; e < static_cast<size_t>(shape.experts); ++e) {
    slopes[e] = static_cast<float>(factor * static_cast<double>(counts[e]) / static_cast<double>(choices));
  }
  return slopes;
}

// Sets dscores to P_e (a_e + the terms that are the same for all experts). `z`: 2 scale z_loss / n. `of_choices`: the sum of g
// P over the choices, or 0.
LYNX_SIMD void Spread(const float* scores, int64_t experts, const SoftmaxOf& softmax, const float* slopes, float z,
                      float of_choices, float* dscores) {
  const float share = 1.0f / softmax.sum;
  float mean_slope = 0;
#pragma omp simd reduction(+ : mean_slope)
  for (int64_t e = 0; e < experts; ++e) {
    dscores[e] = Exp(scores[e] - softmax.max) * share;
    mean_slope += slopes[e] * dscores[e];
  }
  const float same = z * (softmax.max + std::log(softmax.sum)) - mean_slope - of_choices;
#pragma omp simd
  for (int64_t e = 0; e < experts; ++e) dscores[e] *= slopes[e] + same;
}

// Does the same as Spread if the scores become sigmoids: the gradient of the losses.
LYNX_SIMD void SpreadOfSigmoids(const float* scores, int64_t experts, const SoftmaxOf& softmax, const float* slopes, float z,
                                float* dscores) {
  float sum = 0, sloped = 0;
#pragma omp simd reduction(+ : sum, sloped)
  for (int64_t e = 0; e < experts; ++e) {
    dscores[e] = Sigmoid(scores[e]);
    sum += dscores[e];
    sloped += slopes[e] * dscores[e];
  }
  const float share = 1.0f / sum, mean_slope = sloped * share;
  const float of_softmax = z * (softmax.max + std::log(softmax.sum)) / softmax.sum;
#pragma omp simd
  for (int64_t e = 0; e < experts; ++e) {
    const float falling = ExpMinus(scores[e]) * dscores[e];  // 1 - sigmoid
    dscores[e] = dscores[e] * falling * (slopes[e] - mean_slope) * share + of_softmax * Exp(scores[e] - softmax.max);
  }
}

// Computes the gradient of the scores of one token.
void ScoreGradient(const RouterShape& shape, const ByExpert& slopes, float z, const float* scores, const RouteChoice* choices,
                   const float* dweights, const float* late, float* dscores) {
  const auto gradient_of = [&](const RouteChoice& choice) {
    if (choice.place >= 0) return dweights[choice.place];
    return late == nullptr ? 0.0f : late[&choice - choices];
  };
  float sum = 0;
  for (int64_t c = 0; c < shape.top_k; ++c) sum += gradient_of(choices[c]) * choices[c].weight;
  const SoftmaxOf softmax = Softmax(scores, shape.experts);
  if (shape.sigmoid) {
    SpreadOfSigmoids(scores, shape.experts, softmax, slopes.data(), z, dscores);
  } else {
    Spread(scores, shape.experts, softmax, slopes.data(), z, shape.normalized ? 0.0f : sum, dscores);
  }
  const float mean = shape.normalized ? sum / shape.scale : 0.0f;
  for (int64_t c = 0; c < shape.top_k; ++c) {
    const float score = scores[choices[c].expert];
    const float falling = shape.sigmoid ? ExpMinus(score) * Sigmoid(score) : 1.0f;
    dscores[choices[c].expert] += choices[c].weight * falling * (gradient_of(choices[c]) - mean);
  }
}

template <class T>
LYNX_SIMD void AddScaled(const T* row, float factor, int64_t count, float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) sum[i] += factor * row[i];
}

// dx (n, h) += dscores (n, E) w (E, h)
void AddInputGradient(const RouterShape& s, const float* dscores, const float* w, float* dx) {
  Gemm(Transpose::kNo, Transpose::kNo, s.n, s.h, s.experts, 1.0f, {dscores, s.experts}, {w, s.h}, 1.0f, {dx, s.h});
}

void AddInputGradient(const RouterShape& s, const float* dscores, const Bfloat16* w, Bfloat16* dx) {
  std::array<float, kColumns> sums;
  for (int64_t first = 0; first < s.h; first += kColumns) {
    const int64_t columns = std::min(kColumns, s.h - first);
    for (int64_t token = 0; token < s.n; ++token) {
      Bfloat16* const out = dx + token * s.h + first;
      std::copy_n(out, columns, sums.begin());
      for (int64_t e = 0; e < s.experts; ++e) {
        AddScaled(w + e * s.h + first, dscores[token * s.experts + e], columns, sums.data());
      }
      std::copy_n(sums.begin(), columns, out);
    }
  }
}

// dw (E, h) += dscores^T x
void AddWeightGradient(const RouterShape& s, const float* dscores, const float* x, float* dw) {
  Gemm(Transpose::kYes, Transpose::kNo, s.experts, s.h, s.n, 1.0f, {dscores, s.experts}, {x, s.h}, 1.0f, {dw, s.h});
}

void AddWeightGradient(const RouterShape& s, const float* dscores, const Bfloat16* x, float* dw) {
  for (int64_t first = 0; first < s.h; first += kColumns) {
    const int64_t columns = std::min(kColumns, s.h - first);
    for (int64_t token = 0; token < s.n; ++token) {
      for (int64_t e = 0; e < s.experts; ++e) {
        AddScaled(x + token * s.h + first, dscores[token * s.experts + e], columns, dw + e * s.h + first);
      }
    }
  }
}

void CheckShape(const RouterShape& shape) {
  LYNX_CHECK(shape.experts >= 1 && shape.experts <= kMaxExperts && shape.top_k >= 1 && shape.top_k <= shape.experts);
  LYNX_CHECK(shape.room >= 0 && shape.rows() <= INT32_MAX && shape.scale > 0);
}

}  // namespace

template <class T>
void CpuOps<T>::RouterForward(const RouterShape& shape, const T* x, const T* w, const float* bias, float* scores,
                              RouteChoice* route) {
  CheckShape(shape);
  LYNX_CHECK(bias == nullptr || shape.sigmoid);
  this->LogitsForward(x, w, shape.n, shape.h, shape.experts, scores);
  std::array<int32_t, kMaxExperts> filled{};
  for (int64_t token = 0; token < shape.n; ++token) {
    RouteChoice* const choices = route + token * shape.top_k;
    Choose(shape, scores + token * shape.experts, bias, choices);
    for (int64_t c = 0; c < shape.top_k; ++c) {
      int32_t& rows = filled[static_cast<size_t>(choices[c].expert)];
      const bool fits = rows < shape.room;
      const auto place = fits ? choices[c].expert * shape.room + rows : shape.room - 1 - rows;
      choices[c].place = static_cast<int32_t>(place);
      ++rows;
    }
  }
}

template <class T>
void CpuOps<T>::RouterBackward(const RouterShape& shape, const RouterLosses& losses, const float* scores,
                               const RouteChoice* route, const float* dweights, const float* late, const T* w, float* dscores,
                               T* dx) {
  CheckShape(shape);
  const ByExpert slopes = SlopesOfAux(shape, losses, route);
  const auto z = static_cast<float>(2 * losses.scale * losses.z / static_cast<double>(shape.n));
  for (int64_t token = 0; token < shape.n; ++token) {
    const int64_t at = token * shape.experts;
    const int64_t choices = token * shape.top_k;
    ScoreGradient(shape, slopes, z, scores + at, route + choices, dweights, late == nullptr ? nullptr : late + choices,
                  dscores + at);
  }
  AddInputGradient(shape, dscores, w, dx);
}

template <class T>
void CpuOps<T>::RouterWeight(const RouterShape& shape, const T* x, const float* dscores, float* dw) {
  AddWeightGradient(shape, dscores, x, dw);
}

#define LYNX_INSTANTIATE(T)                                                                                           \
  template void CpuOps<T>::RouterForward(const RouterShape&, const T*, const T*, const float*, float*, RouteChoice*); \
  template void CpuOps<T>::RouterBackward(const RouterShape&, const RouterLosses&, const float*, const RouteChoice*,  \
                                          const float*, const float*, const T*, float*, T*);                          \
  template void CpuOps<T>::RouterWeight(const RouterShape&, const T*, const float*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
