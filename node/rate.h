// Transfer rates, sizes and core lists in the form that people write on a command line. Pure functions.
#ifndef LYNX_NODE_RATE_H_
#define LYNX_NODE_RATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx {

// Bytes per second from text such as "125000000", "125MB", "1Gbit", "100Mbit": k, M, G are powers of 1000; `bit` units count
// bits, all others bytes. Empty text and "0" give 0. InvalidArgument says what is accepted.
absl::StatusOr<int64_t> ParseRate(const std::string& text);

// Bytes from text such as "8GiB", "512MiB", "64KiB", or a plain number. Empty text and "0" give 0.
absl::StatusOr<Bytes> ParseBytes(const std::string& text);

// Parses a list of cores: "0-3,6" gives {0, 1, 2, 3, 6}. The list must have at least one core, and no core twice. Cores have
// numbers from 0 to 4095.
absl::StatusOr<std::vector<int32_t>> ParseCores(const std::string& text);

}  // namespace lynx

#endif  // LYNX_NODE_RATE_H_
