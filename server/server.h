// Server: lynx-server as an object, with data directory, store, core, RPC services, metrics page and live page. Not
// thread-safe: one thread starts and stops it.
#ifndef LYNX_SERVER_SERVER_H_
#define LYNX_SERVER_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/fd.h"
#include "node/http_endpoint.h"
#include "node/listen_address.h"
#include "server/access/guard.h"
#include "server/access/server_tls.h"
#include "server/loop/core.h"
#include "server/services/guarded_services.h"
#include "server/services/live_page.h"
#include "server/store/move_store.h"
#include "server/values/access.h"

namespace lynx::server {

struct ServerOptions {
  std::string listen = "127.0.0.1:7470";  // host:port; port 0: a free port
  bool tls = false;       // use TLS on loopback, too; on other addresses TLS is always used, except with `insecure`
  bool insecure = false;  // plain text on addresses that other machines can reach
  std::vector<std::string> tls_names;  // names by which clients reach the server, in addition to those that NamesOf finds
  Nanos certificate_life{30LL * 86'400 * 1'000'000'000};  // lifetime of the certificates of the server and of nodes
  Nanos authority_life = Authority::kLife;                // lifetime of a new certificate of the authority
  CallLimitOptions limits;
  bool new_admin = false;       // make a new token for the first admin
  std::string data_directory;   // created if it does not exist
  std::string store;            // see store_address.h
  std::string metrics_address;  // empty: no metrics page
  std::string page_address;     // empty: no live page; kAutoPage: the default address, if everybody may read the page anyway
  CoreOptions core;
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

class Server {
 public:
  // Starts the server. Unavailable: an address is in use; the text names the address and the flag. InvalidArgument: an invalid
  // address, or no data directory. FailedPrecondition: the data directory cannot be used, or another server uses it. Other
  // errors are those of EngineAt and Store::Open.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options, const Clock& clock);
  ~Server() { Stop(); }

  // Ends all calls and threads within about two seconds. Idempotent.
  void Stop();

  const std::string& address() const { return address_; }                  // the address with the port that was chosen
  const std::string& metrics_address() const { return metrics_address_; }  // empty: no metrics page
  const std::string& page_address() const { return page_address_; }        // empty: no live page

 private:
  Server() = default;
  absl::Status StartCore(ServerOptions& options, const ListenAddress& address, std::unique_ptr<Store> store,
                         const Clock& clock);
  absl::Status Listen(const ServerOptions& options, const ListenAddress& address);
  // Makes a new token for kFirstAdmin and writes the context file with it and `address`, if no admin has a valid token or if
  // `always`.
  absl::Status MakeFirstAdmin(bool always, const std::string& address);
  absl::Status ServeMetricsPage(const ServerOptions& options);
  absl::Status ServeLivePage(const ServerOptions& options, const ListenAddress& listen, const Clock& clock);

  UniqueFd lock_;  // of kLockFile
  std::string data_directory_, address_, metrics_address_, page_address_;
  std::shared_ptr<ServerHealth> health_;
  std::unique_ptr<ServerTls> tls_;  // null: plain text
  AccessBook book_;
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<Guard> guard_;
  std::unique_ptr<JobsService> jobs_;
  std::unique_ptr<ClusterService> cluster_;
  std::unique_ptr<AdminService> admin_;
  std::unique_ptr<GuardedJobs> jobs_front_;
  std::unique_ptr<GuardedCluster> cluster_front_;
  std::unique_ptr<GuardedAdmin> admin_front_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<LivePage> page_;
  std::unique_ptr<HttpEndpoint> page_endpoint_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_SERVER_H_
