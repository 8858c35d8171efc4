#include "cli/server_place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

namespace lynx {

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
  return error ? path : absolute.lexically_normal().string();
}

std::string LocalClusterFile(const std::string& directory) { return directory + "/cluster.json"; }

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
  const std::string directory = LocalDirectory();
  if (directory.empty()) return kDefaultServer;
  const std::string file = LocalClusterFile(directory);
  struct stat owned {};
  if (stat(file.c_str(), &owned) == 0 && owned.st_uid != geteuid() && owned.st_uid != 0) return std::nullopt;
  std::ifstream in(file);
  if (!in) return std::filesystem::exists(file, error) ? std::nullopt : std::optional<std::string>(kDefaultServer);
  const nlohmann::json root = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || !root.contains("serverAddress") || !root["serverAddress"].is_string()) return std::nullopt;
  return root["serverAddress"].get<std::string>();
}

}  // namespace lynx
