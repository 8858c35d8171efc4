// The part of the binary interface of NVML that lynx-agent uses. NVML is NVIDIA's library for asking a driver about its GPUs.
// The driver comes with the library but not with its header, so this file replaces the header. The names, numbers and layouts
// are NVML's published interface and can never change (versioned symbols end in _v2, _v3).
//
// Declarations only.
#ifndef LYNX_AGENT_NVML_ABI_H_
#define LYNX_AGENT_NVML_ABI_H_

#include <cstdint>

namespace lynx::agent::nvml {

inline constexpr char kLibrary[] = "libnvidia-ml.so.1";

using Return = int;  // nvmlReturn_t
inline constexpr Return kSuccess = 0;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kDriverNotLoaded = 9;
inline constexpr Return kTimeout = 10;
inline constexpr Return kGpuIsLost = 15;
inline constexpr Return kLibraryVersionMismatch = 18;

using Device = void*;    // nvmlDevice_t
using EventSet = void*;  // nvmlEventSet_t

struct Memory {  // nvmlMemory_t, bytes
  unsigned long long total, free, used;
};
struct Utilization {  // nvmlUtilization_t, percent
  unsigned gpu, memory;
};
struct PciInfo {  // nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct EventData {  // nvmlEventData_t
  Device device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

inline constexpr unsigned kTextBytes = 96;  // size of the texts for names and UUIDs
inline constexpr unsigned kMaxLinks = 18;
inline constexpr unsigned kMigEnabled = 1;  // NVML_DEVICE_MIG_ENABLE
inline constexpr int kClockSm = 1, kClockMemory = 2;
inline constexpr int kUncorrected = 1, kSinceReboot = 0;  // a kind and a counter of ECC errors
inline constexpr int kTemperatureOfGpu = 0;
inline constexpr int kRemoteIsGpu = 0, kRemoteIsSwitch = 2;
// A level of the common ancestor of two GPUs (nvmlGpuTopologyLevel_t). At this level or below, there are only PCIe switches
// between the two GPUs, no host bridge.
inline constexpr int kManySwitches = 20;
inline constexpr unsigned long long kEventXid = 8;
// Reasons why clocks are lower than they could be.
inline constexpr unsigned long long kPowerCap = 0x4, kHardwareSlowdown = 0x8, kSoftwareThermal = 0x20, kHardwareThermal = 0x40,
                                    kPowerBrake = 0x80;

// The functions. An older driver may lack the optional functions; then their pointers are null. If a GPU does not support a
// function, the call returns an error.
struct Functions {
  Return (*Init)();
  Return (*Shutdown)();
  const char* (*ErrorString)(Return);
  Return (*SystemGetDriverVersion)(char*, unsigned);
  Return (*DeviceGetCount)(unsigned*);
  Return (*DeviceGetHandleByIndex)(unsigned, Device*);
  Return (*DeviceGetName)(Device, char*, unsigned);
  Return (*DeviceGetUUID)(Device, char*, unsigned);
  Return (*DeviceGetMemoryInfo)(Device, Memory*);
  Return (*DeviceGetPciInfo)(Device, PciInfo*);
  Return (*DeviceGetCudaComputeCapability)(Device, int*, int*);
  Return (*DeviceGetMaxClockInfo)(Device, int, unsigned*);
  Return (*DeviceGetClockInfo)(Device, int, unsigned*);
  Return (*DeviceGetUtilizationRates)(Device, Utilization*);
  Return (*EventSetCreate)(EventSet*);
  Return (*EventSetFree)(EventSet);
  Return (*DeviceRegisterEvents)(Device, unsigned long long, EventSet);
  Return (*EventSetWait)(EventSet, EventData*, unsigned);
  // Optional.
  Return (*DeviceGetMigMode)(Device, unsigned* current, unsigned* pending);
  Return (*DeviceGetTemperature)(Device, int, unsigned*);
  Return (*DeviceGetPowerUsage)(Device, unsigned*);  // milliwatts
  Return (*DeviceGetTotalEccErrors)(Device, int, int, unsigned long long*);
  Return (*DeviceGetCurrentClocksThrottleReasons)(Device, unsigned long long*);
  Return (*DeviceGetCurrPcieLinkGeneration)(Device, unsigned*);
  Return (*DeviceGetCurrPcieLinkWidth)(Device, unsigned*);
  Return (*DeviceGetTopologyCommonAncestor)(Device, Device, int*);
  Return (*DeviceGetNvLinkState)(Device, unsigned, int*);
  Return (*DeviceGetNvLinkRemotePciInfo)(Device, unsigned, PciInfo*);
  Return (*DeviceGetNvLinkRemoteDeviceType)(Device, unsigned, int*);
};

}  // namespace lynx::agent::nvml

#endif  // LYNX_AGENT_NVML_ABI_H_
