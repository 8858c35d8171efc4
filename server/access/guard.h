// Guard: stands before every method of every service. It finds out who calls, and whether they may
// (server/access/rpc_permissions.h). Without TLS everybody is "local", an admin.
//
// Who calls: a bearer token in the metadata "authorization", else the certificate of the connection, else nobody. A token or
// certificate that is not valid is refused, never passed over. Then people wait where the server is behind, and each caller has
// a rate (server/access/call_limits.h); nodes' reports have neither.
//
// Thread-safe. The book must outlive it.
#ifndef LYNX_SERVER_ACCESS_GUARD_H_
#define LYNX_SERVER_ACCESS_GUARD_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "server/access/call_limits.h"
#include "server/access/rpc_permissions.h"
#include "server/values/access.h"
#include "server/values/audit.h"

namespace lynx {

struct Caller {
  enum class Kind : uint8_t { kNobody, kLocal, kUser, kNode };
  Kind kind = Kind::kNobody;
  std::string name;           // of kUser and kNode
  Role role = Role::kViewer;  // of kUser and kLocal
  std::string from;           // address of the other end
  std::string serial;         // kNode: of its certificate
};
// "alice", "node/n0", "local", "".
std::string CallerText(const Caller& caller);

// One call that was let through.
struct Call {
  grpc::CallbackServerContext* context = nullptr;
  Caller caller;
  std::string method;  // "Jobs.SubmitJob"

  // Of a change that the call asks for; time and outcome are for who carries it out.
  AuditRecord Audit(const std::string& target) const;
};

// The host of gRPC's name for the other end: "ipv4:127.0.0.1:5000" and "ipv6:%5B::1%5D:5000" give "127.0.0.1" and "::1".
std::string HostOfPeer(const std::string& peer);

class Guard {
 public:
  struct Hooks {
    std::function<void(AuditRecord)> refused;  // of every call of somebody who may not; must not block
    std::function<size_t()> queue;             // events that wait in the server's loop
  };
  // `open`: no TLS.
  Guard(bool open, const AccessBook& book, CallLimitOptions limits, const Clock& clock, Hooks hooks)
      : open_(open), book_(book), limits_(limits), clock_(clock), hooks_(std::move(hooks)) {}

  // Unauthenticated: nobody, or a token or certificate that is not valid. PermissionDenied: somebody who may not.
  // ResourceExhausted: somebody who may, later.
  absl::StatusOr<Call> Admit(const MethodRule& rule, grpc::CallbackServerContext* context);

  // The same of a call that came by HTTP from `from`. `authorization`: the header's value, "" = there is none.
  absl::StatusOr<Caller> AdmitHttp(const MethodRule& rule, const std::string& authorization, const std::string& from);

  // Of a stream that goes on: PermissionDenied when it reports as another node than the caller's certificate says;
  // Unauthenticated when that has ended or was revoked since.
  absl::Status CheckReport(const Caller& caller, const std::string& node) const;

  bool open() const { return open_; }

 private:
  absl::StatusOr<Caller> Identify(const grpc::CallbackServerContext& context) const;
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

}  // namespace lynx

#endif  // LYNX_SERVER_ACCESS_GUARD_H_
