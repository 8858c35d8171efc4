// The router of experts: the scores, the choice of experts, and the gradients of the scores (cpu/router.cc has the formulas). A
// warp works on one token.
//
// The places of choices are numbers in the order of all choices. For this, a block counts the choices of each expert in a part
// of the choices. Then a thread for each part and expert knows the number of the first one, and counts on. A part has more than
// one chunk of choices if the counts of so many parts would not fit into the scratch.
#include "common/check.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/elementwise.cuh"
#include "worker/backend/cuda/experts/scores_product.cuh"
#include "worker/backend/score_key.h"

namespace lynx::worker::cuda {
namespace {

constexpr int64_t kChunk = 1024;  // choices that a block holds in shared memory
constexpr int64_t kMaxParts = 128;
// The scratch memory has room for the counts of all parts, and for a slope for each expert.
static_assert((kMaxParts + 1) * kMaxExperts * static_cast<int64_t>(sizeof(int32_t)) <= Stream::kScratch.value);

// How the choices are divided into parts of whole chunks. The last part may have less.
struct Parts {
  int64_t choices, count, chunks;  // all choices, the number of parts, the chunks of a part

  static Parts Of(int64_t choices) {
    const int64_t all = BlocksOf(choices, kChunk), chunks = BlocksOf(all, kMaxParts);
    return {choices, all == 0 ? 0 : BlocksOf(all, chunks), chunks};
  }
};

__device__ int64_t TokenOfWarp() { return GlobalThread() / kWarp; }
__device__ int LaneOfWarp() { return static_cast<int>(threadIdx.x) % kWarp; }

// Softmax of a token's scores: P_e = e^(s_e - max) / sum. All lanes of a warp compute it together.
struct SoftmaxOf {
  float max, sum;

  __device__ static SoftmaxOf Scores(const float* scores, int64_t experts) {
    float max = scores[0], sum = 0;
    for (int64_t e = LaneOfWarp(); e < experts; e += kWarp) max = Max::Of(max, scores[e]);
    max = ReduceLanes<Max, kWarp>(max);
    for (int64_t e = LaneOfWarp(); e < experts; e += kWarp) sum += expf(scores[e] - max);
    return {max, ReduceLanes<Sum, kWarp>(sum)};
  }
};

// Returns e^(-x), limited to e^87 so that its reciprocal is still a normal number.
__device__ float ExpMinus(float x) { return expf(x < -87.0f ? 87.0f : -x); }
__device__ float Sigmoid(float x) { return 1.0f / (1.0f + ExpMinus(x)); }

// Chooses the experts of each token. Does not set the places. `bias`: null if there is none.
__global__ void __launch_bounds__(kBlock)
    Choose(RouterShape shape, const float* scores, const float* bias, RouteChoice* route) {
  const int64_t token = TokenOfWarp();
  if (token >= shape.n) return;
  scores += token * shape.experts;
  route += token * shape.top_k;
  const SoftmaxOf softmax = shape.sigmoid ? SoftmaxOf{0, 1} : SoftmaxOf::Scores(scores, shape.experts);
  ScoreKey last = kAboveAllKeys;
  float chosen = 0;
  for (int64_t c = 0; c < shape.top_k; ++c) {
    ScoreKey best = 0;
    for (int64_t e = LaneOfWarp(); e < shape.experts; e += kWarp) {
      float score = scores[e];
      if (shape.sigmoid) score = Sigmoid(score) + (bias == nullptr ? 0.0f : bias[e]);
      const ScoreKey key = ScoreKeyOf(score, e);
      if (key < last && key > best) best = key;
    }
    last = ReduceLanes<Max, kWarp>(best);
    const int32_t expert = ExpertOf(last);
    const float weight = shape.sigmoid ? Sigmoid(scores[expert]) : expf(scores[expert] - softmax.max);
    chosen += weight;
    if (LaneOfWarp() == 0) route[c] = {.expert = expert, .weight = weight};
  }
  const float sum = shape.normalized ? chosen : softmax.sum;
  for (int64_t c = 0; c < shape.top_k && LaneOfWarp() == 0; ++c) route[c].weight = route[c].weight / sum * shape.scale;
}

// The experts of the choices of one chunk.
struct ChosenOfChunk {
  int32_t* experts;  // in shared memory
  int64_t first;     // the chunk's first choice
  int count;

  // Loads a chunk of this block's part. All threads of the block must call it, and then wait for each other before they call it
  // again.
  __device__ static ChosenOfChunk Load(const Parts& parts, int64_t chunk, const RouteChoice* route, int32_t* shared) {
    const int64_t first = (int64_t{blockIdx.x} * parts.chunks + chunk) * kChunk, left = parts.choices - first;
    const int count = static_cast<int>(left < 0 ? 0 : left < kChunk ? left : kChunk);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlock) shared[i] = route[first + i].expert;
    __syncthreads();
    return {shared, first, count};
  }
};

// counts (parts, experts) = the number of choices of each expert in each part
__global__ void __launch_bounds__(kBlock)
    CountInParts(Parts parts, const RouteChoice* route, int64_t experts, int32_t* counts) {
  __shared__ int32_t shared[kChunk];
  counts += int64_t{blockIdx.x} * experts;
  for (int64_t chunk = 0; chunk < parts.chunks; ++chunk) {
    const ChosenOfChunk chosen = ChosenOfChunk::Load(parts, chunk, route, shared);
    for (int64_t e = threadIdx.x; e < experts; e += kBlock) {
      int32_t sum = chunk == 0 ? 0 : counts[e];
      for (int i = 0; i < chosen.count; ++i) sum += chosen.experts[i] == e ? 1 : 0;
      counts[e] = sum;
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kBlock)
    SetPlaces(Parts parts, const int32_t* counts, int64_t experts, int64_t room, RouteChoice* route) {
  __shared__ int32_t shared[kChunk];
  for (int64_t first = 0; first < experts; first += kBlock) {
    const int64_t e = first + threadIdx.x;  // from `experts` on, the thread only helps to load
    int64_t row = 0;
    for (unsigned part = 0; part < blockIdx.x && e < experts; ++part) row += counts[part * experts + e];
    for (int64_t chunk = 0; chunk < parts.chunks; ++chunk) {
      const ChosenOfChunk chosen = ChosenOfChunk::Load(parts, chunk, route, shared);
      for (int i = 0; i < chosen.count; ++i) {
        if (chosen.experts[i] != e) continue;
        route[chosen.first + i].place = static_cast<int32_t>(row < room ? e * room + row : room - 1 - row);
        ++row;
      }
      __syncthreads();
    }
  }
}

// slopes (experts) = factor * the number of choices of each expert: the gradient of the auxiliary loss
struct AuxSlopes {
  const int32_t* counts;
  int64_t parts, experts;
  double factor;
  float* slopes;

  __device__ void operator()(int64_t e) const {
    int64_t count = 0;
    for (int64_t part = 0; part < parts; ++part) count += counts[part * experts + e];
    slopes[e] = static_cast<float>(factor * static_cast<double>(count));
  }
};

// loads (experts) += the number of choices of each expert
struct AddLoads {
  const int32_t* counts;
  int64_t parts, experts;
  float* loads;

  __device__ void operator()(int64_t e) const {
    int64_t count = 0;
    for (int64_t part = 0; part < parts; ++part) count += counts[part * experts + e];
    loads[e] += static_cast<float>(count);
  }
};

struct MoveBias {
  const float* loads;
  double even;
  float rate;
  float* bias;

  __device__ void operator()(int64_t e) const {
    if (loads[e] < even) bias[e] += rate;
    if (loads[e] > even) bias[e] -= rate;
  }
};

// Sets dscores of one token to the gradient of the losses, where the scores become sigmoids. All lanes of a warp compute it
// together. `slope_of`: of an expert.
template <class SlopeOf>
__device__ void SpreadOfSigmoids(const float* scores, int64_t experts, const SoftmaxOf& softmax, const SlopeOf& slope_of,
                                 float z, float* dscores) {
  float sum = 0, sloped = 0;
  for (int64_t e = LaneOfWarp(); e < experts; e += kWarp) {
    dscores[e] = Sigmoid(scores[e]);
    sum += dscores[e];
    sloped += slope_of(e) * dscores[e];
  }
  const float share = 1.0f / ReduceLanes<Sum, kWarp>(sum), mean_slope = ReduceLanes<Sum, kWarp>(sloped) * share;
  const float of_softmax = z * (softmax.max + logf(softmax.sum)) / softmax.sum;
  for (int64_t e = LaneOfWarp(); e < experts; e += kWarp) {
    const float falling = ExpMinus(scores[e]) * dscores[e];  // 1 - sigmoid
    dscores[e] = dscores[e] * falling * (slope_of(e) - mean_slope) * share + of_softmax * expf(scores[e] - softmax.max);
  }
}

// Works like the function above, but for routers whose scores become their softmax. `of_choices`: the sum of g P over the
// choices, or 0.
template <class SlopeOf>
__device__ void Spread(const float* scores, int64_t experts, const SoftmaxOf& softmax, const SlopeOf& slope_of, float z,
                       float of_choices, float* dscores) {
  const float share = 1.0f / softmax.sum;
  float mean_slope = 0;
  for (int64_t e = LaneOfWarp(); e < experts; e += kWarp) {
    dscores[e] = expf(scores[e] - softmax.max) * share;
    mean_slope += slope_of(e) * dscores[e];
  }
  mean_slope = ReduceLanes<Sum, kWarp>(mean_slope);
  const float same = z * (softmax.max + logf(softmax.sum)) - mean_slope - of_choices;
  for (int64_t e = LaneOfWarp(); e < experts; e += kWarp) dscores[e] *= slope_of(e) + same;
}

// `slopes`: null if there is no auxiliary loss. `z`: 2 scale z_loss / n.
__global__ void __launch_bounds__(kBlock)
    ScoreGradient(RouterShape shape, const float* slopes, float z, const float* scores, const RouteChoice* route,
                  const float* dweights, const float* late, float* dscores) {
  const int64_t token = TokenOfWarp();
  if (token >= shape.n) return;
  scores += token * shape.experts;
  dscores += token * shape.experts;
  route += token * shape.top_k;
  const auto gradient_of = [&](const RouteChoice& choice) {
    if (choice.place >= 0) return dweights[choice.place];
    return late == nullptr ? 0.0f : late[token * shape.top_k + (&choice - route)];
  };
  const auto slope_of = [&](int64_t e) { return slopes == nullptr ? 0.0f : slopes[e]; };
  float of_choices = 0;
  for (int64_t c = 0; c < shape.top_k; ++c) of_choices += gradient_of(route[c]) * route[c].weight;

  const SoftmaxOf softmax = SoftmaxOf::Scores(scores, shape.experts);
  if (shape.sigmoid) {
    SpreadOfSigmoids(scores, shape.experts, softmax, slope_of, z, dscores);
  } else {
    Spread(scores, shape.experts, softmax, slope_of, z, shape.normalized ? 0.0f : of_choices, dscores);
  }
  const float mean = shape.normalized ? of_choices / shape.scale : 0.0f;
  for (int64_t c = 0; c < shape.top_k; ++c) {
    // The lane that has written this element changes it.
    if (route[c].expert % kWarp != LaneOfWarp()) continue;
    const float score = scores[route[c].expert];
    const float falling = shape.sigmoid ? ExpMinus(score) * Sigmoid(score) : 1.0f;
    dscores[route[c].expert] += route[c].weight * falling * (gradient_of(route[c]) - mean);
  }
}

void CheckShape(const RouterShape& shape) {
  LYNX_CHECK(shape.experts >= 1 && shape.experts <= kMaxExperts && shape.top_k >= 1 && shape.top_k <= shape.experts);
  LYNX_CHECK(shape.room >= 0 && shape.rows() <= INT32_MAX && shape.scale > 0);
}

}  // namespace

template <class T>
void CudaOps<T>::RouterForward(const RouterShape& shape, const T* x, const T* w, const float* bias, float* scores,
                               RouteChoice* route) {
  CheckShape(shape);
  LYNX_CHECK(bias == nullptr || shape.sigmoid);
  constexpr char kName[] = "router";
  const Parts parts = Parts::Of(shape.n * shape.top_k);
  LogitsForward(x, w, shape.n, shape.h, shape.experts, scores);
  auto* const counts = this->stream_.template ScratchOf<int32_t>(parts.count * shape.experts);
  this->stream_.Launch(kName, &Choose, dim3(BlocksOf(shape.n * kWarp, kBlock)), dim3(kBlock), shape, scores, bias, route);
  this->stream_.Launch(kName, &CountInParts, dim3(parts.count), dim3(kBlock), parts, route, shape.experts, counts);
  this->stream_.Launch(kName, &SetPlaces, dim3(parts.count), dim3(kBlock), parts, counts, shape.experts, shape.room, route);
}

template <class T>
void CudaOps<T>::RouterBackward(const RouterShape& shape, const RouterLosses& losses, const float* scores,
                                const RouteChoice* route, const float* dweights, const float* late, const T* w, float* dscores,
                                T* dx) {
  CheckShape(shape);
  constexpr char kName[] = "router backward";
  const int64_t choices = shape.n * shape.top_k;
  const auto n = static_cast<double>(shape.n);
  float* slopes = nullptr;
  if (losses.aux != 0) {
    const Parts parts = Parts::Of(choices);
    auto* const counts = this->stream_.template ScratchOf<int32_t>((parts.count + 1) * shape.experts);
    slopes = reinterpret_cast<float*>(counts + parts.count * shape.experts);
    const double factor = losses.scale * losses.aux * static_cast<double>(shape.experts) / n / static_cast<double>(choices);
    this->stream_.Launch(kName, &CountInParts, dim3(parts.count), dim3(kBlock), parts, route, shape.experts, counts);
    ForEach(this->stream_, kName, shape.experts, AuxSlopes{counts, parts.count, shape.experts, factor, slopes});
  }
  const auto z = static_cast<float>(2 * losses.scale * losses.z / n);
  this->stream_.Launch(kName, &ScoreGradient, dim3(BlocksOf(shape.n * kWarp, kBlock)), dim3(kBlock), shape, slopes, z, scores,
                       route, dweights, late, dscores);
  AddScoresTimes(this->stream_, kName, shape.n, shape.h, shape.experts, dscores, w, dx);
}

template <class T>
void CudaOps<T>::RouterWeight(const RouterShape& shape, const T* x, const float* dscores, float* dw) {
  AddTransposedScoresTimes(this->stream_, "router's weight", shape.experts, shape.h, shape.n, dscores, x, dw);
}

void CudaBackend::CountChoices(const RouteChoice* route, int64_t choices, int64_t experts, float* loads) {
  LYNX_CHECK(experts >= 1 && experts <= kMaxExperts);
  constexpr char kName[] = "loads of experts";
  const Parts parts = Parts::Of(choices);
  auto* const counts = stream_.ScratchOf<int32_t>(parts.count * experts);
  stream_.Launch(kName, &CountInParts, dim3(parts.count), dim3(kBlock), parts, route, experts, counts);
  ForEach(stream_, kName, experts, AddLoads{counts, parts.count, experts, loads});
}

void CudaBackend::MoveRouterBias(const float* loads, int64_t experts, double even, float rate, float* bias) {
  ForEach(stream_, "biases of routers", experts, MoveBias{loads, even, rate, bias});
}

#define LYNX_INSTANTIATE(T)                                                                                            \
  template void CudaOps<T>::RouterForward(const RouterShape&, const T*, const T*, const float*, float*, RouteChoice*); \
  template void CudaOps<T>::RouterBackward(const RouterShape&, const RouterLosses&, const float*, const RouteChoice*,  \
                                           const float*, const float*, const T*, float*, T*);                          \
  template void CudaOps<T>::RouterWeight(const RouterShape&, const T*, const float*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
