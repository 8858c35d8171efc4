#include "agent/device_offer.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lynx::agent {
namespace {

// Finds the node's GPUs. Fills offer.conditions whether or not it succeeds.
absl::StatusOr<std::vector<NodeDevice>> FindGpus(const GpuProbeOptions& options, const std::string& library,
                                                 DeviceOffer& offer) {
  LYNX_ASSIGN_OR_RETURN(offer.nvml, Nvml::Open(library));
  GpuProbe probe(options, *offer.nvml);
  absl::StatusOr<std::vector<NodeDevice>> devices = probe.Find();
  offer.conditions = probe.conditions();
  return devices;
}

}  // namespace

absl::StatusOr<DeviceWish> ParseDeviceWish(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string word = text.substr(0, colon);
  DeviceWish wish;
  const auto is_count = [&](const std::string& number, int64_t least) {
    return absl::SimpleAtoi(number, &wish.most) && wish.most >= least && wish.most <= kMaxDevices;
  };
  bool good = colon == std::string::npos || is_count(text.substr(colon + 1), 1);
  if (word == "auto") {
    wish.kind = DeviceKind::kAny;
  } else if (colon == std::string::npos && is_count(word, 0)) {
    wish.kind = DeviceKind::kCpu;
  } else {
    good = good && ParseEnum(word, wish.kind) && wish.kind != DeviceKind::kAny;
  }
  if (good) return wish;
  return absl::InvalidArgumentError(absl::StrCat("--devices ", text,
                                                 " is not auto, cpu or cuda, with :N for at most N of them "
                                                 "(cuda:2), or a number of CPU devices; at most ",
                                                 kMaxDevices));
}

absl::StatusOr<DeviceOffer> FindOffer(const DeviceWish& wish, CpuProbeOptions cpu, GpuProbeOptions gpu,
                                      const std::string& library) {
  cpu.devices = gpu.devices = wish.most;
  DeviceOffer offer;
  if (wish.kind != DeviceKind::kCpu) {
    absl::StatusOr<std::vector<NodeDevice>> gpus = FindGpus(gpu, library, offer);
    if (gpus.ok()) {
      offer.devices = *std::move(gpus);
      return offer;
    }
    if (wish.kind == DeviceKind::kCuda || absl::IsInvalidArgument(gpus.status())) {
      return Annotate(gpus.status(), wish.kind == DeviceKind::kCuda ? "--devices cuda" : "--devices auto");
    }
    offer.nvml.reset();
    if (!absl::IsNotFound(gpus.status()) && offer.conditions.empty()) {
      offer.conditions.push_back({.kind = "no-gpus", .message = std::string(gpus.status().message())});
    }
  }
  LYNX_ASSIGN_OR_RETURN(offer.devices, CpuProbe(cpu).Find());
  return offer;
}

std::string OfferText(const std::vector<NodeDevice>& devices) {
  std::string text;
  for (const NodeDevice& device : devices) {
    absl::StrAppend(&text, EnumName(device.kind), " ", device.index, ": ", device.model, ", ", FormatBytes(device.memory),
                    device.detail.empty() ? "" : ", ", device.detail, "\n");
  }
  return text;
}

}  // namespace lynx::agent
