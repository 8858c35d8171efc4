#include <gtest/gtest.h>

#include <cmath>

#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx {
namespace {

TEST(SumOfSquares, IsSummedInDouble) {
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  constexpr int64_t kCount = 100003;
  const float* x = memory.Random(kCount, 1);
  long double want = 0;
  for (int64_t i = 0; i < kCount; ++i) want += static_cast<long double>(x[i]) * x[i];
  double* const sum = memory.Double(0);
  backend->SumOfSquares(x, kCount, sum);
  const double once = *sum;
  EXPECT_NEAR(once, static_cast<double>(want), 1e-11 * static_cast<double>(want));
  backend->SumOfSquares(x, 0, sum);
  EXPECT_EQ(*sum, once);
  backend->SumOfSquares(x, kCount, sum);
  EXPECT_EQ(*sum, once + once) << "it adds";
}

TEST(AdamW, FollowsTheReferenceOverManySteps) {
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  constexpr int64_t kCount = 37;
  float* w = memory.Random(kCount, 1);
  float* m = memory.Constant(kCount, 0);
  float* v = memory.Constant(kCount, 0);
  std::vector<double> w_d = ToDouble(w, kCount), m_d(kCount), v_d(kCount);
  AdamWArgs args{
      .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-2, .weight_decay = 0.1, .step = 0, .gradient_scale = 0.5};
  for (args.step = 1; args.step <= 50; ++args.step) {
    const float* gradient = memory.Random(kCount, static_cast<uint64_t>(100 + args.step));
    backend->AdamW(args, kCount, gradient, w, m, v);
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
}  // namespace lynx
