#include "node/log.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace lynx {

absl::Status StartLog(const std::string& level) {
  const std::string known[] = {"trace", "debug", "info", "warn", "error"};
  if (std::find(std::begin(known), std::end(known), level) == std::end(known)) {
    return absl::InvalidArgumentError(absl::StrCat("--log-level '", level, "' is not one of trace, debug, info, warn, error"));
  }
  spdlog::set_default_logger(spdlog::stderr_logger_mt("lynx"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
  return absl::OkStatus();
}

}  // namespace lynx
