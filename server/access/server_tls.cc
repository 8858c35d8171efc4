// See server_tls.h.
#include "server/access/server_tls.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/status.h"
#include "node/log.h"
#include "security/certificate.h"
#include "security/credentials.h"

namespace lynx::server {
namespace {

// The thread looks at the clock at least this often, because somebody may adjust the clock.
constexpr Nanos kMaxWait{60'000'000'000};
constexpr Nanos kShortestWait{100'000'000};

std::vector<std::string> MachineAddresses() {
  std::vector<std::string> found;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return found;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    char text[INET6_ADDRSTRLEN] = "";
    if (entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET) {
      ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, text, sizeof(text));
    } else if (entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
      if (!IN6_IS_ADDR_LINKLOCAL(&six)) ::inet_ntop(AF_INET6, &six, text, sizeof(text));
    }
    if (text[0] != '\0') found.emplace_back(text);
  }
  ::freeifaddrs(first);
  return found;
}

}  // namespace

std::vector<std::string> NamesOf(const std::string& listen_host) {
  std::vector<std::string> names = {"localhost", "127.0.0.1", "::1"};
  const bool all = listen_host == "0.0.0.0" || listen_host == "::";
  const std::vector<std::string> addresses = all ? MachineAddresses() : std::vector<std::string>{listen_host};
  names.insert(names.end(), addresses.begin(), addresses.end());
  char host[256] = "";
  if (::gethostname(host, sizeof(host) - 1) == 0 && host[0] != '\0') names.emplace_back(host);
  return names;
}

absl::StatusOr<std::unique_ptr<ServerTls>> ServerTls::Open(const std::string& directory, std::vector<std::string> names,
                                                           Lives lives, const Clock& clock, std::function<bool()> renews) {
  LYNX_ASSIGN_OR_RETURN(Authority authority, Authority::Open(directory, clock.Wall(), lives.authority));
  std::unique_ptr<ServerTls> tls(
      new ServerTls(std::move(authority), IdentityDirectory(directory), std::move(names), lives, clock, std::move(renews)));
  LYNX_RETURN_IF_ERROR(tls->RenewAuthority());
  LYNX_RETURN_IF_ERROR(tls->Renew());
  tls->thread_ = std::thread([self = tls.get()] { self->RenewForever(); });
  return tls;
}

ServerTls::~ServerTls() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<grpc::ServerCredentials> ServerTls::credentials() const {
  return ListenCredentials(directory_, ClientCertificate::kOptional);
}

std::shared_ptr<const Authority> ServerTls::authority() const {
  const std::lock_guard lock(mutex_);
  return authority_;
}

absl::Status ServerTls::RenewAuthority() {
  const Nanos now = clock_.Wall();
  const std::shared_ptr<const Authority> present = authority();
  if (!present->IsDue(now) || (renews_ != nullptr && !renews_())) return absl::OkStatus();
  LYNX_ASSIGN_OR_RETURN(Authority renewed, present->Renew(directory_.path(), now, lives_.authority));
  LogInfo("the certificate of the cluster's authority has been renewed, with the same key");
  const std::lock_guard lock(mutex_);
  authority_ = std::make_shared<const Authority>(std::move(renewed));
  return absl::OkStatus();
}

absl::Status ServerTls::Reload() {
  LYNX_ASSIGN_OR_RETURN(Authority read, Authority::Open(directory_.path(), clock_.Wall(), lives_.authority));
  const std::lock_guard lock(mutex_);
  if (authority_->chain() == read.chain()) return absl::OkStatus();
  authority_ = std::make_shared<const Authority>(std::move(read));
  reloaded_ = true;
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status ServerTls::Renew() {
  const std::shared_ptr<const Authority> present = authority();
  LYNX_ASSIGN_OR_RETURN(const std::string key, NewPrivateKey());
  LYNX_ASSIGN_OR_RETURN(const std::string request, NewRequest(key));
  LYNX_ASSIGN_OR_RETURN(const Authority::Issued issued, present->IssueServer(request, names_, clock_.Wall(), lives_.server));
  return directory_.Replace({.authority = present->chain(), .certificate = issued.pem, .private_key = key});
}

void ServerTls::RenewForever() {
  std::shared_ptr<const Authority> presented = authority();
  while (true) {
    absl::Status renewed = RenewAuthority();
    const absl::StatusOr<Identity> kept = directory_.Read();
    const absl::StatusOr<CertificateFacts> facts = kept.ok() ? ReadCertificate(kept->certificate) : kept.status();
    Nanos wait = facts.ok() ? RotationTime(*facts) - clock_.Wall() : Nanos(0);
    // If the certificate of the authority has been renewed, the server presents it, together with a new certificate of its own.
    if (wait <= Nanos(0) || presented != authority()) {
      const std::shared_ptr<const Authority> present = authority();
      const absl::Status own = Renew();
      if (own.ok()) presented = present;
      wait = kShortestWait;
      if (renewed.ok()) renewed = own;
    }
    if (!renewed.ok()) {
      LogError("a certificate of the server cannot be renewed: {}", std::string(renewed.message()));
      wait = kMaxWait / 10;
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(std::clamp(wait, kShortestWait, kMaxWait).value),
                      [this] { return stop_ || reloaded_; });
    if (stop_) return;
    reloaded_ = false;
  }
}

}  // namespace lynx::server
