// Compares the planner with "Accelerating the Training of Large Language Models using Efficient Activation Rematerialization
// and Optimal Hybrid Parallelism" (Yuan et al., USENIX ATC 2024): memory with offloading (figure 7), the offloaded shares and
// the throughput of searched configurations (figure 9), and utilization.
//
// This formula for the memory fits every measured point: states + 1.2 GB + C (n (1 - alpha) + 4 alpha). C is the number of
// bytes that one chunk keeps of a microbatch, n is the number of chunks in flight on the first rank, and alpha is the share of
// C that is on the host. For each chunk in flight, the rest of C stays on the device. In addition, the device holds the
// offloaded share of four chunks, because these chunks are being copied to the host or back. The share is the smallest with
// which everything except the 1.2 GB fits into 68.165 GB.
#ifndef LYNX_TESTS_VALIDATION_YUAN_H_
#define LYNX_TESTS_VALIDATION_YUAN_H_

#include <string>
#include <vector>

#include "planner/cost/hardware_profile.h"
#include "planner/frameworks/step_estimate.h"
#include "tests/validation/published.h"

namespace lynx::validation {

// Compares the peak bytes of the first rank, for the rows of figure 7 that ran.
std::vector<Comparison> OffloadedMemory(const Table& table);
// Compares the offloaded shares of the rows of figure 9; `published` and `ours` are shares.
std::vector<Comparison> OffloadedShares(const Table& table);
// Compares seconds per iteration, for the rows of figure 9.
std::vector<Comparison> SearchedTimes(const Table& table, const HardwareProfile& h800);
// Compares tokens per second and device in the 7B demonstration, on A800 and H800. (An A800 is an A100 with slower NVLink.
// These runs do not use NVLink, because they have no tensor parallelism.)
std::vector<Comparison> DemoThroughput(const Table& table, const HardwareProfile& a100, const HardwareProfile& h800);
// Compares the MFU of the 7B demonstration, which is computed from its throughput.
std::vector<Comparison> DemoUtilization(const Table& table);

// The only constant that is fitted, so that SearchedTimes agrees best (least squares of relative errors): the efficiency of
// large products.
struct SearchedFit {
  std::vector<Constant> constants;
  HardwareProfile profile;
};
SearchedFit FitToSearchedTimes(const Table& table, const HardwareProfile& h800);

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_YUAN_H_
