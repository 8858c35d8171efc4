// Makes all connections of one rank to its peers. On each connection both ends first prove that they belong to the same
// generation (peer_proof.h). Then the accepting rank checks the Hello of the other, and accepts or refuses the connection.
//
// In every pair of ranks, the higher rank connects and the lower rank accepts, so both know their roles. Peers start at
// different times, so failed attempts are repeated until the deadline. Anybody can connect to a listening socket. A connection
// that does not prove within a few seconds that it belongs to this generation is dropped, and does not disturb the others. The
// number of such connections is limited. A process without the proof learns only the version of the protocol, and nothing that
// it sends can end a rank.
//
//   connecting:  waiting -> connecting -> Hello sent, awaiting Challenge -> proof sent, awaiting HelloReply -> done
//                   ^_________|___________________|____________________________________|   lost: retried a little later
//   accepting:   accepted -> reading Hello -> Challenge sent, reading proof -> reply sent -> done, or refused and closed
#ifndef LYNX_WORKER_COLLECTIVES_TCP_CONNECT_H_
#define LYNX_WORKER_COLLECTIVES_TCP_CONNECT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "worker/collectives/communicator.h"
#include "worker/collectives/group.h"
#include "worker/collectives/link_stream.h"
#include "worker/collectives/socket.h"

namespace lynx::worker {

struct Link {
  LinkKey key;
  LinkStream stream;
};

// Blocks until all links of LinksOf are connected, and returns them in that order. DeadlineExceeded: some peers did not connect
// in time; the text names them. FailedPrecondition: a peer refused this rank; the text has the peer's reason. Takes ownership
// of the listening socket and closes it.
absl::StatusOr<std::vector<Link>> ConnectLinks(const CommunicatorOptions& options, UniqueFd listener);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_TCP_CONNECT_H_
