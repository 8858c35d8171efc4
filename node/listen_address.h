// ListenAddress: the parts of a "host:port" from a command line. Pure except CheckFree.
#ifndef LYNX_NODE_LISTEN_ADDRESS_H_
#define LYNX_NODE_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lynx {

struct ListenAddress {
  std::string host;  // a numeric address; "localhost" becomes 127.0.0.1
  int port = 0;
  bool ipv6 = false;
  bool loopback = false;
};

// Parses an address such as "127.0.0.1:7470", "[::1]:7470", "localhost:0". InvalidArgument says what is accepted.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text);
// The text of the address with another port.
std::string AddressText(const ListenAddress& address, int port);
// Checks whether a socket can listen at this address now. Unavailable says why not: "address already in use".
absl::Status CheckFree(const ListenAddress& address);

}  // namespace lynx

#endif  // LYNX_NODE_LISTEN_ADDRESS_H_
