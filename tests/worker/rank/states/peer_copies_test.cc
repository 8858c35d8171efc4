// Tests how much of a node's memory copies may use, and how much they need.
#include "worker/rank/states/peer_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx::worker {
namespace {

using testing::ElementsAre;

TEST(PeerCopies, TakeNoMoreThanLimitFileSystemAndHalfTheMemory) {
  const CopyRoom plenty{.free = Bytes(1000), .available = Bytes(3000)};
  EXPECT_EQ(MostCopies(plenty), Bytes(1000));
  CopyRoom room = plenty;
  room.available = Bytes(800);
  EXPECT_EQ(MostCopies(room), Bytes(400));
  // The job's present copies are deleted when it has newer ones. So their memory counts as free.
  room.own = Bytes(100);
  EXPECT_EQ(MostCopies(room), Bytes(500));
  room.limit = Bytes(450);
  EXPECT_EQ(MostCopies(room), Bytes(450));
  room.others = Bytes(430);
  EXPECT_EQ(MostCopies(room), Bytes(20));
  room.others = Bytes(9999);
  EXPECT_EQ(MostCopies(room), Bytes(0));
}

TEST(PeerCopies, NeedTwoFilesForEachShardInEachPlace) {
  const std::vector<int32_t> nodes = {0, 0, 1};
  const std::vector<ShardKeepers> keepers = {{.file = "a", .first = 0, .second = 2}, {.file = "b", .first = 1, .second = -1}};
  const std::vector<Bytes> bytes = CopiesByNode(keepers, nodes, {kMiB * 100, kMiB * 10, kMiB * 1});
  EXPECT_THAT(bytes, ElementsAre(kMiB * 221 + kMiB, kMiB * 201));  // with 512 KiB for the header of each file
}

}  // namespace
}  // namespace lynx::worker
