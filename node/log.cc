#include "node/log.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace lynx {
namespace {

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

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

bool LogShows(LogLevel level) { return spdlog::should_log(LevelOf(level)); }

void WriteLog(LogLevel level, std::string_view text) {
  spdlog::default_logger_raw()->log(LevelOf(level), spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace lynx
