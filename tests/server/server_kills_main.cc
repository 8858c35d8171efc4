// Kills a lynx-server again and again under load, and checks what is left:
//   lynx_server_kills KILLS [SEED]
// Exit codes: 0 nothing is lost; 1 something is lost; 2 wrong arguments, or no server could be started.
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "tests/server/server_kills.h"

int main(int argc, char** argv) {
  lynx::server::KillsOptions options;
  if (argc < 2 || argc > 3 || !absl::SimpleAtoi(argv[1], &options.kills) || options.kills < 1 ||
      (argc == 3 && !absl::SimpleAtoi(argv[2], &options.seed))) {
    std::fprintf(stderr, "usage: lynx_server_kills KILLS [SEED]\n");
    return 2;
  }
  std::string pattern = (std::filesystem::temp_directory_path() / "lynx_kills_XXXXXX").string();
  options.directory = ::mkdtemp(pattern.data());
  absl::StatusOr<lynx::server::KillsResult> result = lynx::server::KillAgainAndAgain(options);
  std::filesystem::remove_all(options.directory);
  if (!result.ok()) {
    std::fprintf(stderr, "lynx_server_kills: %s\n", std::string(result.status().message()).c_str());
    return 2;
  }
  std::vector<lynx::Nanos>& times = result->recoveries;
  std::sort(times.begin(), times.end());
  std::printf("kills %d (%lld of a server that was starting), seed %llu\n", options.kills,
              static_cast<long long>(result->killed_starting), static_cast<unsigned long long>(options.seed));
  std::printf("acknowledged: %lld jobs, %lld cancellations\n", static_cast<long long>(result->submitted),
              static_cast<long long>(result->cancelled));
  std::printf("calls made again: %lld; submissions that had been taken though nobody heard: %lld\n",
              static_cast<long long>(result->retried), static_cast<long long>(result->already_there));
  if (!times.empty()) {
    std::printf("from start to first answer: median %.0f ms, most %.0f ms\n",
                static_cast<double>(times[times.size() / 2].value) / 1e6, static_cast<double>(times.back().value) / 1e6);
  }
  std::printf("violations: %zu\n", result->violations.size());
  for (const std::string& violation : result->violations) std::printf("  %s\n", violation.c_str());
  return result->violations.empty() ? 0 : 1;
}
