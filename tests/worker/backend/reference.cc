#include "tests/worker/backend/reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "common/check.h"
#include "common/rng.h"

namespace lynx::worker::reference {

double DropoutFactor(const DropoutKey& key, int64_t sample, int64_t element) {
  if (key.rate == 0) return 1;
  uint64_t mixed = Mix64(key.seed);
  for (int64_t part : {key.step, int64_t{key.layer}, int64_t{key.op}}) mixed = Mix64(mixed ^ static_cast<uint64_t>(part));
  const auto block = static_cast<uint64_t>(element / 4);
  const auto global_sample = static_cast<uint64_t>(key.first_sample + sample);
  const PhiloxBlock words = Philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                    static_cast<uint32_t>(global_sample), static_cast<uint32_t>(global_sample >> 32)},
                                   {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)});
  const double threshold = std::floor(key.rate * 0x1p32);
  return static_cast<double>(words[static_cast<size_t>(element % 4)]) >= threshold ? 1 / (1 - key.rate) : 0;
}

Vector LayerNorm(const Vector& x, const Vector& gamma, const Vector& beta, int64_t n, int64_t h, double epsilon) {
  Vector y(x.size());
  for (int64_t row = 0; row < n; ++row) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < h; ++i) mean += x[row * h + i] / static_cast<double>(h);
    for (int64_t i = 0; i < h; ++i) variance += std::pow(x[row * h + i] - mean, 2) / static_cast<double>(h);
    for (int64_t i = 0; i < h; ++i) {
      y[row * h + i] = (x[row * h + i] - mean) / std::sqrt(variance + epsilon) * gamma[i] + beta[i];
    }
  }
  return y;
}

Vector Linear(const Vector& x, const Vector& w, const Vector& bias, int64_t n, int64_t in, int64_t out) {
  Vector y(n * out);
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (int64_t i = 0; i < in; ++i) sum += x[row * in + i] * w[o * in + i];
      y[row * out + o] = sum;
    }
  }
  return y;
}

Vector RmsNorm(const Vector& x, const Vector& gamma, int64_t n, int64_t h, double epsilon) {
  Vector y(x.size());
  for (int64_t row = 0; row < n; ++row) {
    double mean_square = 0;
    for (int64_t i = 0; i < h; ++i) mean_square += std::pow(x[row * h + i], 2) / static_cast<double>(h);
    for (int64_t i = 0; i < h; ++i) y[row * h + i] = x[row * h + i] / std::sqrt(mean_square + epsilon) * gamma[i];
  }
  return y;
}

namespace {

// Where element i of a head's query, key and value is in qkv, for one position of one sample. i is below the size of each.
struct Element {
  int64_t query, key, value;
};
Element ElementOf(const AttentionShape& shape, int64_t sample, int64_t position, int64_t head, int64_t i) {
  const int64_t row = (sample * shape.s + position) * shape.width();
  const int64_t key_head = shape.a + head / (shape.a / shape.k);
  const int64_t values = row + (shape.a + shape.k) * shape.d;
  return {row + head * shape.d + i, row + key_head * shape.d + i, values + (key_head - shape.a) * shape.value_size() + i};
}

}  // namespace

NormGradients NormBackward(bool has_mean, const Vector& x, const Vector& gamma, const Vector& dy, int64_t n, int64_t h,
                           double epsilon) {
  NormGradients all{Vector(x.size()), Vector(gamma.size()), Vector(gamma.size())};
  const auto count = static_cast<double>(h);
  for (int64_t row = 0; row < n; ++row) {
    const int64_t at = row * h;
    double mean = 0, variance = 0, mean_g = 0, mean_g_normal = 0;
    for (int64_t i = 0; i < h && has_mean; ++i) mean += x[at + i] / count;
    for (int64_t i = 0; i < h; ++i) variance += std::pow(x[at + i] - mean, 2) / count;
    const double rstd = 1 / std::sqrt(variance + epsilon);
    for (int64_t i = 0; i < h; ++i) {
      const double normal = (x[at + i] - mean) * rstd;
      if (has_mean) mean_g += dy[at + i] * gamma[i] / count;
      mean_g_normal += dy[at + i] * gamma[i] * normal / count;
      all.dgamma[i] += dy[at + i] * normal;
      all.dbeta[i] += dy[at + i];
    }
    for (int64_t i = 0; i < h; ++i) {
      all.dx[at + i] = rstd * (dy[at + i] * gamma[i] - mean_g - (x[at + i] - mean) * rstd * mean_g_normal);
    }
  }
  return all;
}

Vector QkNorm(const AttentionShape& shape, const Vector& qkv, const Vector& q_gamma, const Vector& k_gamma, double epsilon) {
  Vector normed = qkv;
  for (int64_t token = 0; token < shape.b * shape.s; ++token) {
    for (int64_t head = 0; head < shape.a + shape.k; ++head) {
      const int64_t at = token * shape.width() + head * shape.d;
      const Vector of_head = RmsNorm(Vector(qkv.begin() + at, qkv.begin() + at + shape.d), head < shape.a ? q_gamma : k_gamma,
                                     1, shape.d, epsilon);
      std::copy(of_head.begin(), of_head.end(), normed.begin() + at);
    }
  }
  return normed;
}

Vector Rope(const AttentionShape& shape, const RotaryTable& rotary, const Vector& qkv) {
  Vector turned = qkv;
  const int64_t half = rotary.pairs;
  for (int64_t token = 0; token < shape.b * shape.s; ++token) {
    for (int64_t head = 0; head < shape.a + shape.k; ++head) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(token % shape.s) * rotary.slopes[static_cast<size_t>(i)];
        const int64_t low = token * shape.width() + head * shape.d + i;
        turned[low] = rotary.scale * (qkv[low] * std::cos(angle) - qkv[low + half] * std::sin(angle));
        turned[low + half] = rotary.scale * (qkv[low + half] * std::cos(angle) + qkv[low] * std::sin(angle));
      }
    }
  }
  return turned;
}

namespace {

double Score(const AttentionShape& shape, const Vector& qkv, int64_t sample, int64_t head, int64_t row, int64_t column) {
  double score = 0;
  for (int64_t i = 0; i < shape.d; ++i) {
    score += qkv[ElementOf(shape, sample, row, head, i).query] * qkv[ElementOf(shape, sample, column, head, i).key];
  }
  return score * shape.factor / std::sqrt(static_cast<double>(shape.d));
}

}  // namespace

Vector LogSumExp(const AttentionShape& shape, const Vector& qkv) {
  Vector lse;
  for (int64_t sample = 0; sample < shape.b; ++sample) {
    for (int64_t head = 0; head < shape.a; ++head) {
      for (int64_t row = 0; row < shape.s; ++row) {
        double sum = 0;
        for (int64_t column = 0; column <= row; ++column) sum += std::exp(Score(shape, qkv, sample, head, row, column));
        lse.push_back(std::log(sum));
      }
    }
  }
  return lse;
}

Vector Probs(const AttentionShape& shape, const Vector& qkv) {
  const int64_t s = shape.s;
  Vector probs(shape.b * shape.a * s * s);
  for (int64_t sample = 0; sample < shape.b; ++sample) {
    for (int64_t head = 0; head < shape.a; ++head) {
      for (int64_t row = 0; row < s; ++row) {
        double* out = &probs[((sample * shape.a + head) * s + row) * s];
        double sum = 0;
        for (int64_t column = 0; column <= row; ++column) {
          out[column] = std::exp(Score(shape, qkv, sample, head, row, column));
          sum += out[column];
        }
        for (int64_t column = 0; column <= row; ++column) out[column] /= sum;
      }
    }
  }
  return probs;
}

Vector Context(const AttentionShape& shape, const Vector& probs, const Vector& qkv, const DropoutKey& key) {
  const int64_t s = shape.s, a = shape.a, e = shape.value_size();
  Vector context(shape.b * s * a * e);
  for (int64_t sample = 0; sample < shape.b; ++sample) {
    for (int64_t head = 0; head < a; ++head) {
      for (int64_t row = 0; row < s; ++row) {
        for (int64_t column = 0; column <= row; ++column) {
          const double weight = probs[((sample * a + head) * s + row) * s + column] *
                                DropoutFactor(key, sample, ((shape.first_head + head) * s + row) * s + column);
          for (int64_t i = 0; i < e; ++i) {
            context[((sample * s + row) * a + head) * e + i] += weight * qkv[ElementOf(shape, sample, column, head, i).value];
          }
        }
      }
    }
  }
  return context;
}

Vector Swiglu(const Vector& gated, int64_t n, int64_t f) {
  Vector y(n * f);
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < f; ++i) {
      const double gate = gated[row * 2 * f + i];
      y[row * f + i] = gate / (1 + std::exp(-gate)) * gated[row * 2 * f + f + i];
    }
  }
  return y;
}

Vector Gelu(const Vector& x) {
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double u = std::sqrt(2 / std::numbers::pi) * (x[i] + 0.044715 * x[i] * x[i] * x[i]);
    y[i] = 0.5 * x[i] * (1 + std::tanh(u));
  }
  return y;
}

Vector Position(const Vector& x, const Vector& pos, int64_t b, int64_t s, int64_t h, const DropoutKey& key) {
  Vector y(x.size());
  for (int64_t sample = 0; sample < b; ++sample) {
    for (int64_t i = 0; i < s * h; ++i) {
      y[sample * s * h + i] = (x[sample * s * h + i] + pos[i]) * DropoutFactor(key, sample, i);
    }
  }
  return y;
}

Vector BiasDropoutAdd(const Vector& y, const Vector& residual, const Vector& bias, int64_t s, int64_t n, int64_t h,
                      const DropoutKey& key) {
  Vector out(y.size());
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < h; ++i) {
      out[row * h + i] = residual[row * h + i] +
                         (y[row * h + i] + (bias.empty() ? 0 : bias[i])) * DropoutFactor(key, row / s, row % s * h + i);
    }
  }
  return out;
}

double CrossEntropy(const Vector& logits, const int32_t* targets, int64_t n, int64_t v) {
  double loss = 0;
  for (int64_t token = 0; token < n; ++token) {
    if (targets[token] < 0) continue;
    double sum = 0;
    for (int64_t i = 0; i < v; ++i) sum += std::exp(logits[token * v + i]);
    loss += std::log(sum) - logits[token * v + targets[token]];
  }
  return loss;
}

namespace {

// softmax of row `token` of scores (n, E)
Vector Softmax(const RouterShape& shape, const Vector& scores, int64_t token) {
  Vector softmax(scores.begin() + token * shape.experts, scores.begin() + (token + 1) * shape.experts);
  double sum = 0;
  for (double& value : softmax) sum += value = std::exp(value);
  for (double& value : softmax) value /= sum;
  return softmax;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// P of all experts of a token: see LayerBackend::RouterForward.
Vector ScoresOf(const RouterShape& shape, const Vector& scores, int64_t token) {
  if (!shape.sigmoid) return Softmax(shape, scores, token);
  Vector sigmoids(scores.begin() + token * shape.experts, scores.begin() + (token + 1) * shape.experts);
  for (double& value : sigmoids) value = Sigmoid(value);
  return sigmoids;
}

}  // namespace

Vector RouteWeights(const RouterShape& shape, const Vector& scores, const std::vector<RouteChoice>& choices) {
  Vector weights;
  for (int64_t token = 0; token < shape.n; ++token) {
    const Vector of_experts = ScoresOf(shape, scores, token);
    double sum = 0;
    for (int64_t c = 0; c < shape.top_k; ++c) sum += of_experts[choices[token * shape.top_k + c].expert];
    for (int64_t c = 0; c < shape.top_k; ++c) {
      weights.push_back(shape.scale * of_experts[choices[token * shape.top_k + c].expert] / (shape.normalized ? sum : 1));
    }
  }
  return weights;
}

ExpertRoute RouteOf(const RouterShape& shape, const Vector& scores, const Vector& bias) {
  ExpertRoute route;
  std::vector<int32_t> filled(shape.experts);
  for (int64_t token = 0; token < shape.n; ++token) {
    std::vector<int32_t> experts(shape.experts);
    std::iota(experts.begin(), experts.end(), 0);
    const auto score = [&](int32_t expert) {
      const double product = scores[token * shape.experts + expert];
      return shape.sigmoid ? Sigmoid(product) + (bias.empty() ? 0 : bias[expert]) : product;
    };
    std::stable_sort(experts.begin(), experts.end(), [&](int32_t a, int32_t b) { return score(a) > score(b); });
    for (int64_t c = 0; c < shape.top_k; ++c) {
      const int32_t expert = experts[c];
      const int64_t number = filled[expert]++, without_room = number - shape.room;
      const int64_t place = without_room < 0 ? expert * shape.room + number : -1 - without_room;
      route.choices.push_back({.expert = expert, .place = static_cast<int32_t>(place)});
    }
  }
  route.weights = RouteWeights(shape, scores, route.choices);
  return route;
}

double RouterLoss(const RouterShape& shape, const RouterLosses& losses, const Vector& scores,
                  const std::vector<RouteChoice>& choices) {
  const auto n = static_cast<double>(shape.n);
  Vector shares(shape.experts);
  for (const RouteChoice& choice : choices) shares[choice.expert] += 1 / static_cast<double>(choices.size());
  double balance = 0, squares = 0;
  for (int64_t token = 0; token < shape.n; ++token) {
    const Vector of_experts = ScoresOf(shape, scores, token);
    double sum = 0;
    for (const double value : of_experts) sum += value;  // 1, if they are a softmax
    for (int64_t e = 0; e < shape.experts; ++e) balance += shares[e] * of_experts[e] / sum / n;
    sum = 0;
    for (int64_t e = 0; e < shape.experts; ++e) sum += std::exp(scores[token * shape.experts + e]);
    squares += std::pow(std::log(sum), 2) / n;
  }
  return losses.scale * (losses.aux * static_cast<double>(shape.experts) * balance + losses.z * squares);
}

Vector ExpertSwiglu(const Vector& gated, const Vector& weights, int64_t f) {
  const auto rows = static_cast<int64_t>(weights.size());
  Vector y = Swiglu(gated, rows, f);
  for (int64_t i = 0; i < rows * f; ++i) y[i] *= weights[i / f] == kNoRow ? 0 : weights[i / f];
  return y;
}

Vector Gradient(const std::function<double(const Vector&)>& f, Vector x) {
  constexpr double kStep = 1e-5;
  Vector gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double old = x[i];
    x[i] = old + kStep;
    const double above = f(x);
    x[i] = old - kStep;
    gradient[i] = (above - f(x)) / (2 * kStep);
    x[i] = old;
  }
  return gradient;
}

double Dot(const Vector& x, const Vector& y) {
  LYNX_CHECK(x.size() == y.size());
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace lynx::worker::reference
