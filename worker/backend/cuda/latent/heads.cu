// Queries, keys and values from latents (DeepSeek-V2, arXiv 2405.04434), as matrix products of columns of wider matrices. The
// columns that a head of keys gets from a product come after its rotated part, so the heads of keys are a batch of products.
// The gradients of the latents of keys and values are the sum of such products over the heads; it is computed in fp32, one head
// after another.
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::worker::cuda {
namespace {

template <class T>
constexpr T* kNoBias = nullptr;

// The places of the parts: in a row of qkv, the first made element of the first head of keys and the first value; in the weight
// of keys and values, the first row of values.
struct Places {
  int64_t made_keys, values, value_rows;
  int64_t made;  // elements of a head of keys that are made from latents
  Steps query_inputs, latents, qkv;

  explicit Places(const LatentShape& shape)
      : made_keys(shape.a * shape.d + shape.t), values(2 * shape.a * shape.d),
        value_rows(shape.a * (shape.d - shape.t) * shape.r), made(shape.d - shape.t),
        query_inputs{.row = shape.p == 0 ? shape.h : shape.z()}, latents{.row = shape.z()}, qkv{.row = shape.width()} {}
};

// Each thread copies one rotated element of a head of keys.
template <class T>
struct CopyRotated {
  LatentShape shape;
  const T* normed;
  T* qkv;

  __device__ void operator()(int64_t at) const {
    const int64_t token = at / (shape.a * shape.t), head = at / shape.t % shape.a, i = at % shape.t;
    qkv[token * shape.width() + (shape.a + head) * shape.d + i] = normed[token * shape.z() + shape.p + shape.r + i];
  }
};

// Each thread sums the gradient of one rotated latent over the heads.
template <class T>
struct SumRotated {
  LatentShape shape;
  const T* dqkv;
  T* dnormed;

  __device__ void operator()(int64_t at) const {
    const int64_t token = at / shape.t, i = at % shape.t;
    const T* const dkeys = dqkv + token * shape.width() + shape.a * shape.d + i;
    float sum = 0;
    for (int64_t head = 0; head < shape.a; ++head) sum += dkeys[head * shape.d];
    dnormed[token * shape.z() + shape.p + shape.r + i] = sum;
  }
};

// Rounds the sums (n, r) and stores them in their columns of the gradient.
template <class T>
struct StoreLatents {
  LatentShape shape;
  const float* sums;
  T* dnormed;

  __device__ void operator()(int64_t at) const { dnormed[at / shape.r * shape.z() + shape.p + at % shape.r] = sums[at]; }
};

}  // namespace

template <class T>
void CudaOps<T>::LatentHeadsForward(const LatentShape& shape, const T* normed, const T* x, const T* w_query,
                                    const T* w_key_value, T* qkv) {
  const Places at(shape);
  const T* const latents = normed + shape.p;
  ProductShape product{.b = Transpose::kYes,
                       .m = shape.n,
                       .n = shape.a * shape.d,
                       .k = shape.query_inputs(),
                       .of_a = at.query_inputs,
                       .of_c = at.qkv};
  gemm_.Multiply(product, shape.p == 0 ? x : normed, w_query, ProductInto::kOverwrite, kNoBias<const T>, qkv);
  product = {.b = Transpose::kYes, .m = shape.n, .n = at.made, .k = shape.r, .batch = shape.a};
  product.of_a = {.row = shape.z(), .matrix = 0};
  product.of_c = {.row = shape.width(), .matrix = shape.d};
  gemm_.Multiply(product, latents, w_key_value, ProductInto::kOverwrite, kNoBias<const T>, qkv + at.made_keys);
  product = {.b = Transpose::kYes, .m = shape.n, .n = shape.a * shape.e, .k = shape.r, .of_a = at.latents, .of_c = at.qkv};
  gemm_.Multiply(product, latents, w_key_value + at.value_rows, ProductInto::kOverwrite, kNoBias<const T>, qkv + at.values);
  ForEach(this->stream_, "rotated keys", shape.n * shape.a * shape.t, CopyRotated<T>{shape, normed, qkv});
}

template <class T>
void CudaOps<T>::LatentHeadsBackward(const LatentShape& shape, const T* dqkv, const T* w_query, const T* w_key_value,
                                     float* workspace, T* dnormed, T* dx) {
  const Places at(shape);
  gemm_.Multiply({.m = shape.n, .n = shape.query_inputs(), .k = shape.a * shape.d, .of_a = at.qkv, .of_c = at.query_inputs},
                 dqkv, w_query, ProductInto::kOverwrite, kNoBias<const T>, shape.p == 0 ? dx : dnormed);
  // fp32 gradients are summed where they are, others in the workspace.
  constexpr bool kInPlace = std::is_same_v<T, float>;
  float* const sums = kInPlace ? reinterpret_cast<float*>(dnormed) + shape.p : workspace;
  const Steps of_sums{.row = kInPlace ? shape.z() : shape.r};
  gemm_.Multiply({.m = shape.n, .n = shape.r, .k = shape.a * shape.e, .of_a = at.qkv, .of_c = of_sums}, dqkv + at.values,
                 w_key_value + at.value_rows, ProductInto::kOverwrite, kNoBias<const float>, sums);
  for (int64_t head = 0; head < shape.a && at.made > 0; ++head) {
    gemm_.Multiply({.m = shape.n, .n = shape.r, .k = at.made, .of_a = at.qkv, .of_c = of_sums},
                   dqkv + at.made_keys + head * shape.d, w_key_value + head * at.made * shape.r, ProductInto::kAdd,
                   kNoBias<const float>, sums);
  }
  if (!kInPlace) {
    ForEach(this->stream_, "latents' gradient", shape.n * shape.r, StoreLatents<T>{shape, workspace, dnormed});
  }
  ForEach(this->stream_, "rotated keys backward", shape.n * shape.t, SumRotated<T>{shape, dqkv, dnormed});
}

template <class T>
void CudaOps<T>::LatentHeadsWeight(const LatentShape& shape, const T* normed, const T* x, const T* dqkv, float* dw_query,
                                   float* dw_key_value) {
  const Places at(shape);
  const T* const latents = normed + shape.p;
  ProductShape product{.a = Transpose::kYes,
                       .m = shape.a * shape.d,
                       .n = shape.query_inputs(),
                       .k = shape.n,
                       .of_a = at.qkv,
                       .of_b = at.query_inputs};
  gemm_.Multiply(product, dqkv, shape.p == 0 ? x : normed, ProductInto::kAdd, kNoBias<const float>, dw_query);
  product = {.a = Transpose::kYes, .m = at.made, .n = shape.r, .k = shape.n, .batch = shape.a};
  product.of_a = {.row = shape.width(), .matrix = shape.d};
  product.of_b = {.row = shape.z(), .matrix = 0};
  gemm_.Multiply(product, dqkv + at.made_keys, latents, ProductInto::kAdd, kNoBias<const float>, dw_key_value);
  product = {.a = Transpose::kYes, .m = shape.a * shape.e, .n = shape.r, .k = shape.n, .of_a = at.qkv, .of_b = at.latents};
  gemm_.Multiply(product, dqkv + at.values, latents, ProductInto::kAdd, kNoBias<const float>, dw_key_value + at.value_rows);
}

#define LYNX_INSTANTIATE(T)                                                                                        \
  template void CudaOps<T>::LatentHeadsForward(const LatentShape&, const T*, const T*, const T*, const T*, T*);    \
  template void CudaOps<T>::LatentHeadsBackward(const LatentShape&, const T*, const T*, const T*, float*, T*, T*); \
  template void CudaOps<T>::LatentHeadsWeight(const LatentShape&, const T*, const T*, const T*, float*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
