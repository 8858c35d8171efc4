// See server.h.
#include "server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "common/status.h"
#include "node/file.h"
#include "node/metrics_endpoint.h"
#include "proto/message_limit.h"
#include "server/listen_address.h"
#include "spdlog/spdlog.h"

namespace lynx {
namespace {

constexpr int kKeepaliveMillis = 10'000;
constexpr int kKeepaliveTimeoutMillis = 5'000;
// Nodes ping every 10 s; gRPC's default would take that for an attack.
constexpr int kMinPingMillis = 5'000;
constexpr std::chrono::milliseconds kFarewell{1000};

void RemoveFile(const std::string& path) {
  std::error_code ignored;  // it is only told where nobody listens any more
  std::filesystem::remove(path, ignored);
}

absl::StatusOr<ListenAddress> CheckListen(const ServerOptions& options) {
  LYNX_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(options.listen));
  if (!address.loopback && !options.insecure) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", options.listen, " is reachable from other machines, and this version has no TLS: whoever "
                     "reaches the port can run jobs. Listen on 127.0.0.1, or add --insecure in a network that you trust"));
  }
  if (address.port == 0) return address;
  if (const absl::Status free = CheckFree(address); !free.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen, ": ", std::string(free.message()),
                                               "; choose another with --listen"));
  }
  return address;
}

void Configure(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMillis);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMillis);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingMillis);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options, const Clock& clock) {
  // What can be refused is refused before anything is touched.
  LYNX_RETURN_IF_ERROR(CheckListen(options).status());
  if (options.data_directory.empty()) {
    return absl::InvalidArgumentError("no data directory is given: name one with --data-dir");
  }
  if (const absl::Status made = MakeDirectories(options.data_directory); !made.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(std::string(made.message()), "; check --data-dir"));
  }
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, Store::Open(options.data_directory + "/lynx.db"));
  // The store's lock is ours: what an earlier server left here is stale.
  std::unique_ptr<Server> server(new Server());
  server->data_directory_ = options.data_directory;
  RemoveFile(options.data_directory + "/" + kAddressFile);
  RemoveFile(options.data_directory + "/" + kMetricsAddressFile);
  options.core.controller.checkpoint_root = std::filesystem::absolute(options.data_directory).string() + "/jobs";
  LYNX_ASSIGN_OR_RETURN(server->core_, ServerCore::Start(options.core, std::move(store), clock));
  LYNX_RETURN_IF_ERROR(server->ServeMetricsPage(options));
  LYNX_RETURN_IF_ERROR(server->Listen(options));
  return server;
}

absl::Status Server::ServeMetricsPage(const ServerOptions& options) {
  if (options.metrics_address.empty()) return absl::OkStatus();
  absl::StatusOr<ListenAddress> address = ParseListenAddress(options.metrics_address);
  if (!address.ok()) return Annotate(address.status(), "--metrics-address");
  LYNX_ASSIGN_OR_RETURN(const int port, ServeMetrics(AddressText(*address, address->port), core_->registry()));
  metrics_address_ = AddressText(*address, port);
  return WriteFileDurably(data_directory_ + "/" + kMetricsAddressFile, metrics_address_ + "\n");
}

absl::Status Server::Listen(const ServerOptions& options) {
  LYNX_ASSIGN_OR_RETURN(const ListenAddress address, CheckListen(options));
  static std::once_flag plugins;
  std::call_once(plugins, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
  jobs_ = std::make_unique<JobsService>(*core_);
  cluster_ = std::make_unique<ClusterService>(*core_);
  grpc::ServerBuilder builder;
  Configure(builder);
  int port = 0;
  builder.AddListeningPort(AddressText(address, address.port), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(jobs_.get());
  builder.RegisterService(cluster_.get());
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen, "; choose another with --listen"));
  }
  for (const char* service : {"lynx.v1.Jobs", "lynx.v1.Cluster"}) {
    grpc_->GetHealthCheckService()->SetServingStatus(service, true);
  }
  address_ = AddressText(address, port);
  return WriteFileDurably(data_directory_ + "/" + kAddressFile, address_ + "\n");
}

void Server::Stop() {
  if (core_ == nullptr) return;
  RemoveFile(data_directory_ + "/" + kAddressFile);
  RemoveFile(data_directory_ + "/" + kMetricsAddressFile);
  if (grpc_ != nullptr) grpc_->GetHealthCheckService()->Shutdown();
  core_->Stop();
  if (grpc_ != nullptr) {
    grpc_->Shutdown(std::chrono::system_clock::now() + kFarewell);
    grpc_.reset();
  }
  jobs_.reset();
  cluster_.reset();
  core_.reset();
}

}  // namespace lynx
