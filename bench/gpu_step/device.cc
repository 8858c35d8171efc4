#include "bench/gpu_step/device.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "agent/gpu_probe.h"
#include "common/status.h"

namespace lynx::bench {
namespace {

// The driver is asked at these intervals. They are so long that its answers do not slow the training. A rank allocates all its
// memory before its first step.
constexpr std::chrono::milliseconds kBetweenLooks{500};

struct SheetRow {
  const char* part;  // part of the name that the driver gives to the device
  double teraflops;
  const char* source;
};
// The first row whose text is part of the device's name is used. Rates that a data sheet states with sparsity are halved here.
constexpr SheetRow kSheet[] = {
    {"H100 PCIe", 756, "NVIDIA H100 data sheet, PCIe"},
    {"H100 NVL", 835, "NVIDIA H100 data sheet, NVL"},
    {"H100", 989, "NVIDIA H100 data sheet, SXM"},
    {"H200 NVL", 835, "NVIDIA H200 data sheet, NVL"},
    {"H200", 989, "NVIDIA H200 data sheet, SXM"},
    {"A100", 312, "NVIDIA A100 data sheet"},
    {"L40S", 362, "NVIDIA L40S data sheet"},
};

}  // namespace

absl::StatusOr<BenchDevice> FindDevice(const std::string& name, Bytes memory, const std::string& rank_binary) {
  BenchDevice found;
  if (name == "cpu") {
    LYNX_ASSIGN_OR_RETURN(std::vector<agent::NodeDevice> devices,
                          agent::CpuProbe({.devices = 1, .memory_per_device = memory}).Find());
    found.device = std::move(devices.front());
    return found;
  }
  agent::GpuProbeOptions options{.devices = 1, .memory_per_device = memory, .rank_binary = rank_binary};
  absl::string_view rest = name;
  int32_t index = 0;
  if (absl::ConsumePrefix(&rest, "cuda:") && absl::SimpleAtoi(rest, &index) && index >= 0) {
    options.gpus = {index};
  } else if (name != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat("--device '", name, "' is not cpu, cuda or cuda:N"));
  }
  LYNX_ASSIGN_OR_RETURN(found.nvml, agent::Nvml::Open());
  if (index >= found.nvml->count()) {
    return absl::NotFoundError(
        absl::StrCat("--device ", name, ": this machine's NVIDIA driver has ", found.nvml->count(), " GPUs, numbered from 0"));
  }
  LYNX_ASSIGN_OR_RETURN(std::vector<agent::NodeDevice> devices, agent::GpuProbe(options, *found.nvml).Find());
  found.device = std::move(devices.front());
  found.driver = found.nvml->driver_version();
  return found;
}

std::optional<StatedPeak> PeakOf(const std::string& model) {
  const auto row =
      std::find_if(std::begin(kSheet), std::end(kSheet), [&](const SheetRow& r) { return absl::StrContains(model, r.part); });
  if (row == std::end(kSheet)) return std::nullopt;
  return StatedPeak{row->teraflops, row->source};
}

MemoryWatch::MemoryWatch(const BenchDevice& device) : device_(device) {
  if (device.nvml == nullptr) return;
  before_ = Used();
  thread_ = std::thread([this] {
    pollfd ends{ends_.fd(), POLLIN, 0};
    do {
      peak_ = std::max<int64_t>(peak_, Used().value_or(0));
    } while (::poll(&ends, 1, static_cast<int>(kBetweenLooks.count())) == 0);
  });
}

MemoryWatch::~MemoryWatch() {
  ends_.Raise();
  if (thread_.joinable()) thread_.join();
}

std::optional<Bytes> MemoryWatch::Peak() const {
  if (!before_ || peak_ == 0) return std::nullopt;
  return Bytes(std::max<int64_t>(0, peak_ - *before_));
}

std::optional<int64_t> MemoryWatch::Used() const {
  const std::optional<Bytes> used = device_.nvml->Read(device_.device.index).memory_used;
  return used ? std::optional(used->value) : std::nullopt;
}

}  // namespace lynx::bench
