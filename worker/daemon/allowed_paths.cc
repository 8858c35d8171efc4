#include "worker/daemon/allowed_paths.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

namespace fs = std::filesystem;

bool IsBelow(const fs::path& path, const fs::path& root) {
  const auto [in_root, in_path] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return in_root == root.end();
}

// True if the path contains a link to something that does not exist. The real target of such a path is unknown.
bool HasDanglingLink(const fs::path& path) {
  fs::path so_far;
  std::error_code error;
  for (const fs::path& part : path) {
    so_far /= part;
    if (fs::is_symlink(fs::symlink_status(so_far, error)) && !fs::exists(so_far, error)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> RootsOf(const std::string& flag, const std::string& text) {
  std::vector<std::string> roots;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ',', absl::SkipEmpty()))) {
    if (part[0] != '/') return absl::InvalidArgumentError(absl::StrCat(flag, " '", part, "' is not an absolute path"));
    std::error_code error;
    const fs::path root = fs::canonical(part, error);
    if (error) return absl::NotFoundError(absl::StrCat(flag, " ", part, ": ", error.message()));
    roots.push_back(root.string());
  }
  return roots;
}

absl::Status CheckWithin(const std::vector<std::string>& roots, const std::string& field, const std::string& path) {
  if (roots.empty()) return absl::OkStatus();
  std::error_code error;
  // Resolves links in the part of the path that exists. The rest of the path cannot have links yet.
  const fs::path target = fs::weakly_canonical(path, error);
  if (error)
    return absl::UnavailableError(absl::StrCat(field, " ", path, " cannot be followed on this node: ", error.message()));
  if (HasDanglingLink(path)) {
    return absl::UnavailableError(
        absl::StrCat(field, " ", path,
                     " has a link to something that is not there on this node, so that nobody knows whether jobs may use it"));
  }
  const bool below = std::any_of(roots.begin(), roots.end(), [&](const std::string& root) { return IsBelow(target, root); });
  if (below) return absl::OkStatus();
  const std::string leads = target.string() == path ? "" : absl::StrCat("it leads to ", target.string(), ", and ");
  return absl::PermissionDeniedError(absl::StrCat(field, " ", path, " is not allowed on this node: ", leads, "jobs may use ",
                                                  absl::StrJoin(roots, ", "), " (lynx-worker --data-root, --checkpoint-root)"));
}

absl::Status CheckPaths(const AllowedPaths& allowed, const RankConfig& config) {
  const DataSpec& data = config.spec.data;
  const std::vector<std::string> ends =
      data.kind == DataKind::kMegatron ? std::vector<std::string>{".bin", ".idx"} : std::vector<std::string>{""};
  for (const std::string& end : ends) {
    LYNX_RETURN_IF_ERROR(CheckWithin(allowed.data_roots, "data.path", data.path + end));
    if (data.validation_path.empty()) continue;
    LYNX_RETURN_IF_ERROR(CheckWithin(allowed.data_roots, "data.validationPath", data.validation_path + end));
  }
  LYNX_RETURN_IF_ERROR(CheckWithin(allowed.checkpoint_roots, "checkpoint.directory", config.checkpoint_directory));
  if (config.spec.checkpoint.from.empty()) return absl::OkStatus();
  return CheckWithin(allowed.checkpoint_roots, "checkpoint.from", config.spec.checkpoint.from);
}

}  // namespace lynx::worker
