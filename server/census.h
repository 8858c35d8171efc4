// Census: how many of what a controller has, for metrics. Plain data.
#ifndef LYNX_SERVER_CENSUS_H_
#define LYNX_SERVER_CENSUS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "server/job.h"

namespace lynx {

enum class NodePresence : uint8_t { kAttached, kPartial, kAbsent, kLost };
inline constexpr int kNodePresenceCount = 4;

struct Census {
  struct Devices {
    int64_t all = 0;   // of nodes that take ranks
    int64_t used = 0;  // that jobs have or are planned for
  };
  std::array<int64_t, kJobStateCount> jobs{};
  std::map<std::string, int64_t> pending;  // by kind of reason
  std::array<int64_t, kNodePresenceCount> nodes{};
  int64_t cordoned = 0;
  int64_t agents = 0, workers = 0;  // attached
  Devices cpu, cuda;
  int64_t fenced_reports = 0;  // of ranks of no live generation, since the server began
};

}  // namespace lynx

#endif  // LYNX_SERVER_CENSUS_H_
