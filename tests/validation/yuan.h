// "Accelerating the Training of Large Language Models using Efficient Activation Rematerialization and Optimal Hybrid
// Parallelism" (Yuan et al., USENIX ATC 2024): memory under offloading (figure 7), the shares offloaded and the
// throughput of searched configurations (figure 9), utilization, beside the planner's figures.
//
// Memory. A model of ours that fits every measured point: states + 1.2 GB + C (n (1 - alpha) + 4 alpha), where C is
// what one chunk keeps of a microbatch, n the chunks in flight on the first rank, and alpha the share of C on the
// host: of each chunk in flight the rest stays on the device, and the whole of four is there, on its way out or back
// in. The share is the least that fits 68.165 GB.
#ifndef LYNX_TESTS_VALIDATION_YUAN_H_
#define LYNX_TESTS_VALIDATION_YUAN_H_

#include <string>
#include <vector>

#include "planner/cost/hardware_profile.h"
#include "planner/search/step_estimate.h"
#include "tests/validation/published.h"

namespace lynx::validation {

// Bytes at the peak of the first rank: rows of figure 7 that ran.
std::vector<Comparison> OffloadedMemory(const Table& table);
// Offloaded shares of the rows of figure 9; `published` and `ours` are shares.
std::vector<Comparison> OffloadedShares(const Table& table);
// Seconds of an iteration of the rows of figure 9.
std::vector<Comparison> SearchedTimes(const Table& table, const HardwareProfile& h800);
// Tokens a second on each device of the 7B demonstration, on A800 (an A100 with slower NVLink, which these runs
// without tensor parallelism do not use) and H800.
std::vector<Comparison> DemoThroughput(const Table& table, const HardwareProfile& a100, const HardwareProfile& h800);
// MFU of the 7B demonstration from its throughput.
std::vector<Comparison> DemoUtilization(const Table& table);

// The one constant that makes SearchedTimes agree best (least squares of relative errors): the efficiency of large
// products.
struct SearchedFit {
  std::vector<Constant> constants;
  HardwareProfile profile;
};
SearchedFit FitToSearchedTimes(const Table& table, const HardwareProfile& h800);

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_YUAN_H_
