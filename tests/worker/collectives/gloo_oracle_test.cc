// Compares reductions with those of Gloo, an independent implementation, on the same values.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/rng.h"
#include "tests/worker/collectives/rank_threads.h"

namespace lynx::worker {
namespace {

constexpr uint64_t kSeed = 42;

std::vector<float> ValuesOf(int32_t rank, int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = Mix64(kSeed + static_cast<uint64_t>(rank) * 1'000'003 + static_cast<uint64_t>(i));
    values[i] = (static_cast<float>(bits >> 40) / (1 << 23) - 1.0f) * std::exp2(static_cast<float>(bits % 16));
  }
  return values;
}

class GlooOracleTest : public testing::TestWithParam<std::tuple<int32_t, int64_t>> {
 protected:
  // Runs `body` on every member. Each member has a Gloo context of its own.
  void OnGlooRanks(const std::function<void(int32_t, const std::shared_ptr<gloo::Context>&)>& body) {
    gloo::rendezvous::HashStore store;
    OnThreads(members_, [&](int32_t rank) {
      gloo::transport::tcp::attr where;
      where.hostname = "127.0.0.1";
      auto context = std::make_shared<gloo::rendezvous::Context>(rank, members_);
      std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(where);
      context->connectFullMesh(store, device);
      body(rank, context);
    });
  }

  const int32_t members_ = std::get<0>(GetParam());
  const int64_t count_ = std::get<1>(GetParam());
};

TEST_P(GlooOracleTest, AllReduceAgrees) {
  std::vector<std::vector<float>> expected(members_);
  OnGlooRanks([&](int32_t rank, const std::shared_ptr<gloo::Context>& context) {
    expected[rank] = ValuesOf(rank, count_);
    gloo::AllreduceOptions options(context);
    options.setOutput(expected[rank].data(), expected[rank].size());
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    void (*sum)(void*, const void*, const void*, size_t) = &gloo::sum<float>;
    options.setReduceFunction(sum);
    gloo::allreduce(options);
  });
  RunRanks(ParallelLayout{.dp = members_}, [&](int32_t rank, Communicator& communicator) {
    std::vector<float> data = ValuesOf(rank, count_);
    ASSERT_TRUE(communicator.Wait(*communicator.StartAllReduce(Group::kData, data.data(), count_)).ok());
    for (int64_t i = 0; i < count_; ++i) {
      // The order of additions differs. So an element may differ by rounding, with terms up to 2^15.
      ASSERT_NEAR(data[i], expected[rank][i], 0.02) << "rank " << rank << ", element " << i << ", seed " << kSeed;
    }
  });
}

TEST_P(GlooOracleTest, AllGatherIsEqual) {
  std::vector<std::vector<float>> expected(members_);
  OnGlooRanks([&](int32_t rank, const std::shared_ptr<gloo::Context>& context) {
    std::vector<float> own = ValuesOf(rank, count_);
    expected[rank].resize(count_ * members_);
    gloo::AllgatherOptions options(context);
    options.setInput(own.data(), own.size());
    options.setOutput(expected[rank].data(), expected[rank].size());
    gloo::allgather(options);
  });
  RunRanks(ParallelLayout{.dp = members_}, [&](int32_t rank, Communicator& communicator) {
    std::vector<float> data(count_ * members_);
    const std::vector<float> own = ValuesOf(rank, count_);
    std::copy(own.begin(), own.end(), data.begin() + rank * count_);
    ASSERT_TRUE(communicator.Wait(*communicator.StartAllGather(Group::kData, data.data(), count_)).ok());
    EXPECT_EQ(data, expected[rank]) << "rank " << rank;
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, GlooOracleTest, testing::Combine(testing::Values(2, 3, 4), testing::Values(1, 17, 100'003)));

}  // namespace
}  // namespace lynx::worker
