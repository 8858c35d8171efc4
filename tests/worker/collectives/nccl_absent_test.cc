// Tests the error of a build without NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/collectives/nccl_communicator.h"
#include "worker/collectives/peer_proof.h"

namespace lynx::worker {
namespace {

TEST(NcclAbsent, HasNoName) { EXPECT_EQ(NcclName(), ""); }

TEST(NcclAbsent, SaysWhatTheBuildLacks) {
  CommunicatorOptions options;
  options.peers.resize(1);
  options.secret = NewConnectionSecret();
  const std::unique_ptr<Communicator> host = ConnectTcp(options).value();
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  const absl::Status status = MakeNcclCommunicator({}, *host, *backend).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("this build has no NCCL"));
}

}  // namespace
}  // namespace lynx::worker
