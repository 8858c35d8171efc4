// Server: lynx-server as an object: data directory, store, core, RPC services, metrics page. Not thread-safe: started and
// stopped by one thread.
#ifndef LYNX_SERVER_SERVER_H_
#define LYNX_SERVER_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "server/cluster_service.h"
#include "server/core.h"
#include "server/jobs_service.h"

namespace lynx {

struct ServerOptions {
  std::string listen = "127.0.0.1:7470";  // host:port; port 0 takes a free one
  bool insecure = false;                  // listen on addresses that other machines reach
  std::string data_directory;             // made if it is not there
  std::string metrics_address;            // empty = none
  CoreOptions core;
};

// The file in the data directory that holds "host:port" while the server listens, and the one for its metrics.
inline constexpr char kAddressFile[] = "server.address";
inline constexpr char kMetricsAddressFile[] = "metrics.address";

class Server {
 public:
  // Unavailable: an address is in use (names it and the flag). InvalidArgument: an address that cannot be, or no data
  // directory. FailedPrecondition: the data directory cannot be used; else as Store::Open.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options, const Clock& clock);
  ~Server() { Stop(); }

  // Ends all calls and threads, within about two seconds. Idempotent.
  void Stop();

  const std::string& address() const { return address_; }          // with the port that was chosen
  const std::string& metrics_address() const { return metrics_address_; }  // empty = none

 private:
  Server() = default;
  absl::Status Listen(const ServerOptions& options);
  absl::Status ServeMetricsPage(const ServerOptions& options);

  std::string data_directory_, address_, metrics_address_;
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<JobsService> jobs_;
  std::unique_ptr<ClusterService> cluster_;
  std::unique_ptr<grpc::Server> grpc_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_SERVER_H_
