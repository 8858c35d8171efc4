// Checks the nodes before a generation. Each rank checks its device (check_device.h). Then the ranks check the links between
// ranks that communicate while they train. Each pair of ranks makes a connection for the check, and sends a buffer of known
// words in both directions at the same time. Each rank compares every word that it receives with the word that was sent. The
// time of a link is compared with that of the other links of the same kind (within a host, between hosts). A link that seems
// slow is tried several times before it counts as slow, because the machine may stop any rank for a moment.
//
//   device -> ranks exchange results -> pairs, round after round -> ranks exchange times -> slow pairs again -> verdict
//
// Collective. It runs before the states and the engine of the generation are made. The rank's compute thread runs it.
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

namespace lynx::worker {

// The size of the buffer that is sent in each direction.
inline constexpr Bytes kCheckedLinkBytes{1 << 20};
// The time limit for a peer that sends or receives no byte, in the first round. In each later round the limit is longer by this
// time, because the peer may itself wait for another silent rank.
inline constexpr Nanos kCheckPatience{10'000'000'000};

struct NodeCheckOptions {
  // Connects the two ranks of a pair. It is ConnectTcp unless a test replaces it.
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(const CommunicatorOptions&)> connect = ConnectTcp;
  Nanos patience = kCheckPatience;
};

// Returns a report if all devices and links are good. Otherwise the ranks get different errors. If a rank's device failed the
// check, this rank gets an error with the cause kCheck. Both ranks of a slow link, a rank that received wrong words, and a
// rank whose peer does not answer get an error with the cause kLink, which names the ranks at the other ends (with_cause.h).
// All other ranks get Unavailable, as they do when a peer ends. Errors of the communicator and of allocations are returned
// unchanged.
absl::StatusOr<NodeCheckReport> CheckNodes(const RankConfig& config, const NodeCheckOptions& options, Backend& backend,
                                           Communicator& between_hosts);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_CHECK_NODE_CHECK_H_
