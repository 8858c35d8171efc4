// See listen_address.h.
#include "node/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/fd.h"

namespace lynx {

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("\"", text,
                   "\" is not an address to listen on: write HOST:PORT with a numeric host, for example "
                   "127.0.0.1:7470 or [::1]:7470"));
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return bad;
  ListenAddress address;
  if (!absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port < 0 || address.port > 65535) return bad;
  address.host = text.substr(0, colon);
  if (address.host == "localhost") address.host = "127.0.0.1";
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
    address.ipv6 = true;
  }
  in6_addr six{};
  in_addr four{};
  if (address.ipv6 && inet_pton(AF_INET6, address.host.c_str(), &six) == 1) {
    address.loopback = IN6_IS_ADDR_LOOPBACK(&six) != 0;
    return address;
  }
  if (!address.ipv6 && inet_pton(AF_INET, address.host.c_str(), &four) == 1) {
    address.loopback = (ntohl(four.s_addr) >> 24) == 127;
    return address;
  }
  return bad;
}

std::string AddressText(const ListenAddress& address, int port) {
  return address.ipv6 ? absl::StrCat("[", address.host, "]:", port) : absl::StrCat(address.host, ":", port);
}

absl::Status CheckFree(const ListenAddress& address) {
  sockaddr_storage storage{};
  socklen_t size = 0;
  if (address.ipv6) {
    auto* six = reinterpret_cast<sockaddr_in6*>(&storage);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<uint16_t>(address.port));
    inet_pton(AF_INET6, address.host.c_str(), &six->sin6_addr);
    size = sizeof(*six);
  } else {
    auto* four = reinterpret_cast<sockaddr_in*>(&storage);
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<uint16_t>(address.port));
    inet_pton(AF_INET, address.host.c_str(), &four->sin_addr);
    size = sizeof(*four);
  }
  const UniqueFd fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  const bool bound = fd.valid() && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                     ::bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), size) == 0 && ::listen(fd.get(), 1) == 0;
  if (bound) return absl::OkStatus();
  return absl::UnavailableError(absl::AsciiStrToLower(::strerror(errno)));
}

}  // namespace lynx
