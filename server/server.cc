// See server.h.
#include "server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "node/file.h"
#include "node/listen_address.h"
#include "node/metrics_endpoint.h"
#include "proto/message_limit.h"
#include "security/context_file.h"
#include "server/access/stranger_filter.h"
#include "server/metrics/call_meter.h"
#include "server/store/store_address.h"
#include "spdlog/spdlog.h"

namespace lynx::server {
namespace {

constexpr int kKeepaliveMillis = 10'000;
constexpr int kKeepaliveTimeoutMillis = 5'000;
// Nodes ping every 10 s. By default gRPC requires a longer time between pings, and would treat these pings as an attack.
constexpr int kMinPingMillis = 5'000;
constexpr std::chrono::milliseconds kFarewell{1000};

void RemoveFile(const std::string& path) {
  std::error_code ignored;  // the file only names an address where nobody listens any more
  std::filesystem::remove(path, ignored);
}

absl::StatusOr<ListenAddress> CheckListen(const ServerOptions& options) {
  LYNX_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(options.listen));
  if (options.tls && options.insecure) {
    return absl::InvalidArgumentError("--tls and --insecure are opposites: give one of them");
  }
  if (address.port == 0) return address;
  if (const absl::Status free = CheckFree(address); !free.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options.listen, ": ", std::string(free.message()), "; choose another with --listen"));
  }
  return address;
}

bool UsesTls(const ServerOptions& options, const ListenAddress& address) {
  return options.tls || (!address.loopback && !options.insecure);
}

// The page is sent in plain text, so it must not cross a network unless everybody may read it anyway.
absl::Status CheckPageAddress(const ListenAddress& address, const ServerOptions& options) {
  if (address.loopback || options.insecure) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--page-address ", options.page_address,
      ": the page is served in plain text, so on loopback addresses only: give 127.0.0.1:", kPagePort,
      " and reach it from elsewhere through 'ssh -L ", kPagePort, ":127.0.0.1:", kPagePort,
      " HOST' or an HTTPS proxy on this machine, whose name --tls-names tells; --insecure serves it to everybody"));
}

// The address by which clients on this machine reach the server.
std::string LocalAddress(const ListenAddress& address, int port) {
  ListenAddress local = address;
  if (address.host == "0.0.0.0") local.host = "127.0.0.1";
  if (address.host == "::") local.host = "::1";
  return AddressText(local, port);
}

void Configure(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMillis);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMillis);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Nobody uses gRPC's own statistics (channelz), which cost time for each connection and call.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 0);
  // Disables pings that measure the bandwidth of each connection when the first data arrive: nodes send little, and commands
  // make only one call.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingMillis);
}

// See AdminOptions::reached_at. Uses the first of --tls-names; without one, the listening address, or this machine's name if
// the server listens on all addresses. Empty: the server is on loopback, or its port is not fixed.
std::string ReachedAt(const ServerOptions& options, const ListenAddress& address) {
  if (address.loopback || address.port == 0) return "";
  const bool everywhere = address.host == "0.0.0.0" || address.host == "::";
  const std::string name = !options.tls_names.empty() ? options.tls_names.front()
                           : everywhere               ? NamesOf(address.host).back()
                                                      : address.host;
  return absl::StrContains(name, ':') ? absl::StrCat("[", name, "]:", address.port) : absl::StrCat(name, ":", address.port);
}

absl::StatusOr<std::unique_ptr<Store>> OpenItsStore(const ServerOptions& options) {
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, OpenStore(options.store, options.data_directory));
  spdlog::info("keeps its state in {}", store->name());
  for (const std::string& warning : store->Warnings()) spdlog::warn("{}", warning);
  const std::string file = absl::StrCat(options.data_directory, "/", kStoreFile);
  std::error_code ignored;
  if (store->is_new() && !options.store.empty() && std::filesystem::exists(file, ignored) &&
      store->name() != absl::StrCat("the database ", file)) {
    spdlog::warn("{} is new and knows no jobs; those in {} are not used: lynx-server --move-store takes them along",
                 store->name(), file);
  }
  return store;
}

// Another server with this directory may have another store, so the store's lock does not keep it out.
absl::StatusOr<UniqueFd> LockDirectory(const std::string& directory) {
  absl::StatusOr<UniqueFd> lock = LockFile(absl::StrCat(directory, "/", kLockFile));
  if (lock.ok()) return lock;
  if (lock.status().code() != absl::StatusCode::kFailedPrecondition) {
    return absl::FailedPreconditionError(absl::StrCat(std::string(lock.status().message()), "; check --data-dir"));
  }
  return absl::FailedPreconditionError(absl::StrCat("the data directory ", directory, " is in use by another lynx-server (",
                                                    std::string(lock.status().message()),
                                                    "): stop that one, or give this one another --data-dir"));
}

}  // namespace

absl::StatusOr<MovedStore> MoveStoreOf(const ServerOptions& options, const std::string& to) {
  if (options.data_directory.empty()) {
    return absl::InvalidArgumentError("no data directory is given: name one with --data-dir");
  }
  LYNX_RETURN_IF_ERROR(EngineAt(to, options.data_directory).status());
  LYNX_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(options.data_directory));
  return MoveStore(options.store, to, options.data_directory);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options, const Clock& clock) {
  // Checks everything that can be refused, before anything is changed.
  LYNX_ASSIGN_OR_RETURN(const ListenAddress address, CheckListen(options));
  if (options.data_directory.empty()) {
    return absl::InvalidArgumentError("no data directory is given: name one with --data-dir");
  }
  if (const absl::Status made = MakeDirectories(options.data_directory); !made.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(std::string(made.message()), "; check --data-dir"));
  }
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, OpenItsStore(options));
  std::unique_ptr<Server> server(new Server());
  server->data_directory_ = options.data_directory;
  // This server holds the lock, so no other server runs here: address files in the directory are left from an earlier one.
  LYNX_ASSIGN_OR_RETURN(server->lock_, LockDirectory(options.data_directory));
  RemoveFile(options.data_directory + "/" + kAddressFile);
  RemoveFile(options.data_directory + "/" + kMetricsAddressFile);
  RemoveFile(options.data_directory + "/" + kPageAddressFile);
  if (UsesTls(options, address)) {
    std::vector<std::string> names = NamesOf(address.host);
    names.insert(names.end(), options.tls_names.begin(), options.tls_names.end());
    LYNX_ASSIGN_OR_RETURN(server->tls_, ServerTls::Open(options.data_directory + "/" + kTlsDirectory, std::move(names),
                                                        {options.certificate_life, options.authority_life}, clock));
  }
  LYNX_ASSIGN_OR_RETURN(options.core.connection_key, ConnectionKey::Open(options.data_directory + "/" + kConnectionKeyFile));
  LYNX_RETURN_IF_ERROR(server->StartCore(options, address, std::move(store), clock));
  LYNX_RETURN_IF_ERROR(server->ServeMetricsPage(options));
  LYNX_RETURN_IF_ERROR(server->ServeLivePage(options, address, clock));
  LYNX_RETURN_IF_ERROR(server->Listen(options, address));
  return server;
}

absl::Status Server::StartCore(ServerOptions& options, const ListenAddress& address, std::unique_ptr<Store> store,
                               const Clock& clock) {
  LYNX_ASSIGN_OR_RETURN(const std::vector<AccessChange> access, store->LoadAccess());
  book_.Apply(access);
  options.core.controller.checkpoint_root = std::filesystem::absolute(options.data_directory).string() + "/jobs";
  static const RealClock real_clock;  // static, because the pages outlive the server
  health_ = std::make_shared<ServerHealth>(real_clock);
  options.core.health = health_;
  LYNX_ASSIGN_OR_RETURN(core_, ServerCore::Start(options.core, std::move(store), clock));
  guard_ = std::make_unique<Guard>(
      tls_ == nullptr, book_, options.limits, clock,
      Guard::Hooks{.refused = [core = core_.get()](AuditRecord record) { core->Refused(std::move(record)); },
                   .queue = [core = core_.get()] { return core->loop().QueueLength(); }});
  jobs_ = std::make_unique<JobsService>(*core_, book_);
  cluster_ = std::make_unique<ClusterService>(*core_, *guard_);
  admin_ = std::make_unique<AdminService>(
      *core_, book_,
      AdminOptions{
          .tls = tls_.get(), .node_certificate_life = options.certificate_life, .reached_at = ReachedAt(options, address)});
  jobs_front_ = std::make_unique<GuardedJobs>(*guard_, *jobs_);
  cluster_front_ = std::make_unique<GuardedCluster>(*guard_, *cluster_);
  admin_front_ = std::make_unique<GuardedAdmin>(*guard_, *admin_);
  return absl::OkStatus();
}

absl::Status Server::ServeMetricsPage(const ServerOptions& options) {
  if (options.metrics_address.empty()) return absl::OkStatus();
  absl::StatusOr<ListenAddress> address = ParseListenAddress(options.metrics_address);
  if (!address.ok()) return Annotate(address.status(), "--metrics-address");
  LYNX_ASSIGN_OR_RETURN(const int port, ServeMetrics(AddressText(*address, address->port), core_->metrics().page(),
                                                     {.alive = [health = health_] { return health->Alive(); },
                                                      .ready = [health = health_] { return health->Ready(); }}));
  metrics_address_ = AddressText(*address, port);
  return WriteFileDurably(data_directory_ + "/" + kMetricsAddressFile, metrics_address_ + "\n");
}

absl::Status Server::ServeLivePage(const ServerOptions& options, const ListenAddress& listen, const Clock& clock) {
  const bool automatic = options.page_address == kAutoPage;
  if (options.page_address.empty() || (automatic && (tls_ != nullptr || !listen.loopback))) return absl::OkStatus();
  const std::string wanted = automatic ? absl::StrCat("127.0.0.1:", listen.port == 0 ? 0 : kPagePort) : options.page_address;
  absl::StatusOr<ListenAddress> address = ParseListenAddress(wanted);
  if (!address.ok()) return Annotate(address.status(), "--page-address");
  LYNX_RETURN_IF_ERROR(CheckPageAddress(*address, options));
  LivePageOptions page{.hosts = address->loopback ? std::vector<std::string>{"localhost", "127.0.0.1", "::1", address->host}
                                                  : NamesOf(address->host)};
  page.hosts.insert(page.hosts.end(), options.tls_names.begin(), options.tls_names.end());
  page_ = std::make_unique<LivePage>(*core_, *jobs_, *guard_, std::move(page), clock);
  const auto start = [&](int port) {
    return HttpEndpoint::Start(AddressText(*address, port),
                               [live = page_.get()](const HttpRequest& request) { return live->Answer(request); });
  };
  absl::StatusOr<std::unique_ptr<HttpEndpoint>> endpoint = start(address->port);
  if (!endpoint.ok() && automatic) endpoint = start(0);
  if (!endpoint.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve the page: ", std::string(endpoint.status().message()), "; give another --page-address"));
  }
  page_endpoint_ = *std::move(endpoint);
  page_address_ = AddressText(*address, page_endpoint_->port());
  return WriteFileDurably(data_directory_ + "/" + kPageAddressFile, page_address_ + "\n");
}

absl::Status Server::Listen(const ServerOptions& options, const ListenAddress& address) {
  static std::once_flag plugins;
  std::call_once(plugins, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
  grpc::ServerBuilder builder;
  Configure(builder);
  int port = 0;
  const std::shared_ptr<grpc::ServerCredentials> credentials =
      tls_ == nullptr ? grpc::InsecureServerCredentials() : tls_->credentials();
  if (tls_ != nullptr) credentials->SetAuthMetadataProcessor(std::make_shared<StrangerFilter>(*guard_));
  builder.AddListeningPort(AddressText(address, address.port), credentials, &port);
  builder.RegisterService(jobs_front_.get());
  builder.RegisterService(cluster_front_.get());
  builder.RegisterService(admin_front_.get());
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> meters;
  meters.push_back(std::make_unique<CallMeter>(core_->metrics(), core_->clock()));
  builder.experimental().SetInterceptorCreators(std::move(meters));
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen, "; choose another with --listen"));
  }
  for (const char* service : {"lynx.v1.Jobs", "lynx.v1.Cluster", "lynx.v1.Admin"}) {
    grpc_->GetHealthCheckService()->SetServingStatus(service, true);
  }
  address_ = AddressText(address, port);
  health_->SetListening(true);
  if (tls_ != nullptr) LYNX_RETURN_IF_ERROR(MakeFirstAdmin(options.new_admin, LocalAddress(address, port)));
  if (tls_ == nullptr && !address.loopback) {
    spdlog::warn("--insecure: whoever reaches {} may do everything, and reads what others say", address_);
  }
  return WriteFileDurably(data_directory_ + "/" + kAddressFile, address_ + "\n");
}

absl::Status Server::MakeFirstAdmin(bool always, const std::string& address) {
  const std::string path = std::filesystem::absolute(data_directory_).string() + "/" + kAdminContextFile;
  std::promise<absl::Status> made;
  core_->loop().RunAlways([&] {
    const Nanos now = core_->clock().Wall();
    if (!always && book_.AdminTokensWithout("", "", now) > 0) return made.set_value(absl::OkStatus());
    const NewToken token = MakeToken(kFirstAdmin, now, Nanos(0));
    std::vector<AccessChange> changes = {User{kFirstAdmin, Role::kAdmin, now}, token.token};
    AuditRecord record{.time = now, .who = "lynx-server", .what = "start", .target = kFirstAdmin};
    SetOutcome(record, absl::OkStatus());
    // The file is written before the token is stored: a valid token that nobody has would be useless.
    absl::Status status =
        WriteContextFile(path, {.server = address, .authority = tls_->authority()->certificate(), .token = token.secret});
    if (status.ok()) status = core_->store().CommitAccess(changes, record);
    if (status.ok()) {
      book_.Apply(changes);
      spdlog::info("the first admin's way to this server is in {}: use it with lynxctl --context, and keep it secret", path);
    }
    made.set_value(status);
  });
  return made.get_future().get();
}

void Server::Stop() {
  if (core_ == nullptr) return;
  health_->SetListening(false);
  RemoveFile(data_directory_ + "/" + kAddressFile);
  RemoveFile(data_directory_ + "/" + kMetricsAddressFile);
  RemoveFile(data_directory_ + "/" + kPageAddressFile);
  if (grpc_ != nullptr) grpc_->GetHealthCheckService()->Shutdown();
  // Closing the page may take two seconds, because the library waits. So a thread of its own closes it during the shutdown
  // below.
  std::thread page_closes([this] { page_endpoint_.reset(); });
  core_->Stop();
  if (grpc_ != nullptr) {
    grpc_->Shutdown(std::chrono::system_clock::now() + kFarewell);
    grpc_.reset();
  }
  page_closes.join();  // clients of the page have their answers, because the core has stopped
  // Each object is destroyed before the objects that it uses.
  page_.reset();
  admin_front_.reset();
  cluster_front_.reset();
  jobs_front_.reset();
  admin_.reset();
  cluster_.reset();
  jobs_.reset();
  guard_.reset();
  core_.reset();
  tls_.reset();
  lock_.Reset();
}

}  // namespace lynx::server
