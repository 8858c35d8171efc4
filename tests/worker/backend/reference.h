// The ops of worker/backend in double precision, written like their formulas and without regard to speed. Also computes finite
// differences. Pure; thread-safe.
#ifndef LYNX_TESTS_WORKER_BACKEND_REFERENCE_H_
#define LYNX_TESTS_WORKER_BACKEND_REFERENCE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "worker/backend/backend.h"

namespace lynx::worker::reference {

using Vector = std::vector<double>;

// Returns 0 or 1/(1-rate). It is drawn from the scalar generator, one element at a time.
double DropoutFactor(const DropoutKey& key, int64_t sample, int64_t element);

Vector LayerNorm(const Vector& x, const Vector& gamma, const Vector& beta, int64_t n, int64_t h, double epsilon = 1e-5);
Vector Linear(const Vector& x, const Vector& w, const Vector& bias, int64_t n, int64_t in, int64_t out);
Vector RmsNorm(const Vector& x, const Vector& gamma, int64_t n, int64_t h, double epsilon = 1e-5);
// The gradients of sum(y dy) for y = LayerNorm(x) or, without a mean, y = RmsNorm(x), by the formulas of the backward pass.
// They are for shapes that are too large for finite differences.
struct NormGradients {
  Vector dx, dgamma, dbeta;
};
NormGradients NormBackward(bool has_mean, const Vector& x, const Vector& gamma, const Vector& dy, int64_t n, int64_t h,
                           double epsilon = 1e-5);
// Normalizes each head of the queries and of the keys. Does not change the values.
Vector QkNorm(const AttentionShape& shape, const Vector& qkv, const Vector& q_gamma, const Vector& k_gamma, double epsilon);
Vector Rope(const AttentionShape& shape, const RotaryTable& rotary, const Vector& qkv);
Vector Probs(const AttentionShape& shape, const Vector& qkv);
Vector LogSumExp(const AttentionShape& shape, const Vector& qkv);  // (b, a, s), of the scaled causal scores
Vector Context(const AttentionShape& shape, const Vector& probs, const Vector& qkv, const DropoutKey& key);
// silu(gate) * up, of gated (n, 2, f).
Vector Swiglu(const Vector& gated, int64_t n, int64_t f);
Vector Gelu(const Vector& x);
Vector Position(const Vector& x, const Vector& pos, int64_t b, int64_t s, int64_t h, const DropoutKey& key);
Vector BiasDropoutAdd(const Vector& y, const Vector& residual, const Vector& bias, int64_t s, int64_t n, int64_t h,
                      const DropoutKey& key);  // bias may be empty
// Sum of the cross-entropy over logits (n, v).
double CrossEntropy(const Vector& logits, const int32_t* targets, int64_t n, int64_t v);

// The route of tokens with these scores (n, E). The weights are apart, because a RouteChoice has only 32 bits for them.
struct ExpertRoute {
  std::vector<RouteChoice> choices;
  Vector weights;  // (n, top_k)
};
ExpertRoute RouteOf(const RouterShape& shape, const Vector& scores, const Vector& bias = {});
// The weights (n, top_k) of the choices, if the experts stay the same.
Vector RouteWeights(const RouterShape& shape, const Vector& scores, const std::vector<RouteChoice>& choices);
// The losses of the router, if the experts stay the same.
double RouterLoss(const RouterShape& shape, const RouterLosses& losses, const Vector& scores,
                  const std::vector<RouteChoice>& choices);
// silu(gate) * up * weight, of gated (rows, 2, f). Rows whose weight is kNoRow are 0.
Vector ExpertSwiglu(const Vector& gated, const Vector& weights, int64_t f);

// Returns d f / d x, computed by central differences.
Vector Gradient(const std::function<double(const Vector&)>& f, Vector x);
double Dot(const Vector& x, const Vector& y);

}  // namespace lynx::worker::reference

#endif  // LYNX_TESTS_WORKER_BACKEND_REFERENCE_H_
