// The check of nodes before a generation. Each rank checks its device (check_device.h). Then the ranks check the links between
// ranks that communicate while they train. Each pair of ranks makes a connection for the check and sends a buffer of known
// words both ways at once. Every word is compared with the word that was sent. The time is compared with that of the other
// links of the same kind (within a host, between hosts). A link that seems slow is tried several times before it counts as
// slow, because the machine may keep any rank from running for a moment.
//
//   device -> ranks exchange results -> pairs, round after round -> ranks exchange times -> slow pairs again -> verdict
//
// Collective; runs before anything else of the generation is made. Owned by the rank's compute thread.
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

// Size of the buffer that goes each way.
inline constexpr Bytes kCheckedLinkBytes{1 << 20};
// Time limit for a peer that moves no byte: this long in the first round. In each later round the limit is longer by this time,
// because the peer may itself be waiting for another silent rank.
inline constexpr Nanos kCheckPatience{10'000'000'000};

struct NodeCheckOptions {
  // Connects a pair: ConnectTcp, unless a test replaces it.
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(const CommunicatorOptions&)> connect = ConnectTcp;
  Nanos patience = kCheckPatience;
};

// OK: all devices and links are good. Otherwise the ranks get different errors. The rank whose device failed the check gets an
// error with the cause kCheck. The ranks at the ends of a bad link get an error with the cause kLink, which names the ranks at
// the other ends (with_cause.h). All other ranks get Unavailable, as after the end of any peer. Errors of the communicator and
// of allocations are returned unchanged.
absl::StatusOr<NodeCheckReport> CheckNodes(const RankConfig& config, const NodeCheckOptions& options, Backend& backend,
                                           Communicator& between_hosts);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_CHECK_NODE_CHECK_H_
