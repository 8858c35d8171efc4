// AccessTest has a server with TLS in this process, and the people and nodes that call it.
#ifndef LYNX_TESTS_SERVER_ACCESS_ACCESS_FIXTURE_H_
#define LYNX_TESTS_SERVER_ACCESS_ACCESS_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "common/clock.h"
#include "lynx/v1/admin.grpc.pb.h"
#include "lynx/v1/cluster.grpc.pb.h"
#include "lynx/v1/jobs.grpc.pb.h"
#include "planner/candidates/search.h"
#include "planner/plan/plan.h"
#include "planner/search/make_plan.h"
#include "proto/convert.h"
#include "security/certificate.h"
#include "security/context_file.h"
#include "security/credentials.h"
#include "security/join_token.h"
#include "server/server.h"

namespace lynx::server {

// A clock that shows the real time plus an offset. The test sets the offset.
class ShiftedClock : public Clock {
 public:
  Nanos Monotonic() const override { return real_.Monotonic() + Nanos(shift_.load()); }
  Nanos Wall() const override { return real_.Wall() + Nanos(shift_.load() - back_.load()); }
  void Advance(Nanos by) { shift_ += by.value; }
  // Turns back only the wall clock, as an operator can do.
  void TurnBack(Nanos by) { back_ += by.value; }

 private:
  RealClock real_;
  std::atomic<int64_t> shift_{0}, back_{0};
};

inline constexpr Nanos kDay{86'400'000'000'000};

class AccessTest : public ::testing::Test {
 protected:
  AccessTest() {
    std::string pattern = ::testing::TempDir() + "lynx_access_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    options_.listen = "127.0.0.1:0";
    options_.tls = true;
    options_.data_directory = directory_ + "/server";
    options_.core.controller.wanted_shapes = WantedShapes;
    options_.core.planner = MakePlan;
    options_.core.loop.tick = Nanos(20'000'000);
  }
  ~AccessTest() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  void StartServer() {
    server_.reset();
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options_, clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    const absl::StatusOr<ClientContext> context = ReadContextFile(options_.data_directory + "/" + kAdminContextFile);
    if (!options_.tls) {
      people_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
      return;
    }
    ASSERT_TRUE(context.ok()) << context.status();
    authority_ = context->authority;
    admin_token_ = context->token;
    people_ = grpc::CreateChannel(server_->address(), AuthorityChannelCredentials(authority_));
  }

  // Sets the deadline of a call, and sends `token` with the call unless it is empty.
  static void Prepare(grpc::ClientContext& context, const std::string& token) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  }
  template <class Request, class Response>
  grpc::Status Admin(const std::string& token,
                     grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                     const Request& request, Response* response) {
    grpc::ClientContext context;
    Prepare(context, token);
    return (*v1::Admin::NewStub(people_).*method)(&context, request, response);
  }

  std::string AddUser(const std::string& name, v1::Role role) {
    v1::AddUserRequest request;
    request.set_name(name);
    request.set_role(role);
    v1::AddUserResponse response;
    const grpc::Status status = Admin(admin_token_, &v1::Admin::Stub::AddUser, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.token();
  }
  std::string MakeJoinSecret(const std::string& node = "", Nanos life = Nanos(0)) {
    v1::CreateJoinTokenRequest request;
    request.set_node(node);
    request.set_life_ns(life.value);
    v1::CreateJoinTokenResponse response;
    const grpc::Status status = Admin(admin_token_, &v1::Admin::Stub::CreateJoinToken, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return ParseJoinToken(response.token())->secret;
  }
  // Lets `node` join with the secret of a join token. If this succeeds, the node's certificate and key are in `folder`.
  grpc::Status Join(const std::string& secret, const std::string& node, const std::string& folder) {
    const std::string key = NewPrivateKey().value();
    v1::JoinRequest request;
    request.set_secret(secret);
    request.set_node(node);
    request.set_request(NewRequest(key).value());
    v1::JoinResponse response;
    grpc::ClientContext context;
    Prepare(context, "");
    context.AddMetadata("authorization", "Join " + secret);
    const grpc::Status status = v1::Admin::NewStub(people_)->Join(&context, request, &response);
    EXPECT_TRUE(!status.ok() || IdentityIn(folder).Replace({authority_, response.certificate(), key}).ok());
    return status;
  }
  IdentityDirectory IdentityIn(const std::string& folder) { return IdentityDirectory(directory_ + "/" + folder); }
  std::shared_ptr<grpc::Channel> NodeChannel(const std::string& folder) {
    return grpc::CreateChannel(server_->address(), NodeChannelCredentials(IdentityIn(folder)).value());
  }
  v1::ListAuditResponse Audit(bool refused_only = false, int limit = 0) {
    v1::ListAuditRequest request;
    request.set_refused_only(refused_only);
    request.set_limit(limit);
    v1::ListAuditResponse response;
    const grpc::Status status = Admin(admin_token_, &v1::Admin::Stub::ListAudit, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  v1::JobSpec Spec() {
    JobSpec spec;
    spec.name = "gpt";
    spec.model = {.layers = 2, .hidden = 32, .heads = 2, .seq = 16};
    spec.data.path = "/data/text";
    spec.train.steps = 3;
    spec.train.global_batch = 4;
    spec.train.micro_batch = 2;
    spec.resources = {.min_ranks = 2, .max_ranks = 2};
    Normalize(spec);
    return ToProto(spec);
  }
  grpc::Status Submit(const std::string& token, const std::string& key, v1::SubmitJobResponse* response) {
    grpc::ClientContext context;
    Prepare(context, token);
    v1::SubmitJobRequest request;
    *request.mutable_spec() = Spec();
    request.set_idempotency_key(key);
    return v1::Jobs::NewStub(people_)->SubmitJob(&context, request, response);
  }

  std::string directory_;
  ServerOptions options_;
  ShiftedClock clock_;
  std::unique_ptr<Server> server_;
  std::string authority_, admin_token_;
  std::shared_ptr<grpc::Channel> people_;
};

}  // namespace lynx::server

#endif  // LYNX_TESTS_SERVER_ACCESS_ACCESS_FIXTURE_H_
