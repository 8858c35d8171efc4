// Which of its devices a node offers: GPUs or CPU cores, never both, for a node has one profile of its devices' speed.
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

namespace lynx {

struct DeviceWish {
  DeviceKind kind = DeviceKind::kAny;  // kAny: GPUs where any can be used, else CPUs
  int64_t most = 0;                    // 0 = all
  bool operator==(const DeviceWish&) const = default;
};

// "auto", "cpu" or "cuda", each with ":N" for at most so many; "N": "cpu:N", "0": "cpu". InvalidArgument.
absl::StatusOr<DeviceWish> ParseDeviceWish(const std::string& text);

struct DeviceOffer {
  std::vector<NodeDevice> devices;
  std::vector<NodeCondition> conditions;  // why GPUs of this node are not among them; `since` is left open
  std::unique_ptr<Nvml> nvml;             // null where the devices are CPUs
};

// `cpu.devices` and `gpu.devices` are the wish's. Where the wish is kAny, what keeps GPUs from being used is a condition
// (nothing, where the machine has none), and the offer is of CPUs; where it is kCuda it is the error. `library`: as for
// Nvml::Open.
absl::StatusOr<DeviceOffer> FindOffer(const DeviceWish& wish, CpuProbeOptions cpu, GpuProbeOptions gpu,
                                      const std::string& library = nvml::kLibrary);

// One line for each device, as `lynx-agent --probe` prints them.
std::string OfferText(const std::vector<NodeDevice>& devices);

}  // namespace lynx

#endif  // LYNX_AGENT_DEVICE_OFFER_H_
