// libnvidia-ml.so.1 for machines without a GPU. It has NVML's functions as lynx-agent declares them, and reads its answers from
// a file, again for each answer. $LYNX_FAKE_NVML names the file. Its lines are KEY VALUE, and all of them are optional:
//
//   init CODE              what nvmlInit_v2 returns
//   gpus COUNT             the number of GPUs; the default is 0
//   gpu.I.KEY VALUE        for GPU I: handle CODE (what the lookup of its handle returns), memory BYTES, used BYTES, name TEXT,
//                          uuid TEXT, clock MHZ, max_clock MHZ, utilization PERCENT, power MILLIWATTS, pcie GENERATION,
//                          width LANES, bus TEXT, ecc COUNT, throttle BITS, lost 1, mig 1 (it is
//                          split; by default it cannot be),
//                          neighbours I,I,... (the GPUs to which PCIe switches connect it),
//                          links BUS,BUS,... (for each NVLink, the bus of the GPU at its other end, or "switch")
//   xid I NUMBER           an event for GPU I; each line gives one event, in the order of the lines
//
// If it is compiled with LYNX_OLD_NVML, it lacks a function, like the library of an old driver.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "agent/nvml_abi.h"

namespace {

using namespace lynx::agent::nvml;  // NOLINT: a stand-in of one file

std::vector<std::string> ValuesOf(const std::string& key) {
  const char* const path = std::getenv("LYNX_FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  std::vector<std::string> values;
  for (std::string line; std::getline(file, line);) {
    const size_t space = line.find(' ');
    if (space != std::string::npos && line.substr(0, space) == key) values.push_back(line.substr(space + 1));
  }
  return values;
}

std::string ValueOf(const std::string& key, const std::string& otherwise) {
  const std::vector<std::string> values = ValuesOf(key);
  return values.empty() ? otherwise : values.back();
}

unsigned IndexOf(Device device) { return static_cast<unsigned>(reinterpret_cast<uintptr_t>(device)) - 1; }

std::string TextOf(Device device, const std::string& key, const std::string& otherwise) {
  return ValueOf("gpu." + std::to_string(IndexOf(device)) + "." + key, otherwise);
}

unsigned long long NumberOf(Device device, const std::string& key, unsigned long long otherwise) {
  return std::stoull(TextOf(device, key, std::to_string(otherwise)));
}

Return CodeOf(Device device) { return NumberOf(device, "lost", 0) != 0 ? kGpuIsLost : kSuccess; }

void Fill(char* to, unsigned size, const std::string& text) {
  std::strncpy(to, text.c_str(), size - 1);
  to[size - 1] = '\0';
}

std::string BusOf(Device device) { return TextOf(device, "bus", "00000000:" + std::to_string(IndexOf(device) + 10) + ":00.0"); }

template <class Number>
Return Give(Device device, const std::string& key, unsigned long long otherwise, Number* to) {
  *to = static_cast<Number>(NumberOf(device, key, otherwise));
  return CodeOf(device);
}

std::vector<std::string> ListOf(Device device, const std::string& key) {
  std::vector<std::string> entries;
  std::istringstream text(TextOf(device, key, ""));
  for (std::string entry; std::getline(text, entry, ',');) entries.push_back(entry);
  return entries;
}

std::vector<std::string> LinksOf(Device device) { return ListOf(device, "links"); }

size_t told_events = 0;

}  // namespace

extern "C" {

Return nvmlInit_v2() { return std::stoi(ValueOf("init", "0")); }
Return nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(Return code) {
  switch (code) {
    case kDriverNotLoaded: return "Driver Not Loaded";
    case kGpuIsLost: return "GPU is lost";
    case kLibraryVersionMismatch: return "Driver/library version mismatch";
    default: return "Unknown Error";
  }
}
Return nvmlSystemGetDriverVersion(char* to, unsigned size) {
  Fill(to, size, "570.00-fake");
  return kSuccess;
}
Return nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(std::stoul(ValueOf("gpus", "0")));
  return kSuccess;
}
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  *device = reinterpret_cast<Device>(static_cast<uintptr_t>(index) + 1);
  return static_cast<Return>(NumberOf(*device, "handle", kSuccess));
}
Return nvmlDeviceGetName(Device device, char* to, unsigned size) {
  Fill(to, size, TextOf(device, "name", "NVIDIA Fake"));
  return CodeOf(device);
}
Return nvmlDeviceGetUUID(Device device, char* to, unsigned size) {
  Fill(to, size, TextOf(device, "uuid", "GPU-fake-" + std::to_string(IndexOf(device))));
  return CodeOf(device);
}
Return nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  memory->total = NumberOf(device, "memory", 16ull << 30);
  memory->used = NumberOf(device, "used", 0);
  memory->free = memory->total - memory->used;
  return CodeOf(device);
}
Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo* pci) {
  Fill(pci->bus_id, sizeof(pci->bus_id), BusOf(device));
  return CodeOf(device);
}
Return nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return CodeOf(device);
}
Return nvmlDeviceGetMigMode(Device device, unsigned* current, unsigned* pending) {
  if (TextOf(device, "mig", "").empty()) return kNotSupported;
  *pending = 0;
  return Give(device, "mig", 0, current);
}
Return nvmlDeviceGetMaxClockInfo(Device device, int, unsigned* clock) { return Give(device, "max_clock", 1980, clock); }
Return nvmlDeviceGetClockInfo(Device device, int, unsigned* clock) { return Give(device, "clock", 345, clock); }
Return nvmlDeviceGetUtilizationRates(Device device, Utilization* rates) {
  *rates = {static_cast<unsigned>(NumberOf(device, "utilization", 0)), 7};
  return CodeOf(device);
}
Return nvmlDeviceGetTemperature(Device, int, unsigned*) { return kNotSupported; }
Return nvmlDeviceGetPowerUsage(Device device, unsigned* milliwatts) { return Give(device, "power", 70'500, milliwatts); }
Return nvmlDeviceGetTotalEccErrors(Device device, int, int, unsigned long long* errors) {
  return Give(device, "ecc", 0, errors);
}
Return nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long* reasons) {
  return Give(device, "throttle", 0, reasons);
}
Return nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned* generation) { return Give(device, "pcie", 5, generation); }
Return nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned* width) { return Give(device, "width", 16, width); }
Return nvmlDeviceGetTopologyCommonAncestor(Device device, Device other, int* level) {
  constexpr int kOtherNode = 50;
  *level = kOtherNode;
  for (const std::string& entry : ListOf(device, "neighbours")) {
    if (std::stoul(entry) == IndexOf(other)) *level = kManySwitches;
  }
  return CodeOf(device);
}
Return nvmlDeviceGetNvLinkState(Device device, unsigned link, int* active) {
  *active = link < LinksOf(device).size();
  return CodeOf(device);
}
Return nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, int* type) {
  *type = LinksOf(device).at(link) == "switch" ? kRemoteIsSwitch : kRemoteIsGpu;
  return CodeOf(device);
}
Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo* pci) {
  Fill(pci->bus_id, sizeof(pci->bus_id), LinksOf(device).at(link));
  return CodeOf(device);
}
Return nvmlEventSetCreate(EventSet* set) {
  *set = &told_events;
  return kSuccess;
}
Return nvmlEventSetFree(EventSet) { return kSuccess; }
Return nvmlDeviceRegisterEvents(Device, unsigned long long types, EventSet) {
  return types == kEventXid ? kSuccess : kNotSupported;
}
#ifndef LYNX_OLD_NVML
Return nvmlEventSetWait_v2(EventSet, EventData* event, unsigned milliseconds) {
  const std::vector<std::string> xids = ValuesOf("xid");
  if (told_events >= xids.size()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return kTimeout;
  }
  std::istringstream text(xids[told_events++]);
  uintptr_t index = 0;
  *event = {};
  text >> index >> event->data;
  event->device = reinterpret_cast<Device>(index + 1);
  event->type = kEventXid;
  return kSuccess;
}
#endif

}  // extern "C"
