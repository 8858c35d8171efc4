#include "worker/daemon/witness.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace lynx::worker {
namespace {

constexpr std::chrono::seconds kAnswerWithin{1};

}  // namespace

grpc::ServerUnaryReactor* WitnessServer::Service::WhenRenewed(grpc::CallbackServerContext* context,
                                                              const v1::WhenRenewedRequest*,
                                                              v1::WhenRenewedResponse* response) {
  const Nanos now = BootTime();
  {
    const std::lock_guard lock(mutex);
    response->set_ago_ns(witnessed.has_value() ? (now - witnessed->renewed_at).value : -1);
    response->set_server_up_ns(witnessed.has_value() ? (now - witnessed->server_began).value : 0);
  }
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

absl::StatusOr<std::unique_ptr<WitnessServer>> WitnessServer::Start(
    const std::string& address, const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  std::unique_ptr<WitnessServer> server(new WitnessServer());
  const bool ipv6 = address.find(':') != std::string::npos;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(1024);
  builder.AddListeningPort(absl::StrCat(ipv6 ? "[" : "", address, ipv6 ? "]" : "", ":0"), credentials, &server->port_);
  builder.RegisterService(&server->service_);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || server->port_ == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, " for the daemons of other nodes; check --address"));
  }
  return server;
}

WitnessServer::~WitnessServer() {
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kAnswerWithin);
}

void WitnessServer::Set(std::optional<Witnessed> witnessed) {
  const std::lock_guard lock(service_.mutex);
  service_.witnessed = witnessed;
}

struct WitnessClient::Call {
  std::string witness;
  Nanos asked_at;
  std::unique_ptr<v1::Witness::Stub> stub;
  grpc::ClientContext context;
  v1::WhenRenewedRequest request;
  v1::WhenRenewedResponse response;
};

WitnessClient::WitnessClient(CredentialSource credentials, WakeEvent& wake)
    : credentials_(std::move(credentials)), wake_(wake) {}

WitnessClient::~WitnessClient() {
  std::unique_lock lock(mutex_);
  for (const auto& [witness, call] : open_) call->context.TryCancel();
  changed_.wait(lock, [this] { return open_.empty(); });
}

// Returns nullptr if the node's certificate cannot be read.
std::shared_ptr<grpc::Channel> WitnessClient::Dial(const std::string& witness) const {
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (credentials_ != nullptr) {
    const auto read = credentials_();
    if (!read.ok()) return nullptr;
    credentials = *read;
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return grpc::CreateCustomChannel(witness, credentials, arguments);
}

void WitnessClient::Ask(const std::vector<std::string>& witnesses) {
  std::erase_if(channels_, [&](const auto& entry) {
    return std::find(witnesses.begin(), witnesses.end(), entry.first) == witnesses.end();
  });
  for (const std::string& witness : witnesses) {
    std::shared_ptr<grpc::Channel>& channel = channels_[witness];
    // If a channel cannot connect, its certificate may have expired. Then a new channel is made.
    const bool stale = channel != nullptr && credentials_ != nullptr &&
                       channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE;
    if (channel == nullptr || stale) channel = Dial(witness);
    if (channel == nullptr) continue;
    Call* call = nullptr;
    {
      const std::lock_guard lock(mutex_);
      std::unique_ptr<Call>& slot = open_[witness];
      if (slot != nullptr) continue;
      slot = std::make_unique<Call>();
      call = slot.get();
    }
    call->witness = witness;
    call->asked_at = BootTime();
    call->stub = v1::Witness::NewStub(channel);
    call->context.set_deadline(std::chrono::system_clock::now() + kAnswerWithin);
    call->stub->async()->WhenRenewed(&call->context, &call->request, &call->response,
                                     [this, call](const grpc::Status& status) { Finish(call, status); });
  }
}

void WitnessClient::Finish(Call* call, const grpc::Status& status) {
  const std::lock_guard lock(mutex_);
  if (status.ok()) {
    // The answer says how long ago the server answered the witness. This time is counted back from the moment of the question,
    // so the result is never later than the true moment.
    Answer answer{.witness = call->witness, .witnessed = std::nullopt};
    if (call->response.ago_ns() >= 0) {
      answer.witnessed = Witnessed{.renewed_at = call->asked_at - Nanos(call->response.ago_ns()),
                                   .server_began = call->asked_at - Nanos(std::max<int64_t>(0, call->response.server_up_ns()))};
    }
    answers_.push_back(std::move(answer));
    wake_.Raise();
  }
  const std::unique_ptr<Call> gone = std::move(open_.at(call->witness));
  open_.erase(call->witness);
  changed_.notify_all();
}

std::vector<WitnessClient::Answer> WitnessClient::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(answers_, {});
}

}  // namespace lynx::worker
