#include "agent/gpu_health.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lynx::agent {
namespace {

constexpr Nanos kProgramXidShown{3'600'000'000'000};
constexpr Nanos kSlowedShown{60'000'000'000};
// Xids that, according to NVIDIA's list, are caused by the program or by the end of the program.
constexpr std::array<int64_t, 6> kXidsOfPrograms = {13, 31, 43, 45, 68, 109};

}  // namespace

bool IsXidOfProgram(int64_t xid) {
  return std::find(kXidsOfPrograms.begin(), kXidsOfPrograms.end(), xid) != kXidsOfPrograms.end();
}

std::string XidName(int64_t xid) {
  switch (xid) {
    case 13: return "an exception of the graphics engine";
    case 31: return "a page fault";
    case 43: return "the GPU stopped processing";
    case 45: return "preemptive cleanup";
    case 48: return "a double-bit ECC error";
    case 63: return "a row of memory was remapped";
    case 64: return "a row of memory could not be remapped";
    case 74: return "an NVLink error";
    case 79: return "fallen off the bus";
    case 94: return "a contained ECC error";
    case 95: return "an uncontained ECC error";
    case 119:
    case 120: return "the GPU's system processor does not answer";
    default: return "";
  }
}

std::string SlowdownText(uint64_t throttle_reasons) {
  if (throttle_reasons & nvml::kHardwareThermal) return "it is too hot, and the hardware slows it down";
  if (throttle_reasons & nvml::kSoftwareThermal) return "it is too hot, and the driver slows it down";
  if (throttle_reasons & nvml::kPowerBrake) return "the machine's power supply slows it down";
  if (throttle_reasons & nvml::kHardwareSlowdown) return "the hardware slows it down, for heat or power";
  return "";
}

void GpuHealth::Note(const std::string& kind, bool withdrawn, const std::string& message, Nanos now,
                     std::optional<Nanos> shown_for) {
  const auto [at, is_new] = noted_.try_emplace(kind);
  Noted& noted = at->second;
  const bool over = noted.until.has_value() && now > *noted.until;
  if (!is_new && noted.condition.withdrawn && !withdrawn) return;
  const Nanos since = is_new || over ? now : noted.condition.since;
  noted.condition = {.kind = kind, .device = uuid_, .withdrawn = withdrawn, .message = message, .since = since};
  noted.until = shown_for.has_value() ? std::optional(now + *shown_for) : std::nullopt;
}

void GpuHealth::NoteXid(int64_t xid, Nanos now) {
  const std::string name = XidName(xid);
  const std::string what = absl::StrCat(label_, " had Xid ", xid, name.empty() ? "" : ", ", name);
  if (IsXidOfProgram(xid)) {
    Note("xid", false, absl::StrCat(what, ": an error of the program that ran on it"), now, kProgramXidShown);
  } else {
    Note("xid", true, absl::StrCat(what, ": it is not offered any more; reset or repair it, then restart lynx-agent"), now,
         std::nullopt);
  }
}

void GpuHealth::NoteReadings(const GpuReadings& readings, Nanos now) {
  if (readings.lost) {
    Note("gpu-lost", true, absl::StrCat(label_, " does not answer the driver any more and is not offered; restart the machine"),
         now, std::nullopt);
    return;
  }
  if (const int64_t errors = readings.uncorrected_ecc_errors.value_or(0); errors > 0) {
    Note("ecc", false,
         absl::StrCat(label_, " had ", errors, errors == 1 ? " uncorrected error" : " uncorrected errors",
                      " of its memory since the driver was loaded"),
         now, std::nullopt);
  }
  if (const std::string why = SlowdownText(readings.throttle_reasons.value_or(0)); !why.empty()) {
    Note("slowed", false, absl::StrCat(label_, " runs below its clock: ", why), now, kSlowedShown);
  }
}

std::vector<NodeCondition> GpuHealth::Conditions(Nanos now) const {
  std::vector<NodeCondition> conditions;
  for (const auto& [kind, noted] : noted_) {
    if (!noted.until.has_value() || now <= *noted.until) conditions.push_back(noted.condition);
  }
  return conditions;
}

}  // namespace lynx::agent
