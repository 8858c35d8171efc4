#include "planner/hardware_profile.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

bool IsTime(Nanos time) { return time.value >= 0 && time <= kLongestTime; }

bool AreTimes(const ShapeTimes& times) {
  return IsTime(times.optimizer_per_mega_parameter) &&
         std::all_of(times.ops.begin(), times.ops.end(), [](const OpTimes& op) {
           return IsTime(op.forward) && IsTime(op.backward) && IsTime(op.weight);
         });
}

absl::Status Unusable(const HardwareProfile& profile, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("the hardware profile of \"", profile.device_kind,
                                                 "\" is unusable: ", why, "; measure the nodes again"));
}

}  // namespace

absl::Status CheckProfile(const HardwareProfile& profile) {
  const int64_t rate = std::min({profile.flops_per_second, profile.memory_bytes_per_second,
                                 profile.intra_node.bytes_per_second, profile.inter_node.bytes_per_second});
  if (rate <= 0) {
    return Unusable(profile, absl::StrCat("rates and bandwidths must be positive, and one is ", rate));
  }
  const bool times = IsTime(profile.op_overhead) && IsTime(profile.intra_node.latency) &&
                     IsTime(profile.inter_node.latency) &&
                     std::all_of(profile.measured.begin(), profile.measured.end(), AreTimes);
  if (!times) {
    return Unusable(profile, absl::StrCat("a time in it is negative or longer than ", FormatDuration(kLongestTime)));
  }
  if (profile.overlap_slowdown_permille < 1000 || profile.overlap_slowdown_permille > 100'000) {
    return Unusable(profile, absl::StrCat("the overlap slowdown is ", profile.overlap_slowdown_permille,
                                          " permille, not within 1000 and 100000"));
  }
  if (profile.communication_compute_permille < 0 || profile.communication_compute_permille > 1000) {
    return Unusable(profile, absl::StrCat("communication takes ", profile.communication_compute_permille,
                                          " permille of the core, not 0 to 1000"));
  }
  return absl::OkStatus();
}

HardwareProfile StatedCpuProfile() {
  HardwareProfile profile;
  profile.device_kind = "cpu: stated, not measured";
  profile.flops_per_second = 40'000'000'000;
  profile.memory_bytes_per_second = 8'000'000'000;
  profile.op_overhead = Nanos(5'000);
  profile.intra_node = {Nanos(60'000), 1'500'000'000};
  profile.inter_node = {Nanos(150'000), 115'000'000};  // one gigabit a second, less framing
  profile.overlap_slowdown_permille = 1100;
  profile.communication_compute_permille = 300;
  return profile;
}

}  // namespace lynx
