// PeerAddress is the address at which a rank listens for its peers. Plain data.
#ifndef LYNX_WORKER_CONTRACT_PEER_ADDRESS_H_
#define LYNX_WORKER_CONTRACT_PEER_ADDRESS_H_

#include <cstdint>
#include <string>

namespace lynx {

struct PeerAddress {
  std::string host;  // a numeric address
  int32_t port = 0;
  bool operator==(const PeerAddress&) const = default;
};

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_PEER_ADDRESS_H_
