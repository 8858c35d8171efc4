// See presented.h.
#include "security/presented.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <chrono>

#include "common/fd.h"
#include "common/status.h"
#include "security/certificate.h"
#include "security/openssl.h"

namespace lynx {
namespace {

using Deadline = std::chrono::steady_clock::time_point;
using ContextHandle = std::unique_ptr<SSL_CTX, OpensslFree<SSL_CTX_free>>;
using SslHandle = std::unique_ptr<SSL, OpensslFree<SSL_free>>;

absl::Status Silent(const std::string& server, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("no server answers at ", server, ": ", why));
}

// Waits for the socket. True if one of `events` comes before the deadline.
bool Await(int socket, short events, Deadline deadline) {
  pollfd fd{.fd = socket, .events = events, .revents = 0};
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() < 0) return false;
    const int ready = ::poll(&fd, 1, static_cast<int>(left.count()) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

absl::StatusOr<UniqueFd> Connect(const std::string& server, Deadline deadline) {
  const size_t colon = server.rfind(':');
  if (colon == std::string::npos) return absl::InvalidArgumentError(absl::StrCat("\"", server, "\" is not HOST:PORT"));
  std::string host = server.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(host.c_str(), server.substr(colon + 1).c_str(), &hints, &found); code != 0) {
    return Silent(server, ::gai_strerror(code));
  }
  const std::unique_ptr<addrinfo, OpensslFree<::freeaddrinfo>> addresses(found);
  std::string why = "it has no address";
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    UniqueFd socket(::socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.valid()) continue;
    int error = ::connect(socket.get(), address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof(error);
      if (!Await(socket.get(), POLLOUT, deadline)) return Silent(server, "it takes too long");
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return socket;
    why = ::strerror(error);
  }
  return Silent(server, why);
}

absl::Status Handshake(SSL* ssl, int socket, const std::string& server, Deadline deadline) {
  while (true) {
    ERR_clear_error();
    const int done = SSL_connect(ssl);
    if (done == 1) return absl::OkStatus();
    const int error = SSL_get_error(ssl, done);
    const bool waits = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
    if (waits && Await(socket, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline)) continue;
    ERR_clear_error();
    // Usually the server is a gRPC server without TLS: it waits for more data of its own protocol, or closes the connection.
    return absl::FailedPreconditionError(absl::StrCat("who answers at ", server, " does not speak TLS"));
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> PresentedCertificates(const std::string& server, Nanos limit) {
  const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(limit.value);
  LYNX_ASSIGN_OR_RETURN(const UniqueFd socket, Connect(server, deadline));
  const ContextHandle context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return OpensslError("begin TLS");
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  const SslHandle ssl(SSL_new(context.get()));
  static constexpr unsigned char kProtocol[] = {2, 'h', '2'};  // the name of gRPC's protocol
  if (ssl == nullptr || SSL_set_fd(ssl.get(), socket.get()) != 1 ||
      SSL_set_alpn_protos(ssl.get(), kProtocol, sizeof(kProtocol)) != 0) {
    return OpensslError("begin TLS");
  }
  LYNX_RETURN_IF_ERROR(Handshake(ssl.get(), socket.get(), server, deadline));
  std::vector<std::string> presented;
  const STACK_OF(X509)* chain = SSL_get_peer_cert_chain(ssl.get());
  for (int i = 0; i < sk_X509_num(chain); ++i) presented.push_back(PemOf(sk_X509_value(chain, i)));
  return presented;
}

absl::StatusOr<std::string> PresentedAuthority(const std::string& server, const std::string& digest, Nanos limit) {
  LYNX_ASSIGN_OR_RETURN(const std::vector<std::string> presented, PresentedCertificates(server, limit));
  for (const std::string& pem : presented) {
    const absl::StatusOr<std::string> found = CertificateDigest(pem);
    if (found.ok() && *found == digest) return pem;
  }
  return absl::PermissionDeniedError(
      absl::StrCat("the server at ", server,
                   " is not of the cluster that the join token is for; check --server, and that the token is of this "
                   "cluster: someone may stand in between"));
}

}  // namespace lynx
