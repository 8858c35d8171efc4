#include "worker/rank/peers/device_transport.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

struct Card {
  std::array<char, 32> nccl;
  std::array<char, 64> node;
};

// Copies the text into the array, and cuts the text if it does not fit. The array always ends with a zero.
template <size_t kSize>
void Write(const std::string& text, std::array<char, kSize>& to) {
  to.fill(0);
  std::copy_n(text.begin(), std::min(text.size(), kSize - 1), to.begin());
}

template <size_t kSize>
std::string Read(const std::array<char, kSize>& from) {
  return std::string(from.begin(), std::find(from.begin(), from.end(), 0));
}

std::string Text(const std::string& nccl) { return nccl.empty() ? "no NCCL" : nccl; }

}  // namespace

absl::StatusOr<bool> AgreeOnNccl(const std::string& own_nccl, const std::string& node, RankEncryption encryption,
                                 const RankGroup& group) {
  Card own;
  Write(own_nccl, own.nccl);
  Write(node, own.node);
  LYNX_ASSIGN_OR_RETURN(const std::vector<Card> cards, GatherValues(own, group));
  const std::string first = Read(cards[0].nccl);
  for (size_t rank = 1; rank < cards.size(); ++rank) {
    const std::string other = Read(cards[rank].nccl);
    if (other == first) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the GPUs of the job cannot reach each other: rank 0 on ", Read(cards[0].node), " has ", Text(first), ", but rank ",
        rank, " on ", Read(cards[rank].node), " has ", Text(other),
        "; install the same build of Lynx and the same NCCL on both nodes, or keep the job on nodes that are alike (with "
        "lynx-agent --devices cpu the others offer no GPUs)"));
  }
  if (!first.empty() && encryption == RankEncryption::kOn) {
    return absl::FailedPreconditionError(
        absl::StrCat("this cluster encrypts what ranks send to each other (lynx-server --encrypt-ranks on), and ", first,
                     ", which the GPUs of the job would use, cannot: run the job on CPUs (resources.device: cpu), or let the "
                     "operator allow NCCL in plain (--encrypt-ranks except-nccl)"));
  }
  return !first.empty();
}

std::string MachineName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "a node without a name";
}

}  // namespace lynx::worker
