// Nvml: what the NVIDIA driver says about a node's GPUs, as plain values. The library is loaded at run time, so that
// one build runs on nodes with and without a driver.
//
// Thread-safe, like NVML, except for Open. The object owns the loaded library.
#ifndef LYNX_AGENT_NVML_H_
#define LYNX_AGENT_NVML_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/nvml_abi.h"
#include "common/units.h"

namespace lynx::agent {

// Facts about a GPU. free_memory, sm_clock_mhz and the PCIe figures are those of the moment; the others do not change.
struct GpuFacts {
  int32_t index = 0;  // NVML's index: in the order of PCI buses
  std::string name;   // "NVIDIA H200"
  std::string uuid;   // "GPU-..."
  std::string bus;    // "0000:3b:00.0", as in /sys/bus/pci/devices
  Bytes memory, free_memory;
  int32_t compute_major = 0, compute_minor = 0;
  int32_t sm_clock_mhz = 0, max_sm_clock_mhz = 0;
  int32_t pcie_generation = 0, pcie_width = 0;  // 0 = not known
  std::vector<int32_t> nvlinks;                 // indices of the GPUs that NVLink connects to this one, ascending
  std::vector<int32_t> pcie_neighbours;         // indices of the GPUs that this one reaches over PCIe switches alone
  bool is_split = false;                        // true: in MIG mode, so a program gets only a part of the GPU
  bool operator==(const GpuFacts&) const = default;
};

// The readings of a GPU, which change. nullopt: the GPU does not report this reading.
struct GpuReadings {
  std::optional<int64_t> utilization_percent, memory_utilization_percent;
  std::optional<Bytes> memory_used, memory_free;
  std::optional<int64_t> sm_clock_mhz, memory_clock_mhz;
  std::optional<int64_t> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<int64_t> uncorrected_ecc_errors;  // counted since the driver was loaded
  std::optional<uint64_t> throttle_reasons;       // bits, as in nvml::kPowerCap and the other reasons
  bool lost = false;                              // the driver cannot reach the GPU any more
};

struct GpuXid {
  int32_t index = 0;
  int64_t xid = 0;
};

class Nvml {
 public:
  // Loads the library. NotFound: the library does not exist, so there is no driver. FailedPrecondition: the library lacks a
  // function, has another version than the running driver, or the driver does not answer. `library`: a path, or a name for the
  // loader.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library = nvml::kLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::string& driver_version() const { return driver_version_; }
  // The number of GPUs that the driver has, including those that do not answer.
  int32_t count() const { return static_cast<int32_t>(devices_.size()); }
  // FailedPrecondition: the GPU does not answer; the text says why.
  absl::StatusOr<GpuFacts> Facts(int32_t index) const;
  GpuReadings Read(int32_t index) const;

  // Waits at most `limit` for the next Xid of any GPU (the driver's number for an error of a GPU). nullopt: there was
  // no Xid. If the GPUs cannot report Xids, the call only waits. Call from one thread at a time.
  std::optional<GpuXid> AwaitXid(Nanos limit);

 private:
  struct CloseLibrary {
    void operator()(void* library) const;
  };

  Nvml() = default;
  absl::Status Resolve(const std::string& library);
  absl::Status Start(const std::string& library);
  void ListenForXids();
  std::string ErrorText(nvml::Return code) const;
  std::vector<int32_t> LinksOf(int32_t index) const;
  std::vector<int32_t> NeighboursOf(int32_t index) const;
  // The buses of the GPUs to which this GPU's links lead. `has_switch`: whether a link leads to a switch.
  std::vector<std::string> RemotesOf(int32_t index, bool& has_switch) const;
  std::string BusOf(nvml::Device device) const;

  std::unique_ptr<void, CloseLibrary> library_;
  nvml::Functions functions_{};
  bool initialized_ = false;
  std::string driver_version_;
  std::vector<nvml::Device> devices_;         // null: the device does not answer
  std::vector<std::string> device_failures_;  // why the device does not answer
  nvml::EventSet events_ = nullptr;           // null: no GPU can report Xids
};

}  // namespace lynx::agent

#endif  // LYNX_AGENT_NVML_H_
