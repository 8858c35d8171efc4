// Server: lynx-server as an object, with data directory, store, core, RPC services, metrics page and live page. Not
// thread-safe: one thread starts and stops it.
#ifndef LYNX_SERVER_SERVER_H_
#define LYNX_SERVER_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/fd.h"
#include "node/http_endpoint.h"
#include "node/listen_address.h"
#include "server/access/gate.h"
#include "server/access/guard.h"
#include "server/access/server_tls.h"
#include "server/access/shared_keys.h"
#include "server/loop/core.h"
#include "server/metrics/health.h"
#include "server/metrics/server_page.h"
#include "server/metrics/trouble_log.h"
#include "server/services/guarded_services.h"
#include "server/services/live_page.h"
#include "server/store/lease_watch.h"
#include "server/store/move_store.h"
#include "server/store/server_lease.h"
#include "server/values/access.h"
#include "server/values/leadership.h"

namespace lynx::server {

// Why a server that ran ends by itself.
enum class ServerEnd {
  kStore,      // its store or its keys cannot be used
  kLeaseLost,  // another server leads, or this one could not renew its lease for long
};

struct ServerOptions {
  std::string listen = "127.0.0.1:7470";  // host:port; port 0: a free port
  bool tls = false;       // use TLS on loopback, too; on other addresses TLS is always used, except with `insecure`
  bool insecure = false;  // plain text on addresses that other machines can reach
  std::vector<std::string> tls_names;  // names by which clients reach the server, in addition to those that NamesOf finds
  Nanos certificate_life{30LL * 86'400 * 1'000'000'000};  // lifetime of the certificates of the server and of nodes
  Nanos authority_life = Authority::kLife;                // lifetime of a new certificate of the authority
  CallLimitOptions limits;
  bool new_admin = false;      // make a new token for the first admin
  std::string data_directory;  // created if it does not exist
  std::string store;           // see store_address.h
  // HOST:PORT by which clients reach this server; empty: see AdvertisedAt.
  std::string advertise;
  std::string metrics_address;  // empty: no metrics page
  std::string page_address;     // empty: no live page; kAutoPage: the default address, if everybody may read the page anyway
  CoreOptions core;
  LeaseTimes lease;  // used if the store is one that several servers may share
  // A standby waits this long at its start for the values that the first leader writes.
  std::chrono::milliseconds shared_wait{30'000};
  // How long the event loop of a leader may make no turn before the server ends, so that another one can lead.
  Nanos max_silence = ServerHealth::kMaxSilence;
  // How long a leader that cannot renew its lease keeps what it knows, in case that no other server takes the lease. Less than
  // ControllerOptions::node_timeout, because it has ended the nodes' streams.
  std::chrono::milliseconds max_pause{30'000};
  // Called once, on any thread, when the server must end. The caller then ends the process, or stops the server. Null: nothing
  // is called.
  std::function<void(ServerEnd, const absl::Status&)> ended;
};

// Files in the data directory that contain "host:port" of the server, its metrics page and its live page while it listens.
inline constexpr char kAddressFile[] = "server.address";
inline constexpr char kMetricsAddressFile[] = "metrics.address";
inline constexpr char kPageAddressFile[] = "page.address";
// The value of ServerOptions::page_address with which the live page gets the address 127.0.0.1:7472. If that port is in use, or
// if the port in `listen` is 0, the page gets a free port. With this value, only a server on loopback without TLS has a page.
inline constexpr char kAutoPage[] = "auto";
inline constexpr int kPagePort = 7472;
// A folder in the data directory. If the server uses TLS, it contains the authority and all keys.
inline constexpr char kTlsDirectory[] = "tls";
// A file in the data directory that a running server locks. It contains the server's process id.
inline constexpr char kLockFile[] = "server.lock";
// Files in the data directory. connections.key: the key from which the secrets of the ranks' connections are derived; only its
// owner may read it. admin.context: the file that the first admin passes to lynxctl --context.
inline constexpr char kConnectionKeyFile[] = "connections.key";
inline constexpr char kAdminContextFile[] = "admin.context";
inline constexpr char kFirstAdmin[] = "admin";

// Copies the store of a server with these options to another address. The server must not run; its data directory is locked
// meanwhile. The errors are those of Server::Start and MoveStore.
absl::StatusOr<MovedStore> MoveStoreOf(const ServerOptions& options, const std::string& to);

// The address that a server gives to others: ServerOptions::advertise, or else `port` at the first of the TLS names, or at this
// machine's name if the server listens on all addresses, or at the address on which it listens.
std::string AdvertisedAt(const ServerOptions& options, const ListenAddress& address, int port);

// With a store in SQLite the server is the only one. With a store in PostgreSQL it leads, or it stands by:
//
//   stands by --the lease is free--> leads --the lease is not renewed in time--> pauses --it is renewed--> leads
//                                                                               pauses --another server has it--> ends
//
// A server that stands by listens, refuses each call unread, and watches the lease. One that pauses refuses calls, too, and has
// ended its streams; it knows all it knew. One that lost the lease never leads again: its process ends, and another begins.
class Server {
 public:
  // Starts the server, which leads or stands by when this returns. Unavailable: an address is in use; the text names the
  // address and the flag. InvalidArgument: an invalid address, or no data directory. FailedPrecondition: the data directory
  // cannot be used, or another server uses it. Other errors are those of EngineAt and Store::Open.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options, const Clock& clock);
  ~Server() { Stop(); }

  // Ends all calls and threads within about two seconds. Idempotent.
  void Stop();

  const std::string& address() const { return address_; }                  // the address with the port that was chosen
  const std::string& metrics_address() const { return metrics_address_; }  // empty: no metrics page
  const std::string& page_address() const { return page_address_; }        // empty: no live page, or it stands by
  bool leads() const { return leadership_->Leads(); }

 private:
  Server(ServerOptions options, const ListenAddress& address, const Clock& clock);
  absl::StatusOr<std::unique_ptr<Store>> OpenItsStore() const;
  absl::Status OpenKeys();
  absl::Status StartCore(std::unique_ptr<Store> store);
  absl::Status Listen();
  // Makes a new token for kFirstAdmin and writes the context file with it and the server's address, if no admin has a valid
  // token or if `always`.
  absl::Status MakeFirstAdmin(bool always);
  absl::Status ServeMetricsPage();
  absl::Status ServeLivePage();
  std::string ReachedAt() const;
  // See AdminOptions::servers.
  std::vector<KnownServer> Servers() const;

  // Defined in server_leading.cc; these functions serve several servers with one store.
  SharedPlaces Places(const std::string& store) const;
  // FailedPrecondition: the server that leads has another --encrypt-ranks than this one.
  absl::Status CheckPolicy(const LeaseWatch::View& view) const;
  // Compares in the same way with the servers that share the store now.
  absl::Status CheckPolicyOfOthers() const;
  // Waits until another server has written what all share, or takes the lease and returns the store. FailedPrecondition: this
  // server cannot be one of them.
  absl::StatusOr<std::unique_ptr<Store>> AwaitShared();
  // Takes from the store what all servers share, and writes what it lacks.
  absl::Status Share(Store& store);
  void WatchForever();
  // A turn of the thread that watches the lease, while this server stands by or leads. Returns the time until the next turn;
  // nullopt: the server ends.
  std::optional<std::chrono::milliseconds> StandBy();
  std::optional<std::chrono::milliseconds> TakeOver();
  std::optional<std::chrono::milliseconds> Lead();
  absl::Status BeginLeading(std::unique_ptr<Store> store);
  absl::Status FollowShared();
  // Shows on the pages that this server stands by, and what is wrong; "": nothing is wrong. Logs what is wrong.
  void ShowStandby(const std::string& trouble);
  void ShareCertificate();
  void SetServing(bool serving);
  std::nullopt_t End(ServerEnd why, const absl::Status& status);

  ServerOptions options_;
  const ListenAddress listen_;
  const Clock& clock_;
  const bool alone_;  // the store is SQLite's
  UniqueFd lock_;     // holds kLockFile open
  std::string data_directory_, address_, metrics_address_, page_address_;
  int port_ = 0;
  const std::shared_ptr<Leadership> leadership_;
  ServerIdentity identity_;
  Nanos started_;  // Unix time
  std::shared_ptr<ServerPage> metrics_page_;
  std::shared_ptr<ServerHealth> health_;
  Gate gate_;
  std::unique_ptr<ServerTls> tls_;  // null: plain text
  AccessBook book_;
  std::unique_ptr<ServerCore> core_;  // null: it has not led yet
  std::unique_ptr<Guard> guard_;
  std::unique_ptr<JobsService> jobs_;
  std::unique_ptr<ClusterService> cluster_;
  std::unique_ptr<AdminService> admin_;
  Services services_;
  Front front_;
  std::atomic<const Guard*> known_guard_{nullptr};  // null until core_ is there
  std::atomic<ServerMetrics*> known_metrics_{nullptr};
  std::unique_ptr<GuardedJobs> jobs_front_;
  std::unique_ptr<GuardedCluster> cluster_front_;
  std::unique_ptr<GuardedAdmin> admin_front_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<LivePage> page_;
  std::unique_ptr<HttpEndpoint> page_endpoint_;

  // Only watcher_, the thread that watches the lease, uses the members from here to looks_; Start does before that thread
  // begins.
  std::unique_ptr<LeaseWatch> watch_;
  std::string trouble_;  // why this server can stand by but not take over at present; "": it can
  TroubleLog trouble_log_;
  int64_t last_epoch_ = -1;  // that was logged
  bool serving_ = false;     // true: clients were told that this server leads
  std::optional<std::chrono::steady_clock::time_point> paused_;
  std::string shared_chain_;                    // the authority's certificates that the store has
  std::shared_ptr<std::atomic<bool>> sharing_;  // true while the owner thread writes the certificates to the store
  int looks_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;  // guarded by mutex_
  std::atomic<bool> ended_{false};
  std::thread watcher_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_SERVER_H_
