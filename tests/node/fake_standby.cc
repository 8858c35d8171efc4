#include "tests/node/fake_standby.h"

#include <chrono>

#include "common/standby.h"

namespace lynx {
namespace {

class Refusal : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

FakeStandby::FakeStandby(std::string leader, const std::shared_ptr<grpc::ServerCredentials>& credentials)
    : leader_(std::move(leader)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
  builder.RegisterCallbackGenericService(this);
  server_ = builder.BuildAndStart();
}

FakeStandby::~FakeStandby() { server_->Shutdown(std::chrono::system_clock::now()); }

void FakeStandby::SetLeader(const std::string& leader) {
  std::lock_guard lock(mutex_);
  leader_ = leader;
}

grpc::ServerGenericBidiReactor* FakeStandby::CreateReactor(grpc::GenericCallbackServerContext* context) {
  ++refused_;
  std::lock_guard lock(mutex_);
  context->AddTrailingMetadata(kStandbyKey, kStandbyValue);
  if (!leader_.empty()) context->AddTrailingMetadata(kLeaderKey, leader_);
  const std::string who = leader_.empty() ? "no server leads at present" : "the server at " + leader_ + " leads";
  return new Refusal(grpc::Status(grpc::StatusCode::UNAVAILABLE, "this server stands by; " + who));
}

}  // namespace lynx
