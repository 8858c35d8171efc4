// The part of Server that several servers on one store need: standing by, taking over, and losing the lease. See server.h.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "node/log.h"
#include "server/server.h"
#include "server/store/postgres_connection.h"
#include "server/store/postgres_engine.h"

namespace lynx::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLeaderLook{100};      // how soon a leader notices that it does not lead any more
constexpr milliseconds kBehindEnd{10};        // when to look again after a lease has ended, unless it was renewed
constexpr milliseconds kAfterFailure{5'000};  // the pause after a failed takeover, in which another server may lead
constexpr int kLooksPerShared = 20;           // a standby reads the shared values at one of this number of looks

std::string StoreName(const ServerOptions& options) { return "the database " + WithoutPassword(options.store); }

}  // namespace

SharedPlaces Server::Places(const std::string& store) const {
  return {.authority_directory =
              options_.tls || (!listen_.loopback && !options_.insecure) ? data_directory_ + "/" + kTlsDirectory : "",
          .connection_key = data_directory_ + "/" + kConnectionKeyFile,
          .checkpoint_root = std::filesystem::absolute(data_directory_).string() + "/jobs",
          .store = store};
}

absl::Status Server::CheckPolicy(const LeaseWatch::View& view) const {
  if (view.encryption.empty() || view.encryption == identity_.encryption) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--encrypt-ranks is ", identity_.encryption, " here, and ", view.encryption, " on the server",
                   view.leader.empty() ? "s that stand by" : absl::StrCat(" at ", view.leader, " that leads"), " on ",
                   StoreName(options_), ": start this one with --encrypt-ranks ", view.encryption,
                   "; to change it for the cluster, stop all its servers, and ten seconds later start them with the same new "
                   "value (ranks train on)"));
}

absl::Status Server::CheckPolicyOfOthers() const {
  LeaseWatch watch(options_.store, identity_, options_.lease);
  const absl::StatusOr<LeaseWatch::View> view = watch.Look();
  return view.ok() ? CheckPolicy(*view) : absl::OkStatus();  // if the database cannot be read, opening the store later says why
}

absl::StatusOr<std::unique_ptr<Store>> Server::AwaitShared() {
  watch_ = std::make_unique<LeaseWatch>(options_.store, identity_, options_.lease);
  const SharedPlaces places = Places(StoreName(options_));
  const auto end = steady_clock::now() + options_.shared_wait;
  while (true) {
    absl::StatusOr<SharedValues> stored = watch_->LoadShared();
    const absl::StatusOr<LeaseWatch::View> view = stored.ok() ? watch_->Look() : stored.status();
    if (view.ok()) {
      LYNX_RETURN_IF_ERROR(CheckPolicy(*view));
      if (IsComplete(*stored, places)) {
        LYNX_RETURN_IF_ERROR(TakeShared(*stored, places));
        gate_.SetLeader(view->leader);
        return nullptr;
      }
      if (view->free) {
        absl::StatusOr<std::unique_ptr<Store>> store = OpenItsStore();
        if (store.ok() || !IsHeldByAnother(store.status())) return store;
      }
    }
    if (steady_clock::now() > end && !view.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(
          places.store, " is led by another lynx-server, and this one cannot stand by, because it cannot read there: ",
          std::string(view.status().message()),
          "; check --store, that PostgreSQL runs there, and that its user may read and write all tables"));
    }
    if (steady_clock::now() > end) {
      return absl::FailedPreconditionError(
          absl::StrCat(places.store, " is in use by another lynx-server", view->leader.empty() ? "" : " at ", view->leader,
                       ", which has not written there the keys that this one needs to stand by: it may be of an older "
                       "version, or without TLS; stop that one, or give this one another --store"));
    }
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, options_.lease.look);
  }
}

absl::Status Server::Share(Store& store) {
  const SharedPlaces places = Places(store.name());
  LYNX_ASSIGN_OR_RETURN(SharedValues stored, store.LoadShared());
  LYNX_RETURN_IF_ERROR(TakeShared(stored, places));
  LYNX_ASSIGN_OR_RETURN(const bool used, store.IsUsed());
  LYNX_ASSIGN_OR_RETURN(SharedValues missing, MissingShared(stored, places, used, clock_.Wall(), options_.authority_life));
  const std::string encryption(EnumName(options_.core.controller.encryption));
  if (const std::string before = stored[kSharedEncryption]; before != encryption) {
    if (!before.empty()) {
      LogWarn("--encrypt-ranks is {} here, and was {} on the server that led before: give all servers the same", encryption,
              before);
    }
    stored.erase(kSharedEncryption);
    missing[kSharedEncryption] = encryption;
  }
  if (!missing.empty()) LYNX_RETURN_IF_ERROR(store.PutShared(missing));
  stored.merge(missing);
  if (missing.contains(kSharedAuthority)) stored[kSharedAuthority] = missing[kSharedAuthority];
  shared_chain_ = stored[kSharedAuthority];
  options_.core.controller.checkpoint_root = stored[kSharedCheckpoints];
  if (stored[kSharedCheckpoints] != places.checkpoint_root) {
    LogInfo("checkpoints of jobs that name no directory lie in {}, as on the first server of {}", stored[kSharedCheckpoints],
            places.store);
  }
  return absl::OkStatus();
}

std::nullopt_t Server::End(ServerEnd why, const absl::Status& status) {
  if (!ended_.exchange(true) && options_.ended != nullptr) options_.ended(why, status);
  return std::nullopt;
}

void Server::SetServing(bool serving) {
  serving_ = serving;
  for (const char* service : {"lynx.v1.Jobs", "lynx.v1.Cluster", "lynx.v1.Admin"}) {
    grpc_->GetHealthCheckService()->SetServingStatus(service, serving);
  }
  if (serving) gate_.SetLeader("");
  health_->SetListening(true);
  health_->SetStandby(serving ? "" : gate_.Text());
  if (serving && !alone_) {
    ServerLease& lease = *core_->store().lease();
    lease.SetAddress(identity_.address);
    metrics_page_->SetEpoch(lease.epoch());
  }
  if (!serving && watch_ != nullptr) watch_->SetAddress(identity_.address);
}

void Server::WatchForever() {
  while (true) {
    const std::optional<milliseconds> pause = core_ == nullptr ? StandBy() : Lead();
    std::unique_lock lock(mutex_);
    if (!pause.has_value() || stop_) return;
    if (wake_.wait_for(lock, *pause, [this] { return stop_; })) return;
  }
}

void Server::ShowStandby(const std::string& trouble) {
  const std::string text = gate_.Text();
  health_->SetStandby(trouble.empty() ? text : absl::StrCat(text, "; it ", trouble));
  const Nanos now(std::chrono::nanoseconds(steady_clock::now().time_since_epoch()).count());
  if (const std::optional<std::string> line = trouble_log_.Next(trouble, now); line.has_value()) {
    LogWarn("stands by, and {}", *line);
  }
}

std::optional<milliseconds> Server::StandBy() {
  const absl::StatusOr<LeaseWatch::View> view = watch_->Look();
  gate_.SetLeader(view.ok() ? view->leader : "");
  if (!view.ok()) {
    ShowStandby(absl::StrCat("cannot see who leads on ", StoreName(options_), ": ", std::string(view.status().message())));
    return options_.lease.look;
  }
  metrics_page_->SetEpoch(view->epoch);
  if (view->epoch != last_epoch_) LogInfo("{}", gate_.Text());
  last_epoch_ = view->epoch;
  if (const absl::Status same = CheckPolicy(*view); !same.ok()) return End(ServerEnd::kStore, same);
  if (view->free) {
    // A server that cannot read the shared keys must not take the lease: it would end at once, and a server that can would be
    // kept out.
    const absl::Status followed = trouble_.empty() ? absl::OkStatus() : FollowShared();
    if (followed.ok()) return TakeOver();
    ShowStandby(trouble_);
    return kAfterFailure;
  }
  if (looks_++ % kLooksPerShared == 0) {
    const absl::Status followed = FollowShared();
    if (followed.code() == absl::StatusCode::kFailedPrecondition) return End(ServerEnd::kStore, followed);
    trouble_ = followed.ok() ? ""
                             : absl::StrCat("cannot take from ", StoreName(options_),
                                            " what all servers share: ", std::string(followed.message()));
  }
  ShowStandby(trouble_);
  return std::clamp(view->left + kBehindEnd, kBehindEnd, options_.lease.look);
}

absl::Status Server::FollowShared() {
  LYNX_ASSIGN_OR_RETURN(const SharedValues stored, watch_->LoadShared());
  LYNX_RETURN_IF_ERROR(TakeShared(stored, Places(StoreName(options_))));
  return tls_ == nullptr ? absl::OkStatus() : tls_->Reload();
}

std::optional<milliseconds> Server::TakeOver() {
  absl::StatusOr<std::unique_ptr<Store>> store = OpenItsStore();
  if (!store.ok()) {
    if (IsHeldByAnother(store.status())) return options_.lease.look;  // another server was faster
    if (store.status().code() == absl::StatusCode::kDataLoss) return End(ServerEnd::kStore, store.status());
    trouble_ = absl::StrCat("cannot take over: ", std::string(store.status().message()));
    ShowStandby(trouble_);
    looks_ = 0;  // so that the next look, once another server leads, finds out whether the trouble is over
    return kAfterFailure;
  }
  const int64_t epoch = (*store)->lease()->epoch();
  if (const absl::Status begun = BeginLeading(*std::move(store)); !begun.ok()) return End(ServerEnd::kStore, begun);
  LogInfo("leads now, as number {}", epoch);
  return kLeaderLook;
}

absl::Status Server::BeginLeading(std::unique_ptr<Store> store) {
  LYNX_RETURN_IF_ERROR(Share(*store));
  if (tls_ != nullptr) LYNX_RETURN_IF_ERROR(tls_->Reload());
  LYNX_RETURN_IF_ERROR(StartCore(std::move(store)));
  LYNX_RETURN_IF_ERROR(ServeLivePage());
  if (tls_ != nullptr) LYNX_RETURN_IF_ERROR(MakeFirstAdmin(options_.new_admin));
  SetServing(true);
  watch_.reset();
  return absl::OkStatus();
}

std::optional<milliseconds> Server::Lead() {
  const ServerLease& lease = *core_->store().lease();
  if (lease.lost()) {
    return End(ServerEnd::kLeaseLost, absl::FailedPreconditionError(absl::StrCat(
                                          "another lynx-server leads on ", StoreName(options_), " since this one could not ",
                                          "renew its lease in time: this one ends, and stands by when it starts again")));
  }
  const bool leads = leadership_->Leads();
  if (!leads && serving_) {
    LogError("pauses: the lease on {} could not be renewed in time; no call is answered until it is", StoreName(options_));
    paused_ = steady_clock::now();
    SetServing(false);
    core_->EndStreams();
  } else if (leads && !serving_) {
    LogInfo("leads again: the lease is renewed, and no other server had it meanwhile");
    paused_.reset();
    // All nodes have lost their streams. They come back at different times, so their absence is counted from now on.
    core_->loop().RunAlways([this] { core_->controller().LeadsAgain(clock_.Monotonic()); });
    SetServing(true);
  }
  if (paused_.has_value() && steady_clock::now() - *paused_ > options_.max_pause) {
    return End(ServerEnd::kLeaseLost,
               absl::UnavailableError(absl::StrCat("the lease on ", StoreName(options_), " could not be renewed for ",
                                                   options_.max_pause.count() / 1000,
                                                   " s: this server ends, and stands by when it starts again")));
  }
  if (const std::string stuck = health_->Alive(); leads && !stuck.empty()) {
    return End(ServerEnd::kLeaseLost,
               absl::InternalError(absl::StrCat(stuck, ": this server ends, so that another one can lead")));
  }
  if (leads) ShareCertificate();
  return kLeaderLook;
}

// If this server has renewed the certificate of the authority, writes it to the store, from which the other servers read it.
void Server::ShareCertificate() {
  if (tls_ == nullptr || *sharing_) return;
  const std::string chain = tls_->authority()->chain();
  if (chain == shared_chain_) return;
  *sharing_ = true;
  core_->loop().RunAlways([this, chain, sharing = sharing_] {
    if (const absl::Status put = core_->store().PutShared({{kSharedAuthority, chain}}); !put.ok()) {
      LogError("the authority's new certificate is not in the store yet: {}", std::string(put.message()));
    } else {
      const std::lock_guard lock(mutex_);
      shared_chain_ = chain;
    }
    *sharing = false;
  });
}

}  // namespace lynx::server
