#include "cli/connect/server_place.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/fd.h"

namespace lynx::cli {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string StandingContextFile() {
  if (const std::string config = Environment("XDG_CONFIG_HOME"); !config.empty()) return config + "/lynx/context.json";
  const std::string home = Environment("HOME");
  return home.empty() ? "" : home + "/.config/lynx/context.json";
}

std::string LocalDirectory() {
  if (const std::string home = Environment("LYNX_HOME"); !home.empty()) return Absolute(home + "/local");
  const std::string home = Environment("HOME");
  return home.empty() ? "" : Absolute(home + "/.lynx/local");
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return path;
  std::string normal = absolute.lexically_normal().string();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

std::string LocalClusterFile(const std::string& directory) { return directory + "/cluster.json"; }

absl::StatusOr<std::string> ReadLocalClusterFile(const std::string& directory) {
  if (directory.empty())
    return absl::NotFoundError("there is no local cluster: neither HOME nor LYNX_HOME says where it would be");
  const std::string file = LocalClusterFile(directory);
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat found {};
  if (!fd.valid() || ::fstat(fd.get(), &found) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return absl::NotFoundError(
          absl::StrCat("there is no local cluster in ", directory, "; start one with 'lynxctl local up'"));
    }
    return absl::PermissionDeniedError(absl::StrCat("cannot read ", file, ": ", std::strerror(errno)));
  }
  // Checks the owner of the file that is open, because the file's name may mean another file by now.
  if (found.st_uid != ::geteuid() && found.st_uid != 0) {
    return absl::FailedPreconditionError(absl::StrCat(file, " belongs to another user (", found.st_uid,
                                                      "); set LYNX_HOME to a folder of your own, or name one with --dir"));
  }
  std::string text(static_cast<size_t>(found.st_size), '\0');
  const ssize_t got = ::read(fd.get(), text.data(), text.size());
  if (got < 0) return absl::PermissionDeniedError(absl::StrCat("cannot read ", file, ": ", std::strerror(errno)));
  text.resize(static_cast<size_t>(got));
  return text;
}

std::optional<std::string> PlainServer(const std::string& flag) {
  for (const char* name : {"LYNX_CONTEXT", "LYNX_CA_FILE", "LYNX_TOKEN_FILE"}) {
    if (!Environment(name).empty()) return std::nullopt;
  }
  std::error_code error;
  if (const std::string standing = StandingContextFile(); !standing.empty() && std::filesystem::exists(standing, error)) {
    return std::nullopt;
  }
  if (!flag.empty()) return flag;
  if (std::string server = Environment("LYNX_SERVER"); !server.empty()) return server;
  const absl::StatusOr<std::string> text = ReadLocalClusterFile(LocalDirectory());
  if (absl::IsNotFound(text.status())) return kDefaultServer;
  if (!text.ok()) return std::nullopt;
  const nlohmann::json root = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || !root.contains("serverAddress") || !root["serverAddress"].is_string()) return std::nullopt;
  return root["serverAddress"].get<std::string>();
}

}  // namespace lynx::cli
