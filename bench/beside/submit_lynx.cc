// Submits one job file COUNT times over one gRPC channel. Each submission starts when the previous one is acknowledged.
//
//   submit_lynx HOST:PORT JOBFILE COUNT
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>

#include "cli/connect/submission.h"
#include "cli/spec/job_file.h"
#include "lynx/v1/jobs.grpc.pb.h"
#include "node/daemon.h"
#include "proto/convert.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: submit_lynx HOST:PORT JOBFILE COUNT\n");
    return 2;
  }
  lynx::StopWatchingLockOrder();
  const auto spec = lynx::cli::ReadJobFile(argv[2]);
  if (!spec.ok()) {
    std::fprintf(stderr, "submit_lynx: %s\n", std::string(spec.status().message()).c_str());
    return 2;
  }
  const auto stub = lynx::v1::Jobs::NewStub(grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()));
  for (int left = std::atoi(argv[3]); left > 0; --left) {
    grpc::ClientContext context;
    lynx::v1::SubmitJobRequest request;
    *request.mutable_spec() = lynx::ToProto(*spec);
    request.set_idempotency_key(lynx::cli::FreshKey());
    lynx::v1::SubmitJobResponse response;
    const grpc::Status status = stub->SubmitJob(&context, request, &response);
    if (!status.ok()) {
      std::fprintf(stderr, "submit_lynx: %s\n", status.error_message().c_str());
      return 1;
    }
  }
}
