// The server lease: which of several servers on one PostgreSQL leads. It is a row of the table lynx_lease. A server takes it
// when it is free, and each time it is taken its epoch is raised. The leader renews it on a connection and a thread of its own,
// so a long transaction or a slow event loop does not lose it. When it runs out is decided by the clock of the database alone.
//
//   free --TakeLease--> taken --renewed every `renew`--> taken --not renewed for `life`--> free
//
// The holder counts, too, by its own clock and from before it sent its newest renewal, and stops leading `margin` before
// another server can take the lease. If nobody took it meanwhile, it may renew it late, and leads again: what it knows is still
// true.
//
// Each server also enters itself in the table lynx_servers, so that others can name it.
#ifndef LYNX_SERVER_STORE_SERVER_LEASE_H_
#define LYNX_SERVER_STORE_SERVER_LEASE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/postgres_connection.h"
#include "server/values/leadership.h"
#include "server/values/server_identity.h"

namespace lynx::server {

struct LeaseTimes {
  std::chrono::milliseconds life{3'000};   // duration of the lease after the newest renewal
  std::chrono::milliseconds renew{1'000};  // between renewals
  std::chrono::milliseconds margin{500};   // the holder stops leading this long before `life` is over
  std::chrono::milliseconds look{500};     // time between two looks of a standby at the lease
};

// A new identity of this process, whose policy of encryption is not said yet.
ServerIdentity NewIdentity(const std::string& address);

// The row of the lease.
struct LeaseRow {
  ServerIdentity holder;  // its id is empty if nobody has had the lease yet
  int64_t epoch = 0;
  Nanos since;                        // when the holder took it; Unix time
  int64_t renewals = 0;               // it grows while the holder lives
  std::chrono::milliseconds left{0};  // time left by the database's clock; at most 0: the lease is free
  // An older version of the server, which knows no lease, has claimed the store after the newest holder of the lease.
  bool older_server = false;
};

// SQL that makes the tables of the lease and of the servers, if they are not there.
const std::string& LeaseTables();
// nullopt: the database has no such table yet.
absl::StatusOr<std::optional<LeaseRow>> ReadLease(PostgresConnection& connection);
// Takes the lease if it is free, and returns its new epoch; 0: it is not free.
absl::StatusOr<int64_t> TakeLease(PostgresConnection& connection, const ServerIdentity& holder, const LeaseTimes& times);
// Shortens the lease to `life` from now, if it lasts longer because the database's clock was put back.
absl::Status CapLease(PostgresConnection& connection, const LeaseTimes& times);
// True if other servers than `own` have this --encrypt-ranks and entered themselves in the list within kStillThere.
inline constexpr std::chrono::milliseconds kStillThere{10'000};
absl::StatusOr<bool> OthersHave(PostgresConnection& connection, const ServerIdentity& own, const std::string& encryption);
// Enters the server in the list. A server whose address is empty is not entered.
absl::Status EnterServer(PostgresConnection& connection, const ServerIdentity& server);
// The servers that entered themselves within the last hour, in the order of their addresses. Their epochs are not set.
absl::StatusOr<std::vector<KnownServer>> ReadServers(PostgresConnection& connection);

// The lease while this process has it. Thread-safe.
class ServerLease {
 public:
  // A connection for the lease alone, whose answers come soon or not at all. It is made before the lease is taken, because the
  // lease does not wait for it.
  static absl::StatusOr<std::unique_ptr<PostgresConnection>> ConnectFor(const std::string& url);
  // `connection`: from ConnectFor. `epoch`: what TakeLease has returned. `taken_at`: a BootTime before that. `leadership` says
  // from now on whether this server leads. A thread begins to renew the lease.
  ServerLease(std::string url, std::unique_ptr<PostgresConnection> connection, ServerIdentity holder, const LeaseTimes& times,
              int64_t epoch, Nanos taken_at, std::shared_ptr<Leadership> leadership);
  // Ends the leadership, then gives the lease back, so that another server can take it at once.
  ~ServerLease();

  int64_t epoch() const { return epoch_; }
  // Another server has the lease: this process never leads again.
  bool lost() const { return lost_; }
  // The address that others are told from the next renewal on.
  void SetAddress(const std::string& address);
  // The list at the newest renewal. The times since then are added.
  std::vector<KnownServer> servers() const;

 private:
  void RenewForever();
  // FailedPrecondition: another server has the lease.
  absl::Status Renew();
  absl::Status Connect();

  const std::string url_;
  const LeaseTimes times_;
  const int64_t epoch_;
  const std::shared_ptr<Leadership> leadership_;
  std::atomic<bool> lost_{false};
  std::unique_ptr<PostgresConnection> connection_;  // used by thread_, then by the destructor

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  ServerIdentity holder_;             // guarded by mutex_
  std::vector<KnownServer> servers_;  // guarded by mutex_
  Nanos servers_at_;                  // guarded by mutex_; the BootTime at which they were read
  bool stop_ = false;                 // guarded by mutex_
  std::thread thread_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_SERVER_LEASE_H_
