#include "worker/backend/cpu/one_dnn_gemm.h"

#include <dnnl.hpp>
#include <map>
#include <tuple>
#include <utility>

#include "common/check.h"

namespace lynx::worker::cpu {
namespace {

using dnnl::memory;
using Type = memory::data_type;

// All values that determine a oneDNN primitive.
struct Key {
  Transpose a, b;
  int64_t m, n, k, stride_a, stride_b, stride_c;
  bool wide, adds, has_bias;
  auto operator<=>(const Key&) const = default;
};

// Returns the descriptor of op(matrix), which is (rows, columns).
memory::desc MatrixOf(int64_t rows, int64_t columns, Type type, Transpose transpose, int64_t stride) {
  return {{rows, columns}, type, transpose == Transpose::kYes ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

}  // namespace

class OneDnnGemm::Primitives {
 public:
  explicit Primitives(Type type) : type_(type), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  Type type() const { return type_; }

  // Uses the C interface, because the C++ interface allocates memory in every call.
  void Run(const Key& key, const void* a, const void* b, const void* bias, void* c) {
    Product& product = Of(key);
    // The casts are safe, because oneDNN only reads the sources.
    product.a.set_data_handle(const_cast<void*>(a), stream_);
    product.b.set_data_handle(const_cast<void*>(b), stream_);
    product.c.set_data_handle(c, stream_);
    if (bias != nullptr) product.bias.set_data_handle(const_cast<void*>(bias), stream_);
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, product.a.get()},
                                         {DNNL_ARG_WEIGHTS, product.b.get()},
                                         {DNNL_ARG_DST, product.c.get()},
                                         {DNNL_ARG_BIAS, product.bias.get()}};
    const int count = bias != nullptr ? 4 : 3;
    LYNX_CHECK(dnnl_primitive_execute(product.primitive.get(), stream_.get(), count, arguments) == dnnl_success);
    stream_.wait();
  }

 private:
  struct Product {
    memory a, b, bias, c;  // they hold the addresses of the last call
    dnnl::matmul primitive;
  };

  Product& Of(const Key& key) {
    const auto found = products_.find(key);
    if (found != products_.end()) return found->second;
    const memory::desc a = MatrixOf(key.m, key.k, type_, key.a, key.stride_a);
    const memory::desc b = MatrixOf(key.k, key.n, type_, key.b, key.stride_b);
    const memory::desc bias = MatrixOf(1, key.n, type_, Transpose::kNo, key.n);
    const memory::desc c = MatrixOf(key.m, key.n, key.wide ? Type::f32 : type_, Transpose::kNo, key.stride_c);
    dnnl::primitive_attr attributes;
    if (key.adds) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::desc desc = key.has_bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const auto nowhere = [&](const memory::desc& matrix) { return memory(matrix, engine_, DNNL_MEMORY_NONE); };
    Product product{.a = nowhere(a),
                    .b = nowhere(b),
                    .bias = nowhere(bias),
                    .c = nowhere(c),
                    .primitive = dnnl::matmul(dnnl::matmul::primitive_desc(desc, attributes, engine_))};
    return products_.emplace(key, std::move(product)).first->second;
  }

  const Type type_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<Key, Product> products_;
};

bool OneDnnGemm::IsFast() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

OneDnnGemm::OneDnnGemm(Operands operands)
    : primitives_(std::make_unique<Primitives>(operands == Operands::kBfloat16 ? Type::bf16 : Type::f32)) {}

OneDnnGemm::~OneDnnGemm() = default;

void OneDnnGemm::RunUntyped(const Request& request, MatrixView<const void> a, MatrixView<const void> b, const void* bias,
                            MatrixView<void> c, size_t element_bytes) {
  const ProductShape& shape = request.shape;
  LYNX_CHECK(element_bytes == memory::data_type_size(primitives_->type()));
  if (shape.m == 0 || shape.n == 0) return;
  const Key key{.a = shape.a,
                .b = shape.b,
                .m = shape.m,
                .n = shape.n,
                .k = shape.k,
                .stride_a = a.stride,
                .stride_b = b.stride,
                .stride_c = c.stride,
                .wide = request.wide,
                .adds = request.into == ProductInto::kAdd,
                .has_bias = bias != nullptr};
  primitives_->Run(key, a.data, b.data, bias, c.data);
}

}  // namespace lynx::worker::cpu
