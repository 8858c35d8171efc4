#include "worker/rank/peers/same_data.h"

#include <cstring>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

constexpr size_t kDigestDigits = 64;

struct Card {
  int64_t kind;
  int64_t data_bytes;
  int64_t shard_bytes;
  char data_sha256[kDigestDigits];
};

DataFingerprint DataOf(const Card& card) {
  return {static_cast<DataKind>(card.kind), Bytes(card.data_bytes), std::string(card.data_sha256, kDigestDigits)};
}

}  // namespace

absl::StatusOr<Bytes> CheckSameData(const DataFingerprint& data, Bytes own_shard, const RankGroup& group) {
  LYNX_CHECK(data.sha256.size() == kDigestDigits);
  Card own{static_cast<int64_t>(data.kind), data.bytes.value, own_shard.value, {}};
  std::memcpy(own.data_sha256, data.sha256.data(), kDigestDigits);
  LYNX_ASSIGN_OR_RETURN(const std::vector<Card> cards, GatherValues(own, group));

  Bytes checkpoint;
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    checkpoint += Bytes(cards[rank].shard_bytes);
    const DataFingerprint first = DataOf(cards[0]), other = DataOf(cards[rank]);
    if (first == other) continue;
    return absl::FailedPreconditionError(absl::StrCat("the ranks read different data: rank 0 has ", FingerprintText(first),
                                                      "; rank ", rank, " has ", FingerprintText(other),
                                                      "; give every node the same data.path on a shared file system, or equal "
                                                      "copies of it"));
  }
  return checkpoint;
}

}  // namespace lynx::worker
