// Attribution: decides what caused a rank's failure, from the facts about this failure and earlier ones. docs/failures.md has
// the table. Pure; thread-safe.
#ifndef LYNX_SERVER_HEALTH_ATTRIBUTION_H_
#define LYNX_SERVER_HEALTH_ATTRIBUTION_H_

#include <cstdint>
#include <deque>
#include <string>

#include "common/fault_cause.h"
#include "common/ids.h"
#include "common/units.h"

namespace lynx::server {

enum class Attribution : uint8_t { kUnknown, kMemory, kData, kNode, kCode, kJob };
// The name in texts: "unknown", "memory", "data", "node", "code" or "the job".
const char* AttributionName(Attribution attribution);

// Facts about the failure of one rank of a job. If several ranks failed, it is the rank whose failure explains the others.
struct RankFailureFacts {
  JobId job;
  NodeId node;
  FaultCause cause = FaultCause::kUnknown;
  int32_t exit_code = 0;   // 128 + signal if a signal ended the rank; 0: its exit was not seen
  bool own_words = false;  // the rank reported the reason itself
  int64_t step = 0;        // the step that ran at the failure; -1: training had not begun
  bool node_gone = false;  // the process was lost with its machine or with its daemon's records
  std::string condition;   // what the node's agent reports about the device; empty: it reports nothing
  Nanos at;                // monotonic time
};

struct Attributed {
  Attribution to = Attribution::kUnknown;
  std::string why;  // the reason as a part of a sentence; empty if the cause is unknown
  // True if a new attempt would fail again: the code has failed like this before, or the data contain a token that no run can
  // process.
  bool again = false;
};

// Earlier failures count in an attribution for this long.
inline constexpr Nanos kFaultsCountFor{3'600'000'000'000};
// A node is blamed when the failures on it reach one of these numbers. kSameNodeFaults: failures of one job on the node, if the
// job has ranks on other nodes too and none of them failed. kManyJobsFaults: different jobs with failures on the node.
inline constexpr int kSameNodeFaults = 3, kManyJobsFaults = 2;

// `before`: earlier failures of all jobs, in any order. `spans_nodes`: the job has ranks on other nodes too.
Attributed Attribute(const RankFailureFacts& failure, const std::deque<RankFailureFacts>& before, bool spans_nodes);

}  // namespace lynx::server

#endif  // LYNX_SERVER_HEALTH_ATTRIBUTION_H_
