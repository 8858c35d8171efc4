// The check of nodes before a generation: each rank checks its device (check_device.h), and then the links between the ranks
// that talk to each other while they train, two at a time: a buffer of known words goes both ways at once over connections made
// for it, every word is compared, and the time is compared with that of the other links of its kind (within a host, between
// hosts). A link that seems slow is tried again and again before it counts as that, since any rank may be kept from running for
// a moment.
//
//   device -> all tell each other -> pairs, round after round -> all tell each other -> slow ones again, some times -> the
//   verdict
//
// Collective: before anything else of the generation is made. Owned by the rank's compute thread.
#ifndef LYNX_WORKER_RANK_CHECK_NODE_CHECK_H_
#define LYNX_WORKER_RANK_CHECK_NODE_CHECK_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "worker/backend/backend.h"
#include "worker/collectives/communicator.h"
#include "worker/contract/rank_config.h"
#include "worker/contract/rank_report.h"

namespace lynx {

// Each way.
inline constexpr Bytes kCheckedLinkBytes{1 << 20};
// For a peer that moves no byte: so long in the first round, once more for every round, since it may wait for another that is
// silent.
inline constexpr Nanos kCheckPatience{10'000'000'000};

struct NodeCheckOptions {
  // Connects a pair. ConnectTcp, unless a test says otherwise.
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(const CommunicatorOptions&)> connect = ConnectTcp;
  Nanos patience = kCheckPatience;
};

// OK: all devices and links are as they should be. Else on the rank whose device has failed the check an error with the cause
// kCheck, on those at the ends of a bad link one with the cause kLink and the other ends (caused.h), and on all others
// Unavailable, as after any peer's end. Errors of the communicator and of allocations as they are.
absl::StatusOr<NodeCheckReport> CheckNodes(const RankConfig& config, const NodeCheckOptions& options, Backend& backend,
                                           Communicator& between_hosts);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_CHECK_NODE_CHECK_H_
