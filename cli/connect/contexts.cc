// See contexts.h.
#include "cli/connect/contexts.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

namespace fs = std::filesystem;
constexpr char kSuffix[] = ".json";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path Folder() { return fs::path(ConfigFolder()) / "contexts"; }
fs::path Standing() { return fs::path(ConfigFolder()) / "context.json"; }

absl::Status Failed(const std::string& what, const fs::path& path, const std::error_code& error) {
  return absl::FailedPreconditionError(absl::StrCat("cannot ", what, " ", path.string(), ": ", error.message()));
}

absl::Status Unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const NamedContext& known : ListContexts()) names.push_back(known.name);
  return absl::NotFoundError(absl::StrCat("there is no context ", name,
                                          names.empty() ? ", nor any other; 'lynxctl context add' makes one"
                                                        : absl::StrCat("; there are ", absl::StrJoin(names, ", "))));
}

// Removes the link to the context in use. FailedPrecondition: context.json is not a link that this program made.
absl::Status RemoveLink() {
  std::error_code error;
  if (fs::is_symlink(Standing(), error)) {
    if (!fs::remove(Standing(), error)) return Failed("remove", Standing(), error);
  } else if (fs::exists(Standing(), error)) {
    return absl::FailedPreconditionError(
        absl::StrCat(Standing().string(), " was put there by hand: keep it as one of several with 'lynxctl --context ",
                     Standing().string(), " context add NAME', then remove it"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ConfigFolder() {
  if (const std::string config = Environment("XDG_CONFIG_HOME"); !config.empty()) return config + "/lynx";
  const std::string home = Environment("HOME");
  return home.empty() ? "" : home + "/.config/lynx";
}

absl::StatusOr<std::string> ContextPath(const std::string& name) {
  const bool legible = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
  if (name.empty() || name.size() > 48 || !legible || name.front() == '.') {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", name,
        "' is no name for a context: it is 1 to 48 letters, digits, dots, dashes and underscores, the first no dot"));
  }
  if (ConfigFolder().empty()) return absl::InvalidArgumentError("there is no folder for contexts: set HOME or XDG_CONFIG_HOME");
  return (Folder() / (name + kSuffix)).string();
}

std::string ContextInUse() {
  std::error_code error;
  const fs::path target = fs::read_symlink(Standing(), error);
  if (error || target.parent_path() != Folder() || target.extension() != kSuffix) return "";
  return target.stem();
}

std::vector<NamedContext> ListContexts() {
  std::vector<NamedContext> contexts;
  const std::string in_use = ContextInUse();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(Folder(), error)) {
    if (entry.path().extension() != kSuffix) continue;
    const std::string name = entry.path().stem();
    contexts.push_back({name, entry.path().string(), name == in_use, ReadContextFile(entry.path().string())});
  }
  std::sort(contexts.begin(), contexts.end(), [](const NamedContext& a, const NamedContext& b) { return a.name < b.name; });
  return contexts;
}

absl::Status AddContext(const std::string& name, const ClientContext& context) {
  LYNX_ASSIGN_OR_RETURN(const std::string path, ContextPath(name));
  std::error_code error;
  if (fs::exists(path, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat("there is a context ", name, " already; 'lynxctl context remove ", name, "' makes room"));
  }
  fs::create_directories(Folder(), error);
  if (error) return Failed("make", Folder(), error);
  return WriteContextFile(path, context);
}

absl::Status UseContext(const std::string& name) {
  LYNX_ASSIGN_OR_RETURN(const std::string path, ContextPath(name));
  std::error_code error;
  if (!fs::exists(path, error)) return Unknown(name);
  LYNX_RETURN_IF_ERROR(ReadContextFile(path).status());
  LYNX_RETURN_IF_ERROR(RemoveLink());
  fs::create_symlink(path, Standing(), error);
  return error ? Failed("make", Standing(), error) : absl::OkStatus();
}

absl::Status LeaveContext() { return RemoveLink(); }

absl::Status RemoveContext(const std::string& name) {
  LYNX_ASSIGN_OR_RETURN(const std::string path, ContextPath(name));
  std::error_code error;
  if (!fs::exists(path, error)) return Unknown(name);
  if (ContextInUse() == name) LYNX_RETURN_IF_ERROR(RemoveLink());
  if (!fs::remove(path, error)) return Failed("remove", path, error);
  return absl::OkStatus();
}

}  // namespace lynx::cli
