// Guard: checks each call before its messages are read and before a service handles it. The guard finds out who calls and
// whether this caller has permission (server/access/rpc_permissions.h). Without TLS every caller counts as "local", with the
// role of an admin.
//
// The guard identifies a caller by the metadata "authorization", which has a bearer token, or the secret of a join token for a
// node that joins. Without this metadata, the certificate of the connection identifies the caller. A caller with neither is a
// stranger. A call with an invalid token or certificate is refused.
// After the permission, the guard checks two limits (server/access/call_limits.h): it refuses people's calls while the server
// is behind, and each caller has a rate limit. Neither limit applies to reports of nodes.
//
// Thread-safe. The AccessBook must outlive the guard.
#ifndef LYNX_SERVER_ACCESS_GUARD_H_
#define LYNX_SERVER_ACCESS_GUARD_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "server/access/call_limits.h"
#include "server/access/caller.h"
#include "server/access/rpc_permissions.h"
#include "server/values/access.h"
#include "server/values/audit.h"

namespace lynx::server {

// The answer to a call with one request and one response.
class UnaryAnswer {
 public:
  virtual ~UnaryAnswer() = default;
  // Ends the call. The response is sent if the status is OK. Called once, from any thread.
  virtual void Finish(const grpc::Status& status) = 0;
};

// One call that the guard admitted.
struct Call {
  UnaryAnswer* answer = nullptr;  // null for a stream
  Caller caller;
  std::string method;  // "Jobs.SubmitJob"

  // Returns the audit record for a change that the call requests. The code that carries out the change fills in time and
  // outcome.
  AuditRecord Audit(const std::string& target) const;
};

// The error for a join token that the AccessBook does not have.
absl::Status JoinTokenIsOver();

// Extracts the host from gRPC's name for a peer: "ipv4:127.0.0.1:5000" gives "127.0.0.1", "ipv6:%5B::1%5D:5000" gives "::1".
std::string HostOfPeer(const std::string& peer);

class Guard {
 public:
  struct Hooks {
    std::function<void(AuditRecord)> refused;  // called for every call that is not permitted; must not block
    std::function<size_t()> queue;             // returns the number of events that wait in the server's loop
  };
  // `open`: the server has no TLS.
  Guard(bool open, const AccessBook& book, CallLimitOptions limits, const Clock& clock, Hooks hooks)
      : open_(open), book_(book), limits_(limits), clock_(clock), hooks_(std::move(hooks)) {}

  // Admits the call or refuses it. Unauthenticated: there is no token or certificate, or an invalid one. PermissionDenied: the
  // caller has no permission for this call. ResourceExhausted: the caller has permission, but must try again later.
  absl::StatusOr<Call> Admit(const MethodRule& rule, const grpc::CallbackServerContext& context);

  using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;
  // Refuses strangers, for calls that have no MethodRule. Unauthenticated: there is no token or certificate, or an invalid one.
  absl::Status RefuseStranger(const Metadata& metadata, const grpc::AuthContext& connection) const;

  // Admits or refuses a call over HTTP from the address `from`, by the same rules as Admit. `authorization`: the value of the
  // header; empty: there is no such header.
  absl::StatusOr<Caller> AdmitHttp(const MethodRule& rule, const std::string& authorization, const std::string& from);

  // Checks a report on an open stream. PermissionDenied: the report is for another node than the one that the caller's
  // certificate names. Unauthenticated: the certificate has expired or was revoked in the meantime.
  absl::Status CheckReport(const Caller& caller, const std::string& node) const;

  bool open() const { return open_; }

 private:
  absl::StatusOr<Caller> Identify(const Metadata& metadata, const grpc::AuthContext& connection, const std::string& from) const;
  absl::StatusOr<Caller> IdentifyToken(const std::string& authorization, const std::string& from) const;
  absl::StatusOr<Caller> Decide(const MethodRule& rule, const absl::StatusOr<Caller>& caller, const std::string& from);
  absl::Status Authorize(const MethodRule& rule, const Caller& caller) const;
  absl::Status CheckLimits(const MethodRule& rule, const Caller& caller);

  const bool open_;
  const AccessBook& book_;
  CallLimits limits_;
  const Clock& clock_;
  const Hooks hooks_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_ACCESS_GUARD_H_
