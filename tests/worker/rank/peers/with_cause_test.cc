#include "worker/rank/peers/with_cause.h"

#include <gtest/gtest.h>

#include "common/status.h"

namespace lynx::worker {
namespace {

TEST(WithCause, TravelsWithAStatus) {
  const absl::Status status = WithCause(absl::NotFoundError("no text"), FaultCause::kData);
  EXPECT_EQ(CauseOf(status), FaultCause::kData);
  EXPECT_EQ(status.message(), "no text");
  EXPECT_EQ(CauseOf(WithCause(status, FaultCause::kDevice)), FaultCause::kData) << "what is known first";
  EXPECT_EQ(CauseOf(WithCause(absl::StatusOr<int>(absl::NotFoundError("")), FaultCause::kData).status()), FaultCause::kData);
  EXPECT_EQ(*WithCause(absl::StatusOr<int>(7), FaultCause::kData), 7);
}

TEST(WithCause, ALostPeerHasNone) {
  EXPECT_EQ(CauseOf(WithCause(absl::UnavailableError("rank 1 is gone"), FaultCause::kData)), FaultCause::kUnknown);
  EXPECT_EQ(CauseOf(WithCause(absl::OkStatus(), FaultCause::kData)), FaultCause::kUnknown);
}

TEST(WithCause, CodesOfTheBackendTell) {
  EXPECT_EQ(CauseOf(WithCauseOfCode(absl::ResourceExhaustedError("arena"))), FaultCause::kMemory);
  EXPECT_EQ(CauseOf(WithCauseOfCode(absl::AbortedError("ECC"))), FaultCause::kDevice);
  EXPECT_EQ(CauseOf(WithCauseOfCode(absl::FailedPreconditionError("arena of 3"))), FaultCause::kProgram);
  EXPECT_EQ(CauseOf(WithCauseOfCode(absl::OutOfRangeError("the loss is nan"))), FaultCause::kProgram);
  EXPECT_EQ(CauseOf(WithCauseOfCode(absl::DataLossError("token 300"))), FaultCause::kToken);
  EXPECT_EQ(CauseOf(WithCauseOfCode(absl::InternalError("?"))), FaultCause::kUnknown);
  EXPECT_EQ(CauseOf(WithCauseOfCode(absl::StatusOr<int>(absl::AbortedError("lost")).status())), FaultCause::kDevice);
  // The status code stays the same if Annotate puts a text before the message.
  EXPECT_EQ(CauseOf(WithCauseOfCode(Annotate(absl::ResourceExhaustedError("arena"), "step 3"))), FaultCause::kMemory);
}

TEST(WithCause, ABadLinkNamesItsOtherEnds) {
  const absl::Status status = LinkFailure("two links", {3, 12});
  EXPECT_EQ(CauseOf(status), FaultCause::kLink);
  EXPECT_EQ(LinkPeersOf(status), (std::vector<int32_t>{3, 12}));
  EXPECT_FALSE(IsPeerLoss(status));
  EXPECT_TRUE(LinkPeersOf(WithCause(absl::DataLossError("no link"), FaultCause::kCheck)).empty());
}

}  // namespace
}  // namespace lynx::worker
