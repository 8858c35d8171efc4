#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <span>
#include <vector>

#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

TEST(SumOfSquares, IsSummedInDouble) {
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  constexpr int64_t kCount = 100003;
  const float* x = memory.Random(kCount, 1);
  long double want = 0;
  for (int64_t i = 0; i < kCount; ++i) want += static_cast<long double>(x[i]) * x[i];
  double* const sum = memory.Double(0);
  const std::vector<std::span<const float>> tensors{{x, kCount}};
  backend->SumOfSquares(tensors, sum);
  const double once = *sum;
  EXPECT_NEAR(once, static_cast<double>(want), 1e-11 * static_cast<double>(want));
  backend->SumOfSquares({}, sum);
  backend->SumOfSquares(std::vector<std::span<const float>>{{x, 0}}, sum);
  EXPECT_EQ(*sum, once);
  backend->SumOfSquares(tensors, sum);
  EXPECT_EQ(*sum, once + once) << "it adds";
}

// The list has more tensors than one kernel takes, and some of their sizes are close to the size of a kernel's chunks.
constexpr int64_t kSizes[] = {1, 4095, 0, 4096, 4097, 7, 8200, 3};
constexpr int64_t kTensors = 70;

int64_t SizeOf(int64_t tensor) { return kSizes[tensor % std::size(kSizes)]; }

TEST(SumOfSquares, AddsUpManyTensors) {
  const std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  std::vector<std::span<const float>> tensors;
  long double want = 0;
  for (int64_t i = 0; i < kTensors; ++i) {
    const float* const x = memory.Random(SizeOf(i), static_cast<uint64_t>(i));
    tensors.emplace_back(x, static_cast<size_t>(SizeOf(i)));
    for (int64_t j = 0; j < SizeOf(i); ++j) want += static_cast<long double>(x[j]) * x[j];
  }
  double* const sum = memory.Double(2);
  backend->SumOfSquares(tensors, sum);
  EXPECT_NEAR(*sum - 2, static_cast<double>(want), 1e-11 * static_cast<double>(want));
}

struct Updated {
  std::vector<float> w, m, v;
  std::vector<float> rounded;  // empty if no op reads the rounded weights
  bool operator==(const Updated&) const = default;
};

TEST(AdamW, UpdatesEachOfManyTensorsAsIfItWereAlone) {
  const std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  const AdamWArgs args{
      .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = 3, .gradient_scale = 0.5};
  const auto make = [](TestMemory& memory, int64_t i) {
    const int64_t count = SizeOf(i);
    const auto seed = static_cast<uint64_t>(4 * i);
    return AdamWTensor{.count = count,
                       .gradient = memory.Random(count, seed),
                       .w = memory.Random(count, seed + 1),
                       .m = memory.Random(count, seed + 2),
                       .v = memory.Constant(count, 0.25f),
                       .rounded = i % 3 == 0 ? memory.OutputBfloat16(count) : nullptr,
                       .decays = i % 2 == 0};
  };
  const auto take = [](const AdamWTensor& tensor) {
    const auto floats = [&](const float* x) { return std::vector<float>(x, x + tensor.count); };
    Updated updated{floats(tensor.w), floats(tensor.m), floats(tensor.v), {}};
    if (tensor.rounded != nullptr) updated.rounded.assign(tensor.rounded, tensor.rounded + tensor.count);
    return updated;
  };
  std::vector<AdamWTensor> together;
  for (int64_t i = 0; i < kTensors; ++i) together.push_back(make(memory, i));
  backend->AdamW(args, together);
  ASSERT_TRUE(backend->Finish().ok());
  for (int64_t i = 0; i < kTensors; ++i) {
    TestMemory apart;
    const AdamWTensor alone = make(apart, i);
    backend->AdamW(args, {&alone, 1});
    ASSERT_TRUE(backend->Finish().ok());
    const Updated got = take(together[static_cast<size_t>(i)]);
    EXPECT_TRUE(got == take(alone)) << "tensor " << i;
    for (size_t j = 0; j < got.rounded.size(); ++j) EXPECT_EQ(got.rounded[j], static_cast<float>(Bfloat16(got.w[j])));
  }
  memory.ExpectGuardsIntact();
}

TEST(AdamW, FollowsTheReferenceOverManySteps) {
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  constexpr int64_t kCount = 37;
  float* w = memory.Random(kCount, 1);
  float* m = memory.Constant(kCount, 0);
  float* v = memory.Constant(kCount, 0);
  std::vector<double> w_d = ToDouble(w, kCount), m_d(kCount), v_d(kCount);
  AdamWArgs args{.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-2, .weight_decay = 0.1, .step = 0, .gradient_scale = 0.5};
  for (args.step = 1; args.step <= 50; ++args.step) {
    const float* gradient = memory.Random(kCount, static_cast<uint64_t>(100 + args.step));
    const AdamWTensor tensor{.count = kCount, .gradient = gradient, .w = w, .m = m, .v = v, .decays = true};
    backend->AdamW(args, {&tensor, 1});
    for (int64_t i = 0; i < kCount; ++i) {
      const double g = args.gradient_scale * gradient[i];
      m_d[i] = args.beta1 * m_d[i] + (1 - args.beta1) * g;
      v_d[i] = args.beta2 * v_d[i] + (1 - args.beta2) * g * g;
      const double m_hat = m_d[i] / (1 - std::pow(args.beta1, args.step));
      const double v_hat = v_d[i] / (1 - std::pow(args.beta2, args.step));
      w_d[i] -= args.lr * (m_hat / (std::sqrt(v_hat) + args.eps) + args.weight_decay * w_d[i]);
    }
  }
  ExpectClose(w, w_d, 2e-6, "w");
  ExpectClose(m, m_d, 2e-6, "m");
  ExpectClose(v, v_d, 2e-6, "v");
  memory.ExpectGuardsIntact();
}

}  // namespace
}  // namespace lynx::worker
