// Attribution: whose fault a rank's failure was, by what is known of it and of those before it. docs/failures.md has the table.
// Pure; thread-safe.
#ifndef LYNX_SERVER_HEALTH_ATTRIBUTION_H_
#define LYNX_SERVER_HEALTH_ATTRIBUTION_H_

#include <cstdint>
#include <deque>
#include <string>

#include "common/fault_cause.h"
#include "common/ids.h"
#include "common/units.h"

namespace lynx {

enum class Attribution : uint8_t { kUnknown, kMemory, kData, kNode, kCode, kJob };
const char* AttributionName(Attribution attribution);  // "unknown", "memory", "data", "node", "code", "the job"

// One rank's failure: of the rank that explains those of its peers.
struct RankFailureFacts {
  JobId job;
  NodeId node;
  FaultCause cause = FaultCause::kUnknown;
  int32_t exit_code = 0;   // 128 + signal; 0: its end was not seen
  bool own_words = false;  // it said itself why it failed
  int64_t step = 0;        // that it was in; -1: it had not begun to train
  bool node_gone = false;  // the process went with its machine or its daemon's records
  std::string condition;   // what the node's agent says of its device; empty: nothing
  Nanos at;                // monotonic
};

struct Attributed {
  Attribution to = Attribution::kUnknown;
  std::string why;     // a clause; empty where unknown
  bool again = false;  // of code that has failed so before, and of a token that no run gets past: it would fail again
};

// Failures count as long as this.
inline constexpr Nanos kFaultsCountFor{3'600'000'000'000};
// So many on one node, and none elsewhere, are that node's fault: of one job that has ranks on other nodes too; of different
// jobs.
inline constexpr int kSameNodeFaults = 3, kManyJobsFaults = 2;

// `before`: earlier ones of all jobs, in any order. `spans_nodes`: the job has ranks on other nodes too.
Attributed Attribute(const RankFailureFacts& failure, const std::deque<RankFailureFacts>& before, bool spans_nodes);

}  // namespace lynx

#endif  // LYNX_SERVER_HEALTH_ATTRIBUTION_H_
