// RankKey names one rank of one generation of a job. RankPhase is the state of that rank on its node. The server and the worker
// daemons use both. Plain data.
#ifndef LYNX_COMMON_RANK_KEY_H_
#define LYNX_COMMON_RANK_KEY_H_

#include <compare>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/ids.h"

namespace lynx {

struct RankKey {
  JobId job;
  Generation generation;
  int32_t rank = 0;
  auto operator<=>(const RankKey&) const = default;
};

// kListening: the rank's socket is bound, but the rank's process has not been started yet.
enum class RankPhase : uint8_t { kListening, kRunning, kExited };

// Text for messages, such as "rank 3 of job j-12 (generation 2)".
inline std::string RankKeyText(const RankKey& key) {
  return absl::StrCat("rank ", key.rank, " of job ", key.job.value, " (generation ", key.generation.value, ")");
}

}  // namespace lynx

#endif  // LYNX_COMMON_RANK_KEY_H_
