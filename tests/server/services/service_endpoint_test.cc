// Tests what the server offers in addition to its own services, where it listens, and how it counts calls.
#include <grpcpp/generic/generic_stub.h>

#include <fstream>
#include <vector>

#include <gmock/gmock.h>

#include "tests/node/http_get.h"
#include "tests/server/services/service_fixture.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Sends one request and receives one answer, both as encoded messages. Used for services whose message classes gRPC does not
// install.
std::string CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, const std::string& request) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto call = stub.PrepareCall(&context, method, &queue);
  const auto wait = [&] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  EXPECT_TRUE(wait());
  const grpc::Slice slice(request);
  call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  EXPECT_TRUE(wait());
  grpc::ByteBuffer buffer;
  call->Read(&buffer, nullptr);
  EXPECT_TRUE(wait());
  grpc::Status status;
  call->Finish(&status, nullptr);
  EXPECT_TRUE(wait());
  EXPECT_TRUE(status.ok()) << status.error_message();
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& part : slices) bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
  return bytes;
}

TEST_F(ServiceTest, HealthSaysServing) {
  // Field numbers: HealthCheckRequest.service is 1, HealthCheckResponse.status is 1. The value of SERVING is 1.
  const std::string serving("\x08\x01", 2);
  EXPECT_EQ(CallRaw(channel_, "/grpc.health.v1.Health/Check", ""), serving);
  EXPECT_EQ(CallRaw(channel_, "/grpc.health.v1.Health/Check", std::string("\x0A\x0C") + "lynx.v1.Jobs"), serving);
}

TEST_F(ServiceTest, ReflectionListsTheServices) {
  // The field number of ServerReflectionRequest.list_services is 7.
  const std::string services =
      CallRaw(channel_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", std::string("\x3A\x01*"));
  EXPECT_THAT(services, HasSubstr("lynx.v1.Jobs"));
  EXPECT_THAT(services, HasSubstr("lynx.v1.Cluster"));
}

TEST_F(ServiceTest, CallsAreCountedAndTimed) {
  server_->Stop();
  metrics_address_ = "127.0.0.1:0";
  StartServer();
  v1::SubmitJobResponse submitted;
  for (const char* key : {"a", "b"}) ASSERT_TRUE(Submit(MakeSpec(), key, &submitted).ok());
  EXPECT_EQ(Cancel("nobody").error_code(), grpc::NOT_FOUND);
  {
    grpc::ClientContext context;  // this call is a stream, and the server does not count streams
    SetDeadline(context);
    v1::WatchJobRequest request;
    request.set_job_id("nobody");
    v1::WatchJobResponse response;
    const auto reader = jobs_->WatchJob(&context, request);
    EXPECT_FALSE(reader->Read(&response));
    EXPECT_EQ(reader->Finish().error_code(), grpc::NOT_FOUND);
  }
  CallRaw(channel_, "/grpc.health.v1.Health/Check", "");
  const std::string address = server_->metrics_address();
  const std::string page = HttpGet(std::stoi(address.substr(address.rfind(':') + 1)), "/metrics");
  EXPECT_THAT(page, HasSubstr("lynx_calls_total{code=\"OK\",method=\"Jobs.SubmitJob\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("lynx_calls_total{code=\"NOT_FOUND\",method=\"Jobs.CancelJob\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("lynx_call_duration_seconds_count{method=\"Jobs.SubmitJob\"} 2\n"));
  EXPECT_THAT(page, Not(HasSubstr("lynx_call_duration_seconds_sum{method=\"Jobs.SubmitJob\"} 0\n"))) << "a commit takes time";
  EXPECT_THAT(page, Not(HasSubstr("Jobs.WatchJob")));
  EXPECT_THAT(page, Not(HasSubstr("ealth")));
}

TEST_F(ServiceTest, TheAddressFileNamesThePort) {
  std::ifstream file(directory_ + "/" + kAddressFile);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, server_->address());
}

TEST_F(ServiceTest, APortInUseIsSaid) {
  ServerOptions options = Options();
  options.data_directory = directory_ + "/second";
  options.listen = server_->address();
  const absl::Status status = Server::Start(options, clock_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "cannot listen on " + server_->address() + ": address already in use; choose another with --listen");
}

TEST_F(ServiceTest, ASecondServerOnTheSameDataIsRefused) {
  const absl::Status status = Server::Start(Options(), clock_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("in use by another lynx-server"));
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/" + kAddressFile)) << "the first one's files stay";
}

}  // namespace
}  // namespace lynx::server
