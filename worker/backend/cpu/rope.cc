// Rotary position embedding (Su et al. 2021). The elements i and i + pairs of a head are a pair. At position p the pair is
// rotated by the angle p * slopes[i] and multiplied by `scale`. The positions are processed in order. So the cosine and sine of
// an angle are computed from those of the previous position by the addition theorem, in double. After a million positions they
// are exact to 1e-10.
#include <algorithm>
#include <array>
#include <cmath>

#include "common/check.h"
#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

constexpr int64_t kPairs = 64;  // number of pairs that are rotated together

LYNX_SIMD void AdvanceAngles(int64_t count, double scale, const double* step_cos, const double* step_sin, double* exact_cos,
                             double* exact_sin, float* cos, float* sin) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const double c = exact_cos[i] * step_cos[i] - exact_sin[i] * step_sin[i];
    const double s = exact_sin[i] * step_cos[i] + exact_cos[i] * step_sin[i];
    exact_cos[i] = c;
    exact_sin[i] = s;
    cos[i] = static_cast<float>(c * scale);
    sin[i] = static_cast<float>(s * scale);
  }
}

// The cosines and sines of the angles of consecutive pairs at one position.
class Angles {
 public:
  // Begins with position 0. The pairs are [first, first + count). `sign` is 1 to rotate by the angle, -1 to rotate back.
  Angles(const RotaryTable& rotary, int64_t first, int64_t count, double sign) : count_(count), scale_(rotary.scale) {
    for (int64_t i = 0; i < count; ++i) {
      const double angle = rotary.slopes[static_cast<size_t>(first + i)];
      step_cos_[i] = std::cos(angle);
      step_sin_[i] = sign * std::sin(angle);
      exact_cos_[i] = 1;
      exact_sin_[i] = 0;
      cos_[i] = static_cast<float>(scale_);
      sin_[i] = 0;
    }
  }

  const float* cos() const { return cos_.data(); }
  const float* sin() const { return sin_.data(); }

  void Advance() {
    AdvanceAngles(count_, scale_, step_cos_.data(), step_sin_.data(), exact_cos_.data(), exact_sin_.data(), cos_.data(),
                  sin_.data());
  }

 private:
  const int64_t count_;
  const double scale_;
  std::array<double, kPairs> step_cos_, step_sin_, exact_cos_, exact_sin_;
  std::array<float, kPairs> cos_, sin_;
};

// Rotates `count` pairs in each of `heads` heads, which are d elements apart. The two elements of a pair are at x and x + half.
template <class T>
LYNX_SIMD void Turn(const float* cos, const float* sin, int64_t count, int64_t half, int64_t heads, int64_t d, T* x) {
  for (int64_t head = 0; head < heads; ++head, x += d) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const float low = x[i], high = x[half + i];
      x[i] = low * cos[i] - high * sin[i];
      x[half + i] = high * cos[i] + low * sin[i];
    }
  }
}

template <class T>
void TurnAll(const AttentionShape& shape, const RotaryTable& rotary, double sign, T* qkv) {
  LYNX_CHECK(rotary.pairs <= RotaryTable::kMaxPairs && 2 * rotary.pairs <= shape.d);
  for (int64_t first = 0; first < rotary.pairs; first += kPairs) {
    const int64_t count = std::min(kPairs, rotary.pairs - first);
    Angles angles(rotary, first, count, sign);
    for (int64_t position = 0; position < shape.s; ++position, angles.Advance()) {
      for (int64_t sample = 0; sample < shape.b; ++sample) {
        T* const row = qkv + (sample * shape.s + position) * shape.width();
        Turn(angles.cos(), angles.sin(), count, rotary.pairs, shape.a + shape.k, shape.d, row + first);
      }
    }
  }
}

}  // namespace

template <class T>
void CpuOps<T>::RopeForward(const AttentionShape& shape, const RotaryTable& rotary, T* qkv) {
  TurnAll(shape, rotary, 1, qkv);
}

template <class T>
void CpuOps<T>::RopeBackward(const AttentionShape& shape, const RotaryTable& rotary, T* dqkv) {
  TurnAll(shape, rotary, -1, dqkv);
}

#define LYNX_INSTANTIATE(T)                                                            \
  template void CpuOps<T>::RopeForward(const AttentionShape&, const RotaryTable&, T*); \
  template void CpuOps<T>::RopeBackward(const AttentionShape&, const RotaryTable&, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
