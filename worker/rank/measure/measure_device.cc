#include "worker/rank/measure/measure_device.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "common/rng.h"
#include "common/status.h"
#include "worker/backend/host_view.h"
#include "worker/engine/layer_ops.h"
#include "worker/model/model_state.h"
#include "worker/rank/measure/device_timer.h"
#include "worker/rank/measure/measure_host.h"
#include "worker/rank/measure/measure_pinned.h"
#include "worker/rank/measure/stopwatch.h"
#include "worker/rank/process/pinning.h"

namespace lynx::worker {
namespace {

constexpr int32_t kLayer = 0;  // the first transformer layer
// On a CPU, kColdWeights / (bytes of a layer's fp32 weights) layers are measured in turn, but at least 1 and at most
// kMaxLayers. So a layer's weights have left the caches before they are used again, as in training (unless the model is small).
constexpr Bytes kColdWeights{int64_t{64} << 20};
constexpr int32_t kMaxLayers = 8;
constexpr int32_t kMinPasses = 2;
constexpr uint64_t kSeed = 1;
constexpr double kDropoutRate = 0.1;  // the time does not depend on the rate, so any rate will do
constexpr int64_t kMegaParameters = int64_t{1} << 20;

// Fills device memory with values of T. They are small numbers of both signs, so that ops that change them in place again and
// again neither overflow nor vanish soon.
template <class T>
void FillWithNoise(std::span<float> memory, Backend& backend) {
  HostView view(memory, backend);
  const std::span<T> values(reinterpret_cast<T*>(view.floats().data()), memory.size_bytes() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int64_t>(Mix64(i) >> 40)) / static_cast<float>(1 << 24) - 0.5f;
  }
  view.Store();
}

int32_t LayersInTurn(const LayerShape& shape, const Backend& backend) {
  if (!backend.host_addressable()) return 1;
  const int64_t weights = LayerParameters(LayerType::kTransformer, shape) * static_cast<int64_t>(sizeof(float));
  return static_cast<int32_t>(std::clamp<int64_t>(kColdWeights.value / weights, 1, kMaxLayers));
}

// A model of `layers` layers of this shape.
StageContext ContextOf(const LayerShape& shape, int32_t layers) {
  StageContext context;
  context.model = {.layers = layers,
                   .hidden = shape.hidden,
                   .heads = shape.heads,
                   .ffn = shape.ffn,
                   .seq = shape.seq,
                   .vocab = shape.vocab,
                   .dropout = shape.dropout ? kDropoutRate : 0,
                   .family = shape.family,
                   .kv_heads = shape.kv_heads,
                   .attention = shape.attention,
                   .dtype = shape.dtype,
                   .head_dim = shape.head_dim,
                   .qkv_bias = shape.qkv_bias,
                   .qk_norm = shape.qk_norm,
                   .qk_norm_whole = shape.qk_norm_whole,
                   .rotary = {.dims = shape.rotary_dims},
                   .latent = {.query_rank = shape.query_rank, .kv_rank = shape.kv_rank, .value_dim = shape.value_dim}};
  if (shape.moe()) {
    context.model.moe = {.experts = shape.experts,
                         .top_k = shape.top_k,
                         .ffn = shape.expert_ffn,
                         .capacity = shape.capacity_permille / 1000.0,
                         .dropless = shape.dropless,
                         .skew = shape.skew_permille / 1000.0,
                         .aux_loss = 0.01,
                         .shared_ffn = shape.shared_ffn,
                         .shared_gate = shape.shared_gate};  // with aux_loss, the router also counts the choices
  }
  context.layout = {.tp = shape.tp, .dp = shape.ep, .ep = shape.ep, .sequence_parallel = shape.sequence_parallel};
  context.micro_batch = shape.micro_batch;
  context.slices = {SliceOf(context.layout, 0, kLayer, kLayer + layers)};
  return context;
}

int32_t LayerOf(LayerType type) {
  switch (type) {
    case LayerType::kEmbedding: return kEmbeddingLayer;
    case LayerType::kHead: return kHeadLayer;
    case LayerType::kTransformer: break;
  }
  return kLayer;
}

// Measures the ops of one shape, on one tensor-parallel rank. All tensors of a layer are in memory at once.
class ShapeBench {
 public:
  static absl::StatusOr<ShapeTimes> Measure(const LayerShape& shape, const MakeBackend& make_backend,
                                            const Stopwatch& stopwatch) {
    LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, make_backend());
    const int32_t layers = LayersInTurn(shape, *backend);
    LYNX_ASSIGN_OR_RETURN(ModelState state, ModelState::Create(ContextOf(shape, layers), 0, 0, kSeed, *backend));
    constexpr Bytes kSums(2 * sizeof(double));
    LYNX_ASSIGN_OR_RETURN(const std::span<float> sums, backend->Allocate(kSums, "sums"));
    ShapeBench bench(shape, layers, *backend, state, stopwatch, reinterpret_cast<double*>(sums.data()));
    LYNX_RETURN_IF_ERROR(bench.AllocateTensors());
    const ShapeTimes times = bench.Run();
    LYNX_RETURN_IF_ERROR(backend->Finish());
    return times;
  }

 private:
  // `sums`: memory for the sum of the loss and the sum of squares.
  ShapeBench(const LayerShape& shape, int32_t layers, Backend& backend, ModelState& state, const Stopwatch& stopwatch,
             double* sums)
      : shape_(shape), layers_(layers), graph_(LayerGraph::Of(shape)), backend_(backend), state_(state), stopwatch_(stopwatch),
        timer_(backend, stopwatch), ops_(LayerOps::Make(ContextOf(shape, layers), 0, kSeed,
                                                        1.0 / static_cast<double>(shape.tokens()), sums, backend, state)),
        squares_(sums + 1) {}

  absl::StatusOr<void*> AllocateNoise(Tensor tensor, Bytes bytes) {
    constexpr int64_t kWord = sizeof(float);
    const Bytes words((bytes.value + kWord - 1) / kWord * kWord);
    LYNX_ASSIGN_OR_RETURN(const std::span<float> values, backend_.Allocate(words, std::string(EnumName(tensor))));
    if (shape_.dtype == DataType::kBfloat16) {
      FillWithNoise<Bfloat16>(values, backend_);
    } else {
      FillWithNoise<float>(values, backend_);
    }
    return values.data();
  }

  absl::Status AllocateTokens() {
    std::vector<int32_t> tokens(static_cast<size_t>(shape_.tokens()));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(Mix64(i) % shape_.vocab);
    const Bytes bytes(static_cast<int64_t>(tokens.size() * sizeof(int32_t)));
    LYNX_ASSIGN_OR_RETURN(const std::span<float> memory, backend_.Allocate(bytes, "tokens"));
    backend_.Copy(tokens.data(), bytes, memory.data());
    const auto* const there = reinterpret_cast<const int32_t*>(memory.data());
    input_ = {.inputs = there, .targets = there, .first_sample = 0};
    return backend_.Finish();
  }

  // True if an op of the graph uses the tensor.
  bool IsUsed(Tensor tensor) const {
    const auto has = [&](const std::vector<Tensor>& tensors) {
      return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
    };
    return std::any_of(graph_.ops().begin(), graph_.ops().end(), [&](const OpInfo& info) {
      return info.output == tensor || has(info.reads) || has(info.side_outputs) ||
             std::any_of(info.gradients.begin(), info.gradients.end(),
                         [&](const TensorUse& use) { return use.tensor == tensor; });
    });
  }

  absl::Status AllocateTensors() {
    LYNX_RETURN_IF_ERROR(AllocateTokens());
    for (int i = 0; i < kTensorCount; ++i) {
      const Tensor tensor = static_cast<Tensor>(i);
      Bytes bytes;
      if (tensor != Tensor::kWorkspace && !IsUsed(tensor)) continue;
      if (tensor == Tensor::kWorkspace) {
        for (const OpInfo& info : graph_.ops()) {
          for (Pass pass : {Pass::kForward, Pass::kBackward, Pass::kWeight}) {
            bytes = std::max(bytes, WorkspaceBytes(info.op, pass, shape_));
          }
        }
      } else {
        bytes = TensorBytes(tensor, shape_);
      }
      LYNX_ASSIGN_OR_RETURN(tensors_.at[i], AllocateNoise(tensor, bytes));
    }
    if (shape_.ep > 1) LYNX_RETURN_IF_ERROR(FillRooms());
    LYNX_ASSIGN_OR_RETURN(tensors_.next_x, AllocateNoise(Tensor::kX, TensorBytes(Tensor::kX, shape_)));
    return absl::OkStatus();
  }

  // The rows that other ranks would send: every room has its even share of rows, and the rest of it is empty.
  absl::Status FillRooms() {
    const int64_t room = shape_.expert_room(), blocks = shape_.experts;
    const int64_t filled = std::min(room, (shape_.filled_rows() + blocks - 1) / blocks);
    std::vector<float> weights(static_cast<size_t>(blocks * room), -1);
    for (int64_t block = 0; block < blocks; ++block) {
      std::fill_n(weights.begin() + block * room, filled, 1 / static_cast<float>(shape_.top_k));
    }
    backend_.Copy(weights.data(), Bytes(static_cast<int64_t>(weights.size() * sizeof(float))),
                  tensors_.at[static_cast<size_t>(Tensor::kExpertWeights)]);
    return backend_.Finish();
  }

  // An op of one layer, as in a pass over the model.
  struct OpOfLayer {
    const OpInfo* info;
    int32_t layer;
  };
  struct Samples {
    std::vector<Nanos> forward, backward, weight;
  };

  std::vector<OpOfLayer> ForwardOrder() const {
    std::vector<OpOfLayer> order;
    const auto add = [&](LayerType type, int32_t layer) {
      for (const OpInfo& info : graph_.ops()) {
        if (info.layer_type == type) order.push_back({&info, layer});
      }
    };
    add(LayerType::kEmbedding, kEmbeddingLayer);
    for (int32_t layer = kLayer; layer < kLayer + layers_; ++layer) add(LayerType::kTransformer, layer);
    add(LayerType::kHead, kHeadLayer);
    return order;
  }

  // Measures the ops in the order of a forward and a backward pass over all layers. So an op finds in the caches what it finds
  // there in training. An op that runs again and again would find all of its operands.
  void MeasureInTurn(ShapeTimes& times) {
    const std::vector<OpOfLayer> order = ForwardOrder();
    std::array<Samples, kOpCount> samples;
    const auto timed = [&](RunCounts counts, std::vector<Nanos>& to, const auto& run) {
      const Nanos begin = stopwatch_.Now();
      run();
      if (counts == RunCounts::kYes) to.push_back(stopwatch_.Now() - begin);
    };
    // Each pass measures an op once for each layer, but those of the embedding and the head only once.
    const int32_t passes = std::max(kMinPasses, (stopwatch_.repetitions() + layers_ - 1) / layers_);
    stopwatch_.Repeat(passes, [&](RunCounts counts) {
      for (const auto& [info, layer] : order) {
        Samples& of = samples[static_cast<size_t>(info->op)];
        timed(counts, of.forward, [&] { ops_->Forward(info->op, layer, input_, tensors_); });
      }
      for (auto it = order.rbegin(); it != order.rend(); ++it) {
        const auto& [info, layer] = *it;
        Samples& of = samples[static_cast<size_t>(info->op)];
        timed(counts, of.backward, [&] { ops_->Backward(info->op, layer, input_, tensors_); });
        if (info->has_weight_pass) timed(counts, of.weight, [&] { ops_->Weight(info->op, layer, tensors_); });
      }
    });
    for (const OpInfo& info : graph_.ops()) {
      const Samples& of = samples[static_cast<size_t>(info.op)];
      OpTimes& op = times.ops[static_cast<size_t>(info.op)];
      op.forward = Median(of.forward);
      op.backward = Median(of.backward);
      if (info.has_weight_pass) op.weight = Median(of.weight);
    }
  }

  // Measures each op by itself.
  void MeasureOneByOne(ShapeTimes& times) {
    for (const OpInfo& info : graph_.ops()) {
      const int32_t layer = LayerOf(info.layer_type);
      OpTimes& op = times.ops[static_cast<size_t>(info.op)];
      op.forward = timer_.MedianOf([&] { ops_->Forward(info.op, layer, input_, tensors_); });
      op.backward = timer_.MedianOf([&] { ops_->Backward(info.op, layer, input_, tensors_); });
      if (info.has_weight_pass) op.weight = timer_.MedianOf([&] { ops_->Weight(info.op, layer, tensors_); });
    }
  }

  ShapeTimes Run() {
    ShapeTimes times;
    times.shape = shape_;
    if (backend_.host_addressable()) {
      MeasureInTurn(times);
    } else {
      MeasureOneByOne(times);
    }
    const int64_t count = static_cast<int64_t>(state_.weights().size());
    const std::vector<AdamWTensor> updates = state_.Updates();
    std::vector<std::span<const float>> gradients;
    for (const AdamWTensor& update : updates) gradients.emplace_back(update.gradient, static_cast<size_t>(update.count));
    const Nanos update = timer_.MedianOf([&] { UpdateAll(gradients, updates); });
    times.optimizer_per_mega_parameter = Nanos(static_cast<int64_t>(static_cast<double>(update.value) * kMegaParameters /
                                                                    static_cast<double>(std::max<int64_t>(count, 1))));
    return times;
  }

  // Computes the squared norm and the optimizer's update, as at the end of a step.
  void UpdateAll(std::span<const std::span<const float>> gradients, std::span<const AdamWTensor> updates) {
    backend_.SumOfSquares(gradients, squares_);
    backend_.AdamW({.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = 1, .gradient_scale = 1},
                   updates);
  }

  const LayerShape shape_;
  const int32_t layers_;
  const LayerGraph& graph_;
  Backend& backend_;
  ModelState& state_;
  const Stopwatch& stopwatch_;
  const DeviceTimer timer_;
  const std::unique_ptr<LayerOps> ops_;
  double* const squares_;
  MicrobatchInput input_;
  TensorTable tensors_;
};

// The work for a rate is made larger until it keeps the device busy for this long, until it has the largest size below, or
// until the time budget is used up. On a CPU the smallest size is enough. A GPU needs a hundred times as much work; with less
// work, the result would be the rate at which work is started.
constexpr Nanos kBusyProduct{1'000'000}, kBusyAddition{250'000};
constexpr int64_t kLeastSide = 1024, kMaxSide = 8192;
constexpr int64_t kLeastTokens = 8192, kMaxTokens = 131'072;

// Returns the backend's ops for elements of type T.
LayerBackend<float>& OpsOf(Backend& backend, float) { return backend; }
LayerBackend<Bfloat16>& OpsOf(Backend& backend, Bfloat16) { return backend.bfloat16(); }

// Returns the time of a product of matrices (side / 2, side) and (side, side).
template <class T>
absl::StatusOr<Nanos> ProductTime(const MakeBackend& make_backend, int64_t side, const Stopwatch& stopwatch) {
  const int64_t rows = side / 2;
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, make_backend());
  LYNX_ASSIGN_OR_RETURN(
      const std::span<float> memory,
      backend->Allocate(Bytes((2 * rows * side + side * side) * static_cast<int64_t>(sizeof(T))), "a matrix product"));
  FillWithNoise<T>(memory, *backend);
  T* const x = reinterpret_cast<T*>(memory.data());
  T* const y = x + rows * side;
  T* const w = y + rows * side;
  LayerBackend<T>& ops = OpsOf(*backend, T());
  const Nanos time = DeviceTimer(*backend, stopwatch).MedianOf([&] { ops.LinearForward(x, w, nullptr, rows, side, side, y); });
  LYNX_RETURN_IF_ERROR(backend->Finish());
  return std::max(time, Nanos(1));
}

template <class T>
absl::StatusOr<int64_t> FlopsPerSecond(const MakeBackend& make_backend, const Stopwatch& stopwatch) {
  for (int64_t side = kLeastSide;; side *= 2) {
    LYNX_ASSIGN_OR_RETURN(const Nanos time, ProductTime<T>(make_backend, side, stopwatch));
    if (time < kBusyProduct && side < kMaxSide && !stopwatch.expired()) continue;
    const double flops = 2.0 * static_cast<double>(side / 2) * static_cast<double>(side) * static_cast<double>(side);
    return static_cast<int64_t>(flops / Seconds(time));
  }
}

// Returns the time of a residual addition.
absl::StatusOr<Nanos> AdditionTime(const MakeBackend& make_backend, int64_t tokens, int64_t hidden,
                                   const Stopwatch& stopwatch) {
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, make_backend());
  LYNX_ASSIGN_OR_RETURN(const std::span<float> memory,
                        backend->Allocate(Bytes((2 * tokens * hidden + hidden) * 4), "a residual addition"));
  FillWithNoise<float>(memory, *backend);
  float* const residual = memory.data();
  float* const y = residual + tokens * hidden;
  float* const bias = y + tokens * hidden;
  const Nanos time = DeviceTimer(*backend, stopwatch).MedianOf([&] {
    backend->BiasDropoutAddForward(residual, bias, tokens, tokens, hidden, DropoutKey{}, y);
  });
  LYNX_RETURN_IF_ERROR(backend->Finish());
  return std::max(time, Nanos(1));
}

// Returns the rate at which a residual addition reads and writes memory. It reads two arrays and writes one, and they fit into
// no cache.
absl::StatusOr<int64_t> MemoryBytesPerSecond(const MakeBackend& make_backend, const Stopwatch& stopwatch) {
  constexpr int64_t kHidden = 1024;
  for (int64_t tokens = kLeastTokens;; tokens *= 2) {
    LYNX_ASSIGN_OR_RETURN(const Nanos time, AdditionTime(make_backend, tokens, kHidden, stopwatch));
    if (time < kBusyAddition && tokens < kMaxTokens && !stopwatch.expired()) continue;
    return static_cast<int64_t>(3.0 * static_cast<double>(tokens) * kHidden * 4 / Seconds(time));
  }
}

// Returns the time of an op that is so small that its arithmetic takes almost no time.
absl::StatusOr<Nanos> OpOverhead(Backend& backend, const Stopwatch& stopwatch) {
  constexpr int64_t kSide = 8, kCalls = 256;
  LYNX_ASSIGN_OR_RETURN(const std::span<float> memory, backend.Allocate(Bytes(3 * kSide * kSide * 4), "a small product"));
  FillWithNoise<float>(memory, backend);
  float* const x = memory.data();
  const Nanos time = DeviceTimer(backend, stopwatch).MedianOf([&] {
    for (int64_t i = 0; i < kCalls; ++i) {
      backend.LinearForward(x, x + kSide * kSide, nullptr, kSide, kSide, kSide, x + 2 * kSide * kSide);
    }
  });
  LYNX_RETURN_IF_ERROR(backend.Finish());
  return time / kCalls;
}

std::string KindOf(const MeasureRequest& request, const Backend& backend) {
  if (request.device_kind == DeviceKind::kCuda) return backend.Name();
  const size_t threads = std::max<size_t>(1, request.cores.size());
  return absl::StrCat("cpu: ", ProcessorName(), ", ", threads, threads == 1 ? " core" : " cores");
}

}  // namespace

absl::StatusOr<MeasureResult> MeasureDevice(const MeasureRequest& request, const MakeBackend& make_backend) {
  // With one core, the result is processor time. So it does not include the time of other ranks that share the core and are
  // measured at the same time. The planner models the cost of sharing, because it depends on how many ranks compute at a time
  // (planner/cost/core_sharing.h).
  const bool one_core = request.device_kind == DeviceKind::kCpu && request.cores.size() == 1;
  const Stopwatch stopwatch(request.repetitions, request.budget_seconds, one_core ? Counted::kProcessor : Counted::kWall);
  MeasureResult result;
  LYNX_ASSIGN_OR_RETURN(result.flops_per_second, FlopsPerSecond<float>(make_backend, stopwatch));
  LYNX_ASSIGN_OR_RETURN(result.bfloat16_flops_per_second, FlopsPerSecond<Bfloat16>(make_backend, stopwatch));
  LYNX_ASSIGN_OR_RETURN(result.memory_bytes_per_second, MemoryBytesPerSecond(make_backend, stopwatch));
  {
    LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, make_backend());
    result.device_kind = KindOf(request, *backend);
    LYNX_ASSIGN_OR_RETURN(result.op_overhead, OpOverhead(*backend, stopwatch));
    LYNX_ASSIGN_OR_RETURN(result.host,
                          backend->host_addressable() ? MeasureHost(*backend, stopwatch) : MeasurePinned(*backend, stopwatch));
  }
  for (const LayerShape& shape : request.shapes) {
    if (stopwatch.expired()) break;
    LYNX_ASSIGN_OR_RETURN(const ShapeTimes times, ShapeBench::Measure(shape, make_backend, stopwatch));
    result.measured.push_back(times);
  }
  return result;
}

}  // namespace lynx::worker
