// Measures all-reduce as collectives_bench does, but with Gloo's ring all-reduce, for comparison.
//
//   gloo_bench [ranks [rounds]]
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <filesystem>

#include "bench/all_reduce_bench.h"

namespace lynx {
namespace {

int Main(const BenchSize& size) {
  std::string directory = std::filesystem::temp_directory_path() / "gloo_bench.XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    std::perror("mkdtemp");
    return 1;
  }
  const int result = RunRankProcesses(size.ranks, [&](int32_t rank) {
    gloo::transport::tcp::attr where;
    where.hostname = "127.0.0.1";
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(where);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size.ranks);
    gloo::rendezvous::FileStore store(directory);
    context->connectFullMesh(store, device);
    MeasureAllReduce(rank, size.rounds, [&](float* data, int64_t count) {
      gloo::AllreduceOptions options(context);
      options.setOutput(data, static_cast<size_t>(count));
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      void (*sum)(void*, const void*, const void*, size_t) = &gloo::sum<float>;
      options.setReduceFunction(sum);
      gloo::allreduce(options);
    });
  });
  std::filesystem::remove_all(directory);
  return result;
}

}  // namespace
}  // namespace lynx

int main(int argc, char** argv) { return lynx::Main(lynx::BenchSizeFromArguments(argc, argv)); }
