// A complete server in this process, and loopback channels to it.
#ifndef LYNX_TESTS_SERVER_SERVICES_SERVICE_FIXTURE_H_
#define LYNX_TESTS_SERVER_SERVICES_SERVICE_FIXTURE_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "lynx/v1/cluster.grpc.pb.h"
#include "lynx/v1/jobs.grpc.pb.h"
#include "planner/candidates/search.h"
#include "planner/plan/plan.h"
#include "planner/search/make_plan.h"
#include "proto/convert.h"
#include "server/server.h"

namespace lynx::server {

inline v1::JobSpec MakeSpec(const std::string& name = "gpt", int ranks = 2) {
  JobSpec spec;
  spec.name = name;
  spec.model = {.layers = 2, .hidden = 32, .heads = 2, .seq = 16};
  spec.data.path = "/data/text";
  spec.train.steps = 3;
  spec.train.global_batch = 4;
  spec.train.micro_batch = 2;
  spec.resources = {.min_ranks = ranks, .max_ranks = ranks};
  Normalize(spec);
  return ToProto(spec);
}

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() {
    std::string pattern = ::testing::TempDir() + "lynx_server_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    StartServer();
  }
  ~ServiceTest() override {
    server_->Stop();
    std::filesystem::remove_all(directory_);
  }

  ServerOptions Options() {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.data_directory = directory_;
    options.metrics_address = metrics_address_;
    options.core.controller.wanted_shapes = WantedShapes;
    options.core.planner = MakePlan;
    options.core.loop.tick = Nanos(20'000'000);
    return options;
  }
  void StartServer() {
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(Options(), clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    jobs_ = v1::Jobs::NewStub(channel_);
    cluster_ = v1::Cluster::NewStub(channel_);
  }

  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  }
  grpc::Status Submit(const v1::JobSpec& spec, const std::string& key, v1::SubmitJobResponse* response) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::SubmitJobRequest request;
    *request.mutable_spec() = spec;
    request.set_idempotency_key(key);
    return jobs_->SubmitJob(&context, request, response);
  }
  v1::Job Get(const std::string& id, bool details = false) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::GetJobRequest request;
    request.set_job_id(id);
    request.set_include_events(details);
    request.set_include_programs(details);
    v1::GetJobResponse response;
    const grpc::Status status = jobs_->GetJob(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job();
  }
  grpc::Status Cancel(const std::string& id) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::CancelJobRequest request;
    request.set_job_id(id);
    v1::CancelJobResponse response;
    return jobs_->CancelJob(&context, request, &response);
  }

  std::string directory_;
  std::string metrics_address_;  // the address for the next server; empty: it serves no metrics
  RealClock clock_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
  std::unique_ptr<v1::Cluster::Stub> cluster_;
};

}  // namespace lynx::server

#endif  // LYNX_TESTS_SERVER_SERVICES_SERVICE_FIXTURE_H_
