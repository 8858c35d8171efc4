// Server: lynx-server as an object: data directory, store, core, RPC services, metrics page, live page. Not thread-safe:
// started and stopped by one thread.
#ifndef LYNX_SERVER_SERVER_H_
#define LYNX_SERVER_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "node/listen_address.h"
#include "server/access/guard.h"
#include "server/access/server_tls.h"
#include "server/loop/core.h"
#include "server/services/guarded_services.h"
#include "server/services/http_endpoint.h"
#include "server/services/live_page.h"
#include "server/values/access.h"

namespace lynx {

struct ServerOptions {
  std::string listen = "127.0.0.1:7470";  // host:port; port 0 takes a free one
  bool tls = false;                       // on loopback, too; elsewhere it always is, but for
  bool insecure = false;                  // plain text on addresses that other machines reach
  std::vector<std::string> tls_names;     // by which clients reach the server, besides those that it knows itself
  Nanos certificate_life{30LL * 86'400 * 1'000'000'000};  // of the server's and of nodes'
  CallLimitOptions limits;
  bool new_admin = false;       // make a new token for the first admin
  std::string data_directory;   // made if it is not there
  std::string metrics_address;  // empty = none
  std::string page_address;     // of the live page; empty = none, kAutoPage = the default where it is open to everybody anyway
  CoreOptions core;
};

// The file in the data directory that holds "host:port" while the server listens, and those for its metrics and its page.
inline constexpr char kAddressFile[] = "server.address";
inline constexpr char kMetricsAddressFile[] = "metrics.address";
inline constexpr char kPageAddressFile[] = "page.address";
// 127.0.0.1:7472, or a free port where that is taken or `listen` has none of its own; without TLS on loopback, else none.
inline constexpr char kAutoPage[] = "auto";
inline constexpr int kPagePort = 7472;
// In the data directory of a server with TLS: the authority with all keys, and what the first admin gives to lynxctl --context.
inline constexpr char kTlsDirectory[] = "tls";
// What the secrets of the ranks' connections are made of; for its owner alone.
inline constexpr char kConnectionKeyFile[] = "connections.key";
inline constexpr char kAdminContextFile[] = "admin.context";
inline constexpr char kFirstAdmin[] = "admin";

class Server {
 public:
  // Unavailable: an address is in use (names it and the flag). InvalidArgument: an address that cannot be, or no data
  // directory. FailedPrecondition: the data directory cannot be used; else as Store::Open.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options, const Clock& clock);
  ~Server() { Stop(); }

  // Ends all calls and threads, within about two seconds. Idempotent.
  void Stop();

  const std::string& address() const { return address_; }                  // with the port that was chosen
  const std::string& metrics_address() const { return metrics_address_; }  // empty = none
  const std::string& page_address() const { return page_address_; }        // the same

 private:
  Server() = default;
  absl::Status StartCore(ServerOptions& options, const ListenAddress& address, std::unique_ptr<Store> store,
                         const Clock& clock);
  absl::Status Listen(const ServerOptions& options, const ListenAddress& address);
  // Where there is none, or always: writes the context file of a new token of kFirstAdmin, with this address.
  absl::Status MakeFirstAdmin(bool always, const std::string& address);
  absl::Status ServeMetricsPage(const ServerOptions& options);
  absl::Status ServeLivePage(const ServerOptions& options, const ListenAddress& listen, const Clock& clock);

  std::string data_directory_, address_, metrics_address_, page_address_;
  std::shared_ptr<ServerHealth> health_;
  std::unique_ptr<ServerTls> tls_;  // null: plain text
  AccessBook book_;
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<Guard> guard_;
  std::unique_ptr<JobsService> jobs_;
  std::unique_ptr<ClusterService> cluster_;
  std::unique_ptr<AdminService> admin_;
  std::unique_ptr<JobsFront> jobs_front_;
  std::unique_ptr<ClusterFront> cluster_front_;
  std::unique_ptr<AdminFront> admin_front_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<LivePage> page_;
  std::unique_ptr<HttpEndpoint> page_endpoint_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_SERVER_H_
