#include "agent/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace lynx::agent {
namespace {

using nvml::kSuccess;

// Calls an NVML function that fills one number. nullopt: the library lacks the function, or the call failed.
template <class Value, class Function, class... Arguments>
std::optional<Value> Ask(Function function, Arguments... arguments) {
  Value value{};
  if (function == nullptr || function(arguments..., &value) != kSuccess) return std::nullopt;
  return value;
}

template <class To, class From>
std::optional<To> As(const std::optional<From>& value) {
  return value.has_value() ? std::optional<To>(static_cast<To>(*value)) : std::nullopt;
}

}  // namespace

void Nvml::CloseLibrary::operator()(void* library) const { ::dlclose(library); }

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library) {
  std::unique_ptr<Nvml> opened(new Nvml());
  opened->library_.reset(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (opened->library_ == nullptr) {
    return absl::NotFoundError(absl::StrCat("no NVIDIA driver: ", std::string(::dlerror())));
  }
  LYNX_RETURN_IF_ERROR(opened->Resolve(library));
  LYNX_RETURN_IF_ERROR(opened->Start(library));
  opened->ListenForXids();
  return opened;
}

absl::Status Nvml::Resolve(const std::string& library) {
  std::string missing;
  const auto find = [&](const char* symbol, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library_.get(), symbol));
    return function != nullptr;
  };
  const auto need = [&](const char* symbol, auto& function) {
    if (!find(symbol, function) && missing.empty()) missing = symbol;
  };
  nvml::Functions& f = functions_;
  need("nvmlInit_v2", f.Init);
  need("nvmlShutdown", f.Shutdown);
  need("nvmlErrorString", f.ErrorString);
  need("nvmlSystemGetDriverVersion", f.SystemGetDriverVersion);
  need("nvmlDeviceGetCount_v2", f.DeviceGetCount);
  need("nvmlDeviceGetHandleByIndex_v2", f.DeviceGetHandleByIndex);
  need("nvmlDeviceGetName", f.DeviceGetName);
  need("nvmlDeviceGetUUID", f.DeviceGetUUID);
  need("nvmlDeviceGetMemoryInfo", f.DeviceGetMemoryInfo);
  need("nvmlDeviceGetPciInfo_v3", f.DeviceGetPciInfo);
  need("nvmlDeviceGetCudaComputeCapability", f.DeviceGetCudaComputeCapability);
  need("nvmlDeviceGetMaxClockInfo", f.DeviceGetMaxClockInfo);
  need("nvmlDeviceGetClockInfo", f.DeviceGetClockInfo);
  need("nvmlDeviceGetUtilizationRates", f.DeviceGetUtilizationRates);
  need("nvmlEventSetCreate", f.EventSetCreate);
  need("nvmlEventSetFree", f.EventSetFree);
  need("nvmlDeviceRegisterEvents", f.DeviceRegisterEvents);
  need("nvmlEventSetWait_v2", f.EventSetWait);
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(library, " has no ", missing, ": the NVIDIA driver is too old; install 470 or newer"));
  }
  find("nvmlDeviceGetMigMode", f.DeviceGetMigMode);
  find("nvmlDeviceGetTemperature", f.DeviceGetTemperature);
  find("nvmlDeviceGetPowerUsage", f.DeviceGetPowerUsage);
  find("nvmlDeviceGetTotalEccErrors", f.DeviceGetTotalEccErrors);
  find("nvmlDeviceGetCurrentClocksThrottleReasons", f.DeviceGetCurrentClocksThrottleReasons);
  find("nvmlDeviceGetCurrPcieLinkGeneration", f.DeviceGetCurrPcieLinkGeneration);
  find("nvmlDeviceGetCurrPcieLinkWidth", f.DeviceGetCurrPcieLinkWidth);
  find("nvmlDeviceGetTopologyCommonAncestor", f.DeviceGetTopologyCommonAncestor);
  find("nvmlDeviceGetNvLinkState", f.DeviceGetNvLinkState);
  find("nvmlDeviceGetNvLinkRemotePciInfo_v2", f.DeviceGetNvLinkRemotePciInfo);
  find("nvmlDeviceGetNvLinkRemoteDeviceType", f.DeviceGetNvLinkRemoteDeviceType);
  return absl::OkStatus();
}

absl::Status Nvml::Start(const std::string& library) {
  if (const nvml::Return code = functions_.Init(); code != kSuccess) {
    std::string text = absl::StrCat(library, ": nvmlInit_v2: ", ErrorText(code));
    if (code == nvml::kDriverNotLoaded) absl::StrAppend(&text, "; load the NVIDIA kernel module");
    if (code == nvml::kLibraryVersionMismatch) {
      absl::StrAppend(&text, "; the driver was updated but not reloaded: restart the machine");
    }
    return absl::FailedPreconditionError(text);
  }
  initialized_ = true;
  std::array<char, nvml::kTextBytes> version{};
  if (functions_.SystemGetDriverVersion(version.data(), version.size()) == kSuccess) driver_version_ = version.data();
  unsigned count = 0;
  if (const nvml::Return code = functions_.DeviceGetCount(&count); code != kSuccess) {
    return absl::FailedPreconditionError(absl::StrCat(library, ": nvmlDeviceGetCount_v2: ", ErrorText(code)));
  }
  for (unsigned index = 0; index < count; ++index) {
    nvml::Device device = nullptr;
    const nvml::Return code = functions_.DeviceGetHandleByIndex(index, &device);
    devices_.push_back(code == kSuccess ? device : nullptr);
    device_failures_.push_back(code == kSuccess ? "" : ErrorText(code));
  }
  return absl::OkStatus();
}

Nvml::~Nvml() {
  if (events_ != nullptr) functions_.EventSetFree(events_);
  if (initialized_) functions_.Shutdown();
}

std::string Nvml::ErrorText(nvml::Return code) const {
  return absl::StrCat(functions_.ErrorString(code), " (NVML error ", code, ")");
}

void Nvml::ListenForXids() {
  if (functions_.EventSetCreate(&events_) != kSuccess) {
    events_ = nullptr;
    return;
  }
  bool any = false;
  for (nvml::Device device : devices_) {
    if (device != nullptr) any |= functions_.DeviceRegisterEvents(device, nvml::kEventXid, events_) == kSuccess;
  }
  if (any) return;
  functions_.EventSetFree(events_);
  events_ = nullptr;
}

std::optional<GpuXid> Nvml::AwaitXid(Nanos limit) {
  nvml::EventData event{};
  const auto milliseconds = static_cast<unsigned>(limit.value / 1'000'000);
  const nvml::Return code = events_ == nullptr ? nvml::kNotSupported : functions_.EventSetWait(events_, &event, milliseconds);
  if (code == kSuccess) {
    const auto device = std::find(devices_.begin(), devices_.end(), event.device);
    if (device == devices_.end() || event.type != nvml::kEventXid) return std::nullopt;
    return GpuXid{static_cast<int32_t>(device - devices_.begin()), static_cast<int64_t>(event.data)};
  }
  // After a timeout, EventSetWait has already waited. With any other error, such as that of a lost GPU, it returns at once, on
  // each call. Then this function sleeps, so that the caller does not loop without a pause.
  if (code != nvml::kTimeout) std::this_thread::sleep_for(std::chrono::nanoseconds(limit.value));
  return std::nullopt;
}

absl::StatusOr<GpuFacts> Nvml::Facts(int32_t index) const {
  const nvml::Device device = devices_.at(static_cast<size_t>(index));
  const auto failed = [&](const std::string& why) {
    return absl::FailedPreconditionError(absl::StrCat("GPU ", index, " does not answer: ", why));
  };
  if (device == nullptr) return failed(device_failures_.at(static_cast<size_t>(index)));
  GpuFacts facts{.index = index};
  std::array<char, nvml::kTextBytes> text{};
  const auto get_text = [&](auto function, std::string& to) {
    const nvml::Return code = function(device, text.data(), text.size());
    if (code == kSuccess) to = text.data();
    return code;
  };
  nvml::Memory memory{};
  for (const nvml::Return code :
       {get_text(functions_.DeviceGetName, facts.name), get_text(functions_.DeviceGetUUID, facts.uuid),
        functions_.DeviceGetMemoryInfo(device, &memory),
        functions_.DeviceGetCudaComputeCapability(device, &facts.compute_major, &facts.compute_minor)}) {
    if (code != kSuccess) return failed(ErrorText(code));
  }
  facts.memory = Bytes(static_cast<int64_t>(memory.total));
  facts.free_memory = Bytes(static_cast<int64_t>(memory.free));
  facts.bus = BusOf(device);
  const auto number = [](const std::optional<unsigned>& value) { return static_cast<int32_t>(value.value_or(0)); };
  facts.sm_clock_mhz = number(Ask<unsigned>(functions_.DeviceGetClockInfo, device, nvml::kClockSm));
  facts.max_sm_clock_mhz = number(Ask<unsigned>(functions_.DeviceGetMaxClockInfo, device, nvml::kClockSm));
  facts.pcie_generation = number(Ask<unsigned>(functions_.DeviceGetCurrPcieLinkGeneration, device));
  facts.pcie_width = number(Ask<unsigned>(functions_.DeviceGetCurrPcieLinkWidth, device));
  unsigned mode = 0, pending = 0;  // present and pending MIG mode; GPUs without MIG return an error
  facts.is_split = functions_.DeviceGetMigMode != nullptr && functions_.DeviceGetMigMode(device, &mode, &pending) == kSuccess &&
                   mode == nvml::kMigEnabled;
  facts.nvlinks = LinksOf(index);
  facts.pcie_neighbours = NeighboursOf(index);
  return facts;
}

std::string Nvml::BusOf(nvml::Device device) const {
  const std::optional<nvml::PciInfo> pci = Ask<nvml::PciInfo>(functions_.DeviceGetPciInfo, device);
  if (!pci.has_value()) return "";
  // NVML writes the domain with eight digits, the kernel with four.
  std::string bus = absl::AsciiStrToLower(pci->bus_id);
  if (bus.size() == 16 && bus.compare(0, 4, "0000") == 0) bus.erase(0, 4);
  return bus;
}

std::vector<std::string> Nvml::RemotesOf(int32_t index, bool& has_switch) const {
  std::vector<std::string> buses;
  const nvml::Device device = devices_.at(static_cast<size_t>(index));
  if (device == nullptr) return buses;
  for (unsigned link = 0; link < nvml::kMaxLinks; ++link) {
    if (Ask<int>(functions_.DeviceGetNvLinkState, device, link).value_or(0) != 1) continue;
    if (Ask<int>(functions_.DeviceGetNvLinkRemoteDeviceType, device, link) == nvml::kRemoteIsSwitch) {
      has_switch = true;
      continue;
    }
    const auto pci = Ask<nvml::PciInfo>(functions_.DeviceGetNvLinkRemotePciInfo, device, link);
    if (!pci.has_value()) continue;
    std::string bus = absl::AsciiStrToLower(pci->bus_id);
    if (bus.size() == 16 && bus.compare(0, 4, "0000") == 0) bus.erase(0, 4);
    buses.push_back(std::move(bus));
  }
  return buses;
}

// Two GPUs are joined if a link leads from one to the other. They are also joined if both have a link to a switch, because the
// switches of a node form one fabric.
std::vector<int32_t> Nvml::LinksOf(int32_t index) const {
  std::vector<int32_t> joined;
  bool on_switch = false;
  const std::vector<std::string> remotes = RemotesOf(index, on_switch);
  for (int32_t other = 0; other < count(); ++other) {
    const nvml::Device device = devices_.at(static_cast<size_t>(other));
    if (other == index || device == nullptr) continue;
    bool other_on_switch = false;
    if (on_switch) RemotesOf(other, other_on_switch);
    const bool direct = std::find(remotes.begin(), remotes.end(), BusOf(device)) != remotes.end();
    if (direct || other_on_switch) joined.push_back(other);
  }
  return joined;
}

std::vector<int32_t> Nvml::NeighboursOf(int32_t index) const {
  std::vector<int32_t> neighbours;
  for (int32_t other = 0; other < count(); ++other) {
    const nvml::Device device = devices_.at(static_cast<size_t>(other));
    if (other == index || device == nullptr) continue;
    const auto level = Ask<int>(functions_.DeviceGetTopologyCommonAncestor, devices_.at(static_cast<size_t>(index)), device);
    if (level.has_value() && *level <= nvml::kManySwitches) neighbours.push_back(other);
  }
  return neighbours;
}

GpuReadings Nvml::Read(int32_t index) const {
  GpuReadings readings;
  const nvml::Device device = devices_.at(static_cast<size_t>(index));
  nvml::Memory memory{};
  const nvml::Return code = device == nullptr ? nvml::kGpuIsLost : functions_.DeviceGetMemoryInfo(device, &memory);
  readings.lost = code == nvml::kGpuIsLost;
  if (readings.lost) return readings;
  if (code == kSuccess) {
    readings.memory_used = Bytes(static_cast<int64_t>(memory.used));
    readings.memory_free = Bytes(static_cast<int64_t>(memory.free));
  }
  if (const auto used = Ask<nvml::Utilization>(functions_.DeviceGetUtilizationRates, device)) {
    readings.utilization_percent = used->gpu;
    readings.memory_utilization_percent = used->memory;
  }
  const auto clock = [&](int kind) { return As<int64_t>(Ask<unsigned>(functions_.DeviceGetClockInfo, device, kind)); };
  readings.sm_clock_mhz = clock(nvml::kClockSm);
  readings.memory_clock_mhz = clock(nvml::kClockMemory);
  readings.temperature_celsius = As<int64_t>(Ask<unsigned>(functions_.DeviceGetTemperature, device, nvml::kTemperatureOfGpu));
  if (const auto milliwatts = Ask<unsigned>(functions_.DeviceGetPowerUsage, device)) {
    readings.power_watts = *milliwatts / 1000.0;
  }
  readings.uncorrected_ecc_errors =
      As<int64_t>(Ask<unsigned long long>(functions_.DeviceGetTotalEccErrors, device, nvml::kUncorrected, nvml::kSinceReboot));
  readings.throttle_reasons = As<uint64_t>(Ask<unsigned long long>(functions_.DeviceGetCurrentClocksThrottleReasons, device));
  return readings;
}

}  // namespace lynx::agent
