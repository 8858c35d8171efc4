// Which devices a node offers: GPUs or CPU cores, never both, because a node has one profile for all its devices.
#ifndef LYNX_AGENT_DEVICE_OFFER_H_
#define LYNX_AGENT_DEVICE_OFFER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/gpu_probe.h"
#include "agent/node_condition.h"
#include "agent/nvml.h"
#include "agent/probe.h"

namespace lynx::agent {

struct DeviceWish {
  DeviceKind kind = DeviceKind::kAny;  // kAny: GPUs if any can be used, else CPUs
  int64_t most = 0;                    // largest number of devices; 0 = all
  bool operator==(const DeviceWish&) const = default;
};

// "auto", "cpu" or "cuda", each optionally with ":N" for at most N devices. "N" means "cpu:N", "0" means "cpu".
// InvalidArgument: any other text.
absl::StatusOr<DeviceWish> ParseDeviceWish(const std::string& text);

struct DeviceOffer {
  std::vector<NodeDevice> devices;
  std::vector<NodeCondition> conditions;  // why GPUs of this node are not offered; `since` is not set
  std::unique_ptr<Nvml> nvml;             // null if the devices are CPUs
};

// Finds the devices to offer. `wish` sets `cpu.devices` and `gpu.devices`. If GPUs cannot be used, the result depends on
// `wish`. With kCuda the result is an error that says why. With kAny the result is an offer of CPUs, and a condition says why
// GPUs cannot be used. There is no such condition if the machine has no GPU. InvalidArgument: `cpu` or `gpu` name something
// that does not exist. `library`: as for Nvml::Open.
absl::StatusOr<DeviceOffer> FindOffer(const DeviceWish& wish, CpuProbeOptions cpu, GpuProbeOptions gpu,
                                      const std::string& library = nvml::kLibrary);

// One line for each device, as `lynx-agent --probe` prints them.
std::string OfferText(const std::vector<NodeDevice>& devices);

}  // namespace lynx::agent

#endif  // LYNX_AGENT_DEVICE_OFFER_H_
