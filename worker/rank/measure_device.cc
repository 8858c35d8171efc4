#include "worker/rank/measure_device.h"

#include <algorithm>
#include <memory>
#include <span>

#include "common/rng.h"
#include "common/status.h"
#include "worker/backend/backend.h"
#include "worker/engine/layer_ops.h"
#include "worker/model/model_state.h"
#include "worker/rank/measure_host.h"
#include "worker/rank/pinning.h"
#include "worker/rank/stopwatch.h"

namespace lynx {
namespace {

constexpr int32_t kLayer = 0;  // the transformer layer that is measured
constexpr uint64_t kSeed = 1;
constexpr double kDropoutRate = 0.1;  // any: its time does not depend on the rate
constexpr int64_t kMegaParameters = int64_t{1} << 20;

// Small numbers of both signs, so that repeated in-place ops neither overflow nor die out soon.
template <class T>
void FillWithNoise(std::span<T> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int64_t>(Mix64(i) >> 40)) / static_cast<float>(1 << 24) - 0.5f;
  }
}

StageContext ContextOf(const LayerShape& shape) {
  StageContext context;
  context.model = {.layers = 1,
                   .hidden = shape.hidden,
                   .heads = shape.heads,
                   .ffn = shape.ffn,
                   .seq = shape.seq,
                   .vocab = shape.vocab,
                   .dropout = shape.dropout ? kDropoutRate : 0,
                   .family = shape.family,
                   .kv_heads = shape.kv_heads,
                   .attention = shape.attention,
                   .dtype = shape.dtype};
  context.layout = {.tp = shape.tp, .sequence_parallel = shape.sequence_parallel};
  context.micro_batch = shape.micro_batch;
  context.slices = {SliceOf(context.layout, 0, kLayer, kLayer + 1)};
  return context;
}

int32_t LayerOf(LayerType type) {
  switch (type) {
    case LayerType::kEmbedding:
      return kEmbeddingLayer;
    case LayerType::kHead:
      return kHeadLayer;
    case LayerType::kTransformer:
      break;
  }
  return kLayer;
}

// One shape's model of one layer on one tensor-parallel rank, with every tensor in memory at once.
class ShapeBench {
 public:
  static absl::StatusOr<ShapeTimes> Measure(const LayerShape& shape, int threads, const Stopwatch& stopwatch) {
    const std::unique_ptr<Backend> backend = MakeCpuBackend(threads);  // owns the memory, frees it at the end
    LYNX_ASSIGN_OR_RETURN(ModelState state, ModelState::Create(ContextOf(shape), 0, 0, kSeed, *backend));
    ShapeBench bench(shape, *backend, state, stopwatch);
    LYNX_RETURN_IF_ERROR(bench.AllocateTensors());
    return bench.Run();
  }

 private:
  ShapeBench(const LayerShape& shape, Backend& backend, ModelState& state, const Stopwatch& stopwatch)
      : shape_(shape),
        graph_(LayerGraph::Of(shape)),
        backend_(backend),
        state_(state),
        stopwatch_(stopwatch),
        ops_(LayerOps::Make(ContextOf(shape), 0, kSeed, 1.0 / static_cast<double>(shape.tokens()), backend, state)),
        tokens_(shape.tokens()) {
    for (size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = static_cast<int32_t>(Mix64(i) % shape.vocab);
    input_ = {.inputs = tokens_.data(), .targets = tokens_.data(), .first_sample = 0};
  }

  absl::StatusOr<void*> AllocateNoise(Tensor tensor, Bytes bytes) {
    constexpr int64_t kWord = sizeof(float);
    const Bytes words((bytes.value + kWord - 1) / kWord * kWord);
    LYNX_ASSIGN_OR_RETURN(const std::span<float> values, backend_.Allocate(words, std::string(TensorName(tensor))));
    if (shape_.dtype == DataType::kBfloat16) {
      FillWithNoise(std::span(reinterpret_cast<Bfloat16*>(values.data()), values.size() * kWord / sizeof(Bfloat16)));
    } else {
      FillWithNoise(values);
    }
    return values.data();
  }

  // Whether some op of the graph touches it.
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
    LYNX_ASSIGN_OR_RETURN(tensors_.next_x, AllocateNoise(Tensor::kX, TensorBytes(Tensor::kX, shape_)));
    return absl::OkStatus();
  }

  ShapeTimes Run() {
    ShapeTimes times;
    times.shape = shape_;
    for (const OpInfo& info : graph_.ops()) {
      const int32_t layer = LayerOf(info.layer_type);
      OpTimes& op = times.ops[static_cast<size_t>(info.op)];
      op.forward = stopwatch_.MedianOf([&] { ops_->Forward(info.op, layer, input_, tensors_); });
      op.backward = stopwatch_.MedianOf([&] { ops_->Backward(info.op, layer, input_, tensors_); });
      if (info.has_weight_pass) op.weight = stopwatch_.MedianOf([&] { ops_->Weight(info.op, layer, tensors_); });
    }
    const int64_t count = static_cast<int64_t>(state_.weights().size());
    const Nanos update = stopwatch_.MedianOf([&] { UpdateAll(count); });
    times.optimizer_per_mega_parameter = Nanos(static_cast<int64_t>(
        static_cast<double>(update.value) * kMegaParameters / static_cast<double>(std::max<int64_t>(count, 1))));
    return times;
  }

  // The squared norm and the update, as at the end of a step.
  void UpdateAll(int64_t count) {
    backend_.SumOfSquares(state_.gradients().data(), count);
    const AdamWArgs args{
        .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = 1, .gradient_scale = 1};
    backend_.AdamW(args, count, state_.gradients().data(), state_.weights().data(), state_.first_moments().data(),
                   state_.second_moments().data());
    state_.RoundWeights(backend_);
  }

  const LayerShape shape_;
  const LayerGraph& graph_;
  Backend& backend_;
  ModelState& state_;
  const Stopwatch& stopwatch_;
  const std::unique_ptr<LayerOps> ops_;
  std::vector<int32_t> tokens_;
  MicrobatchInput input_;
  TensorTable tensors_;
};

// Of a product of (512, 1024) and (1024, 1024). `ops`: of `backend`.
template <class T>
absl::StatusOr<int64_t> FlopsPerSecond(Backend& backend, LayerBackend<T>& ops, const Stopwatch& stopwatch) {
  constexpr int64_t kRows = 512, kSide = 1024;
  LYNX_ASSIGN_OR_RETURN(const std::span<float> memory,
                        backend.Allocate(Bytes((2 * kRows * kSide + kSide * kSide) * static_cast<int64_t>(sizeof(T))),
                                         "a matrix product"));
  const std::span values(reinterpret_cast<T*>(memory.data()), memory.size_bytes() / sizeof(T));
  FillWithNoise(values);
  T* const x = values.data();
  T* const y = x + kRows * kSide;
  T* const w = y + kRows * kSide;
  const Nanos time = stopwatch.MedianOf([&] { ops.LinearForward(x, w, nullptr, kRows, kSide, kSide, y); });
  return static_cast<int64_t>(2.0 * kRows * kSide * kSide / Seconds(std::max(time, Nanos(1))));
}

// Of a residual addition over tensors that no cache holds: two arrays read, one written.
absl::StatusOr<int64_t> MemoryBytesPerSecond(Backend& backend, const Stopwatch& stopwatch) {
  constexpr int64_t kTokens = 8192, kHidden = 1024;
  LYNX_ASSIGN_OR_RETURN(const std::span<float> memory,
                        backend.Allocate(Bytes((2 * kTokens * kHidden + kHidden) * 4), "a residual addition"));
  FillWithNoise(memory);
  float* const residual = memory.data();
  float* const y = residual + kTokens * kHidden;
  float* const bias = y + kTokens * kHidden;
  const Nanos time = stopwatch.MedianOf(
      [&] { backend.BiasDropoutAddForward(residual, bias, kTokens, kTokens, kHidden, DropoutKey{}, y); });
  return static_cast<int64_t>(3.0 * kTokens * kHidden * 4 / Seconds(std::max(time, Nanos(1))));
}

// Of ops too small to take time by themselves.
absl::StatusOr<Nanos> OpOverhead(Backend& backend, const Stopwatch& stopwatch) {
  constexpr int64_t kSide = 8, kCalls = 256;
  LYNX_ASSIGN_OR_RETURN(const std::span<float> memory,
                        backend.Allocate(Bytes(3 * kSide * kSide * 4), "a small product"));
  FillWithNoise(memory);
  float* const x = memory.data();
  const Nanos time = stopwatch.MedianOf([&] {
    for (int64_t i = 0; i < kCalls; ++i) {
      backend.LinearForward(x, x + kSide * kSide, nullptr, kSide, kSide, kSide, x + 2 * kSide * kSide);
    }
  });
  return time / kCalls;
}

}  // namespace

absl::StatusOr<MeasureResult> MeasureDevice(const MeasureRequest& request) {
  const int threads = std::max<int>(1, static_cast<int>(request.cores.size()));
  const Stopwatch stopwatch(request.repetitions, request.budget_seconds);
  MeasureResult result;
  result.device_kind = absl::StrCat("cpu: ", ProcessorName(), ", ", threads, threads == 1 ? " core" : " cores");
  {
    const std::unique_ptr<Backend> backend = MakeCpuBackend(threads);
    LYNX_ASSIGN_OR_RETURN(result.flops_per_second, FlopsPerSecond<float>(*backend, *backend, stopwatch));
    LYNX_ASSIGN_OR_RETURN(result.bfloat16_flops_per_second,
                          FlopsPerSecond<Bfloat16>(*backend, backend->bfloat16(), stopwatch));
    LYNX_ASSIGN_OR_RETURN(result.memory_bytes_per_second, MemoryBytesPerSecond(*backend, stopwatch));
    LYNX_ASSIGN_OR_RETURN(result.op_overhead, OpOverhead(*backend, stopwatch));
    LYNX_ASSIGN_OR_RETURN(result.host, MeasureHost(*backend, stopwatch));
  }
  for (const LayerShape& shape : request.shapes) {
    if (stopwatch.expired()) break;
    LYNX_ASSIGN_OR_RETURN(const ShapeTimes times, ShapeBench::Measure(shape, threads, stopwatch));
    result.measured.push_back(times);
  }
  return result;
}

}  // namespace lynx
