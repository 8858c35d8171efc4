// A rank process for tests of the agent. It accepts lynx-rank's flags for measuring, but measures nothing. It answers what the
// file $LYNX_FAKE_MEASURE/mode says: ok (also if there is no such file), fail, hang, garbage, or skip (it measures no shape).
// It can use every GPU. It appends its flag and its first core to $LYNX_FAKE_MEASURE/runs.
//
// On core c an op takes 1000 * (c + 1) ns, so its times grow with the core. Its rates become smaller with the core.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "worker/contract/measurement.h"

namespace {

using namespace lynx;  // NOLINT: a test program of one file

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int Measure(const std::string& text, bool reaches_shapes, std::ostream& runs) {
  const absl::StatusOr<MeasureRequest> request = ParseMeasureRequest(text);
  if (!request.ok()) {
    std::cerr << request.status() << std::endl;
    return 1;
  }
  const int64_t slowness = request->cores.at(0) + 1;
  runs << "--measure " << request->cores.at(0) << " " << request->shapes.size() << std::endl;
  MeasureResult result{.device_kind = "cpu: fake",
                       .flops_per_second = 1'000'000'000 / slowness,
                       .bfloat16_flops_per_second = 3'000'000'000 / slowness,
                       .memory_bytes_per_second = 2'000'000'000 / slowness,
                       .op_overhead = Nanos(10 * slowness)};
  for (const LayerShape& shape : request->shapes) {
    if (!reaches_shapes) break;
    ShapeTimes times{.shape = shape, .optimizer_per_mega_parameter = Nanos(500 * slowness)};
    for (const OpInfo& op : LayerGraph::Of({}).ops()) {
      OpTimes& of_op = times.ops[static_cast<size_t>(op.op)];
      of_op = {Nanos(1000 * slowness), Nanos(2000 * slowness), Nanos(op.has_weight_pass ? 3000 * slowness : 0)};
    }
    result.measured.push_back(times);
  }
  std::cout << MeasureResultText(result) << std::endl;
  return 0;
}

int MeasureLink(const std::string& text, std::ostream& runs) {
  const absl::StatusOr<LinkRequest> request = ParseLinkRequest(text);
  if (!request.ok()) {
    std::cerr << request.status() << std::endl;
    return 1;
  }
  runs << "--measure-link " << request->cores.at(0).at(0) << " " << request->cores.at(1).at(0)
       << (request->encrypt ? " encrypted" : "") << std::endl;
  const int64_t rate = request->pacing_bytes_per_second > 0 ? request->pacing_bytes_per_second : 3'000'000'000;
  std::cout << LinkResultText(
                   {.link = {Nanos(25'000), rate}, .overlap_slowdown_permille = 1100, .communication_compute_permille = 80})
            << std::endl;
  return 0;
}

int MeasureGpuLinks(const std::string& text, std::ostream& runs) {
  const absl::StatusOr<GpuLinksRequest> request = ParseGpuLinksRequest(text);
  if (!request.ok()) {
    std::cerr << request.status() << std::endl;
    return 1;
  }
  runs << "--measure-gpu-links";
  for (const std::string& uuid : request->device_uuids) runs << " " << uuid;
  runs << std::endl;
  GpuLinksResult result{.link = {Nanos(4'000), 100'000'000'000}, .nccl_memory = kMiB * 1024, .route_memory = kMiB * 172};
  for (const int32_t block : request->blocks) result.inner_links.push_back({block, {Nanos(3'000), 200'000'000'000}});
  std::cout << GpuLinksResultText(result) << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = std::getenv("LYNX_FAKE_MEASURE");
  if (argc != 3) return 1;
  std::ofstream runs(folder + "/runs", std::ios::app);
  std::string mode = ReadAll(folder + "/mode");
  if (std::string(argv[1]) == "--check-cuda") return 0;
  if (mode == "fail") {
    std::cerr << "warming up" << std::endl << "the device is on fire" << std::endl;
    return 1;
  }
  if (mode == "hang") {
    std::ofstream(folder + "/hanging", std::ios::app) << ::getpid() << std::endl;
    while (true) ::pause();
  }
  if (mode == "garbage") {
    std::cout << "{\"device_kind\": 7}" << std::endl;
    return 0;
  }
  if (std::string(argv[1]) == "--measure-link") return MeasureLink(ReadAll(argv[2]), runs);
  if (std::string(argv[1]) == "--measure-gpu-links") return MeasureGpuLinks(ReadAll(argv[2]), runs);
  return Measure(ReadAll(argv[2]), mode != "skip", runs);
}
