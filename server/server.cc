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
#include "node/log.h"
#include "node/metrics_endpoint.h"
#include "proto/message_limit.h"
#include "security/context_file.h"
#include "server/access/stranger_filter.h"
#include "server/metrics/call_meter.h"
#include "server/store/postgres_engine.h"
#include "server/store/store_address.h"

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

// The page is sent in plain text. So it must not be sent over a network, unless everybody may read it.
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

std::string AdvertisedAt(const ServerOptions& options, const ListenAddress& address, int port) {
  if (!options.advertise.empty()) return options.advertise;
  const bool everywhere = address.host == "0.0.0.0" || address.host == "::";
  const std::string name = !options.tls_names.empty() ? options.tls_names.front()
                           : everywhere               ? NamesOf(address.host).back()
                                                      : address.host;
  return absl::StrContains(name, ':') ? absl::StrCat("[", name, "]:", port) : absl::StrCat(name, ":", port);
}

Server::Server(ServerOptions options, const ListenAddress& address, const Clock& clock)
    : options_(std::move(options)), listen_(address), clock_(clock),
      alone_(!SqliteFileOf(options_.store, options_.data_directory).empty()), data_directory_(options_.data_directory),
      leadership_(std::make_shared<Leadership>()), gate_(leadership_), front_{.gate = gate_},
      sharing_(std::make_shared<std::atomic<bool>>(false)) {
  if (alone_) leadership_->LeadForEver();
  identity_ = NewIdentity(listen_.port == 0 ? "" : AdvertisedAt(options_, listen_, listen_.port));
  identity_.encryption = EnumName(options_.core.controller.encryption);
  started_ = clock_.Wall();
  metrics_page_ = std::make_shared<ServerPage>(leadership_);
  static const RealClock real_clock;  // static, because the pages outlive the server
  health_ = std::make_shared<ServerHealth>(real_clock, options_.max_silence);
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
  std::unique_ptr<Server> server(new Server(std::move(options), address, clock));
  const std::string& directory = server->data_directory_;
  // With a second server on the same data directory, the first one may fail to renew its lease for a moment. The second must
  // not take it.
  if (!server->alone_) {
    LYNX_ASSIGN_OR_RETURN(server->lock_, LockDirectory(directory));
    LYNX_RETURN_IF_ERROR(server->CheckPolicyOfOthers());
  }
  absl::StatusOr<std::unique_ptr<Store>> store = server->OpenItsStore();
  if (!store.ok() && !IsHeldByAnother(store.status())) return store.status();
  if (server->alone_) {
    LYNX_ASSIGN_OR_RETURN(server->lock_, LockDirectory(directory));
  }
  // This server holds the lock, so no other server runs here: address files in the directory are left from an earlier one.
  for (const char* file : {kAddressFile, kMetricsAddressFile, kPageAddressFile}) RemoveFile(absl::StrCat(directory, "/", file));
  std::unique_ptr<Store> taken = store.ok() ? *std::move(store) : nullptr;
  if (taken == nullptr) {
    LYNX_ASSIGN_OR_RETURN(taken, server->AwaitShared());
  }
  if (taken != nullptr && !server->alone_) LYNX_RETURN_IF_ERROR(server->Share(*taken));
  LYNX_RETURN_IF_ERROR(server->OpenKeys());
  const bool leads = taken != nullptr;
  if (leads) LYNX_RETURN_IF_ERROR(server->StartCore(std::move(taken)));
  LYNX_RETURN_IF_ERROR(server->ServeMetricsPage());
  if (leads) LYNX_RETURN_IF_ERROR(server->ServeLivePage());
  LYNX_RETURN_IF_ERROR(server->Listen());
  if (leads && server->tls_ != nullptr) LYNX_RETURN_IF_ERROR(server->MakeFirstAdmin(server->options_.new_admin));
  server->SetServing(leads);
  LYNX_RETURN_IF_ERROR(WriteFileDurably(absl::StrCat(directory, "/", kAddressFile), server->address_ + "\n"));
  if (!server->alone_) server->watcher_ = std::thread([self = server.get()] { self->WatchForever(); });
  return server;
}

absl::StatusOr<std::unique_ptr<Store>> Server::OpenItsStore() const {
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<Store> store,
                        OpenStore(options_.store, data_directory_,
                                  {.identity = identity_, .leadership = leadership_, .times = options_.lease, .wait = false}));
  LogInfo("keeps its state in {}", store->name());
  for (const std::string& warning : store->Warnings()) LogWarn("{}", warning);
  const std::string file = absl::StrCat(data_directory_, "/", kStoreFile);
  std::error_code ignored;
  if (store->is_new() && !options_.store.empty() && std::filesystem::exists(file, ignored) &&
      store->name() != absl::StrCat("the database ", file)) {
    LogWarn("{} is new and knows no jobs; those in {} are not used: lynx-server --move-store takes them along", store->name(),
            file);
  }
  return store;
}

absl::Status Server::OpenKeys() {
  if (UsesTls(options_, listen_)) {
    std::vector<std::string> names = NamesOf(listen_.host);
    names.insert(names.end(), options_.tls_names.begin(), options_.tls_names.end());
    LYNX_ASSIGN_OR_RETURN(tls_, ServerTls::Open(data_directory_ + "/" + kTlsDirectory, std::move(names),
                                                {options_.certificate_life, options_.authority_life}, clock_,
                                                [leadership = leadership_] { return leadership->Leads(); }));
  }
  LYNX_ASSIGN_OR_RETURN(options_.core.connection_key, ConnectionKey::Open(data_directory_ + "/" + kConnectionKeyFile));
  return absl::OkStatus();
}

absl::Status Server::StartCore(std::unique_ptr<Store> store) {
  LYNX_ASSIGN_OR_RETURN(const std::vector<AccessChange> access, store->LoadAccess());
  book_.Apply(access);
  CoreOptions options = options_.core;
  if (alone_) {
    options.controller.checkpoint_root = std::filesystem::absolute(data_directory_).string() + "/jobs";
  }
  options.health = health_;
  options.leadership = leadership_;
  options.store_taken = [this](const absl::Status& status) { End(ServerEnd::kLeaseLost, status); };
  LYNX_ASSIGN_OR_RETURN(core_, ServerCore::Start(std::move(options), std::move(store), clock_));
  guard_ = std::make_unique<Guard>(
      tls_ == nullptr, book_, options_.limits, clock_,
      Guard::Hooks{.refused = [core = core_.get()](AuditRecord record) { core->Refused(std::move(record)); },
                   .queue = [core = core_.get()] { return core->loop().QueueLength(); }});
  jobs_ = std::make_unique<JobsService>(*core_, book_);
  cluster_ = std::make_unique<ClusterService>(*core_, *guard_);
  admin_ = std::make_unique<AdminService>(*core_, book_,
                                          AdminOptions{.tls = tls_.get(),
                                                       .node_certificate_life = options_.certificate_life,
                                                       .reached_at = [this] { return ReachedAt(); },
                                                       .servers = [this] { return Servers(); }});
  services_ = {.guard = guard_.get(), .jobs = jobs_.get(), .cluster = cluster_.get(), .admin = admin_.get()};
  metrics_page_->Add(core_->metrics().page());
  known_metrics_ = &core_->metrics();
  known_guard_ = guard_.get();
  front_.services = &services_;
  return absl::OkStatus();
}

// See AdminOptions::reached_at. A server that is alone has no address for others if it is on loopback, or its port is not
// fixed.
std::string Server::ReachedAt() const {
  if (alone_) return options_.advertise.empty() && (listen_.loopback || listen_.port == 0) ? "" : identity_.address;
  std::string all = AdvertisedAt(options_, listen_, port_);
  for (const KnownServer& known : core_->store().lease()->servers()) {
    const bool stands_by = !known.leads && known.server.encryption == identity_.encryption;  // others are refused
    if (stands_by) absl::StrAppend(&all, ",", known.server.address);
  }
  return all;
}

std::vector<KnownServer> Server::Servers() const {
  const ServerLease* const lease = core_->store().lease();
  KnownServer own{.server = identity_, .leads = true, .since = started_};
  own.server.address = AdvertisedAt(options_, listen_, port_);
  if (lease == nullptr) return {own};
  own.epoch = lease->epoch();
  std::vector<KnownServer> servers = lease->servers();
  for (KnownServer& known : servers) {
    known.leads = known.server.id == identity_.id;
    if (!known.leads) continue;
    known.epoch = own.epoch;
    own.epoch = 0;
  }
  // A server that has just begun to lead is not in the list of servers yet, so it is added here.
  if (own.epoch != 0) servers.insert(servers.begin(), own);
  return servers;
}

absl::Status Server::ServeMetricsPage() {
  if (options_.metrics_address.empty()) return absl::OkStatus();
  absl::StatusOr<ListenAddress> address = ParseListenAddress(options_.metrics_address);
  if (!address.ok()) return Annotate(address.status(), "--metrics-address");
  LYNX_ASSIGN_OR_RETURN(const int port, ServeMetrics(AddressText(*address, address->port), metrics_page_,
                                                     {.alive = [health = health_] { return health->Alive(); },
                                                      .ready = [health = health_] { return health->Ready(); },
                                                      .role = [health = health_] { return health->Role(); }}));
  metrics_address_ = AddressText(*address, port);
  return WriteFileDurably(data_directory_ + "/" + kMetricsAddressFile, metrics_address_ + "\n");
}

absl::Status Server::ServeLivePage() {
  const bool automatic = options_.page_address == kAutoPage;
  if (options_.page_address.empty() || (automatic && (tls_ != nullptr || !listen_.loopback))) return absl::OkStatus();
  const std::string wanted = automatic ? absl::StrCat("127.0.0.1:", listen_.port == 0 ? 0 : kPagePort) : options_.page_address;
  absl::StatusOr<ListenAddress> address = ParseListenAddress(wanted);
  if (!address.ok()) return Annotate(address.status(), "--page-address");
  LYNX_RETURN_IF_ERROR(CheckPageAddress(*address, options_));
  LivePageOptions page{.hosts = address->loopback ? std::vector<std::string>{"localhost", "127.0.0.1", "::1", address->host}
                                                  : NamesOf(address->host)};
  page.hosts.insert(page.hosts.end(), options_.tls_names.begin(), options_.tls_names.end());
  page_ = std::make_unique<LivePage>(*core_, *jobs_, *guard_, std::move(page), clock_);
  const auto start = [&](int port) {
    const auto answer = [this](const HttpRequest& request) {
      HttpReply reply = page_->Answer(request);
      if (gate_.IsOpen()) return reply;
      return HttpReply{.status = 503, .type = "text/plain", .body = gate_.Text() + "\n"};
    };
    const auto refuse = [this](const HttpRequest& request) { return page_->RefusedBody(request); };
    return HttpEndpoint::Start(AddressText(*address, port), answer, {.max_body = kMaxStudioBody, .refuse_body = refuse});
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

absl::Status Server::Listen() {
  static std::once_flag plugins;
  std::call_once(plugins, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
  jobs_front_ = std::make_unique<GuardedJobs>(front_);
  cluster_front_ = std::make_unique<GuardedCluster>(front_);
  admin_front_ = std::make_unique<GuardedAdmin>(front_);
  grpc::ServerBuilder builder;
  Configure(builder);
  const std::shared_ptr<grpc::ServerCredentials> credentials =
      tls_ == nullptr ? grpc::InsecureServerCredentials() : tls_->credentials();
  if (tls_ != nullptr) credentials->SetAuthMetadataProcessor(std::make_shared<StrangerFilter>(gate_, known_guard_));
  builder.AddListeningPort(AddressText(listen_, listen_.port), credentials, &port_);
  builder.RegisterService(jobs_front_.get());
  builder.RegisterService(cluster_front_.get());
  builder.RegisterService(admin_front_.get());
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> meters;
  meters.push_back(std::make_unique<CallMeter>(known_metrics_, clock_));
  builder.experimental().SetInterceptorCreators(std::move(meters));
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr || port_ == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options_.listen, "; choose another with --listen"));
  }
  address_ = AddressText(listen_, port_);
  identity_.address = AdvertisedAt(options_, listen_, port_);
  if (tls_ == nullptr && !listen_.loopback) {
    LogWarn("--insecure: whoever reaches {} may do everything, and reads what others say", address_);
  }
  return absl::OkStatus();
}

absl::Status Server::MakeFirstAdmin(bool always) {
  const std::string address = alone_ ? LocalAddress(listen_, port_) : ReachedAt();
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
      LogInfo("the first admin's way to this server is in {}: use it with lynxctl --context, and keep it secret", path);
    }
    made.set_value(status);
  });
  return made.get_future().get();
}

void Server::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_all();
  }
  if (watcher_.joinable()) watcher_.join();
  if (core_ == nullptr && grpc_ == nullptr) return;
  health_->SetListening(false);
  RemoveFile(data_directory_ + "/" + kAddressFile);
  RemoveFile(data_directory_ + "/" + kMetricsAddressFile);
  RemoveFile(data_directory_ + "/" + kPageAddressFile);
  if (grpc_ != nullptr) grpc_->GetHealthCheckService()->Shutdown();
  // Closing the page may take two seconds, because the library waits. So a thread of its own closes it during the shutdown
  // below.
  if (page_ != nullptr) page_->Stop();
  std::thread page_closes([this] { page_endpoint_.reset(); });
  if (core_ != nullptr) core_->Stop();
  if (grpc_ != nullptr) {
    grpc_->Shutdown(std::chrono::system_clock::now() + kFarewell);
    grpc_.reset();
  }
  page_closes.join();  // clients of the page have their answers, because the core has stopped
  front_.services = nullptr;
  known_guard_ = nullptr;
  known_metrics_ = nullptr;
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
