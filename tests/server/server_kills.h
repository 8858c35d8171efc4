// Kills a lynx-server again and again while clients submit and cancel jobs. Then checks what is left.
#ifndef LYNX_TESTS_SERVER_SERVER_KILLS_H_
#define LYNX_TESTS_SERVER_SERVER_KILLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx::server {

struct KillsOptions {
  std::string directory;  // an empty directory for the server's data
  std::string store;      // the server's --store
  int kills = 5;
  uint64_t seed = 1;
  int clients = 4;
  int submissions_per_second = 200;  // the sum over all clients while the server answers
};

struct KillsResult {
  int64_t submitted = 0;  // acknowledged
  int64_t cancelled = 0;  // acknowledged
  // The number of repetitions of submissions and cancellations, because a call got no answer.
  int64_t retried = 0;
  int64_t already_there = 0;      // number of repeated submissions whose job the server already had
  int64_t killed_starting = 0;    // number of kills without waiting for an answer, up to 100 ms after the start
  std::vector<Nanos> recoveries;  // times from a server's start to its first answer
  std::vector<std::string> violations;
};

// Returns Unavailable if a server could not be started.
absl::StatusOr<KillsResult> KillAgainAndAgain(const KillsOptions& options);

}  // namespace lynx::server

#endif  // LYNX_TESTS_SERVER_SERVER_KILLS_H_
