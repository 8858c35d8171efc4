#include "planner/hardware_profile.h"

namespace lynx {

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
