// Connecting: all connections of one rank to its peers, each proven (peer_proof.h), introduced and accepted.
//
// Of every pair the higher rank connects and the lower accepts, so that both know who does what. Peers start at
// different times: refused attempts are repeated until the deadline. Anybody may connect to a listening socket; what
// does not prove within a few seconds that it is of this generation is dropped and disturbs nobody, and their number is
// bounded. It learns nothing but the protocol's version, and what an address says that proves nothing ends no rank.
//
//   connecting:  waiting -> connecting -> Hello sent, awaiting Challenge -> proof sent, awaiting HelloReply -> done
//                   ^_________|___________________|____________________________________|   lost: again, a little later
//   accepting:   accepted -> reading Hello -> Challenge sent, reading proof -> reply sent -> done, or refused and closed
#ifndef LYNX_WORKER_COLLECTIVES_TCP_CONNECT_H_
#define LYNX_WORKER_COLLECTIVES_TCP_CONNECT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "worker/collectives/communicator.h"
#include "worker/collectives/group.h"
#include "worker/collectives/socket.h"

namespace lynx {

struct Link {
  LinkKey key;
  OwnedFd fd;
};

// Blocks until all links of LinksOf are there, in that order. DeadlineExceeded names the peers that did not come;
// FailedPrecondition: a peer refused this rank, with its reason. Takes the listening socket over and closes it.
absl::StatusOr<std::vector<Link>> ConnectLinks(const CommunicatorOptions& options, OwnedFd listener);

}  // namespace lynx

#endif  // LYNX_WORKER_COLLECTIVES_TCP_CONNECT_H_
