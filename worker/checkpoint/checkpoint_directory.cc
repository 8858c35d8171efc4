#include "worker/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status.h"
#include "worker/checkpoint/checkpoint_index.h"

namespace lynx::worker {
namespace {

// The largest size of an index that is read. An index with the largest allowed number of shards has about 10 MiB.
constexpr Bytes kIndexLimit = kMiB * 64;
constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kAttemptPrefix = ".step-";
constexpr std::string_view kRemovedPrefix = ".removed-step-";
constexpr std::string_view kFencePrefix = ".fence-";

std::optional<int64_t> ParseNumber(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Returns the step in the name of a visible checkpoint, or nullopt for any other name.
std::optional<int64_t> ParseStepName(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const std::optional<int64_t> step = ParseNumber(name.substr(kStepPrefix.size()));
  return step && StepName(*step) == name ? step : std::nullopt;
}

std::string OwnerSuffix(const JobId& job, Generation generation) { return absl::StrCat(job.value, ".g", generation.value); }

// Returns the generation in a name that begins with `prefix` and ends with the job's OwnerSuffix, or nullopt for any other
// name. Between these parts, an attempt's name has only the step and a dot, and a fence's name has nothing. So the names of a
// job with a longer id are not mistaken for names of this job.
std::optional<Generation> OwnGeneration(std::string_view name, std::string_view prefix, const JobId& job) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  if (prefix == kAttemptPrefix) {
    const size_t dot = name.find('.');
    if (dot == std::string_view::npos || !ParseNumber(name.substr(0, dot))) return std::nullopt;
    name.remove_prefix(dot + 1);
  }
  const std::string own = absl::StrCat(job.value, ".g");
  if (!name.starts_with(own)) return std::nullopt;
  const std::optional<int64_t> generation = ParseNumber(name.substr(own.size()));
  return generation ? std::optional(Generation(*generation)) : std::nullopt;
}

absl::Status Replaced(const std::string& what, Generation newer, const CheckpointIdentity& identity) {
  return absl::AlreadyExistsError(absl::StrCat(what, " generation ", newer.value, " of job ", identity.job.value,
                                               ": this generation, ", identity.generation.value, ", is replaced"));
}

absl::Status CheckFenceNames(const std::string& directory, const std::vector<std::string>& names,
                             const CheckpointIdentity& identity) {
  for (const std::string& name : names) {
    const std::optional<Generation> fence = OwnGeneration(name, kFencePrefix, identity.job);
    if (fence && *fence > identity.generation) {
      return Replaced(absl::StrCat(directory, " was taken over by"), *fence, identity);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string StepName(int64_t step) { return absl::StrFormat("step-%08d", step); }

std::string AttemptPath(const std::string& directory, const CheckpointIdentity& identity) {
  return absl::StrCat(directory, "/.", StepName(identity.step), ".", OwnerSuffix(identity.job, identity.generation));
}

std::string RemovedPath(const std::string& directory, int64_t step) {
  return absl::StrCat(directory, "/.removed-", StepName(step));
}

std::string FencePath(const std::string& directory, const JobId& job, Generation generation) {
  return absl::StrCat(directory, "/", std::string(kFencePrefix), OwnerSuffix(job, generation));
}

std::optional<CheckpointPlace> ParseCheckpointPath(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const size_t slash = path.rfind('/');
  const std::optional<int64_t> step = ParseStepName(path.substr(slash == std::string::npos ? 0 : slash + 1));
  if (!step) return std::nullopt;
  const std::string directory = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  return CheckpointPlace{directory, *step};
}

absl::StatusOr<CheckpointSummary> ReadSummary(FileSystem& files, const std::string& directory, int64_t step) {
  const std::string path = CheckpointPath(directory, step);
  const std::string index_path = absl::StrCat(path, "/", kIndexFile);
  const absl::StatusOr<std::string> text = ReadWholeFile(files, index_path, kIndexLimit);
  if (absl::IsNotFound(text.status())) {
    const absl::Status folder = files.List(path).status();
    if (absl::IsNotFound(folder)) return absl::NotFoundError(absl::StrCat("there is no checkpoint ", path));
    return absl::DataLossError(absl::StrCat(index_path, " is missing"));
  }
  LYNX_RETURN_IF_ERROR(text.status());
  absl::StatusOr<CheckpointIndex> index = DecodeIndex(*text);
  if (!index.ok()) return Annotate(index.status(), index_path);
  if (index->identity.step != step) {
    return absl::DataLossError(absl::StrCat(index_path, " is of step ", index->identity.step));
  }
  const Bytes bytes = TotalBytes(index->files);
  return CheckpointSummary{std::move(index->identity), path, bytes, std::move(index->files)};
}

absl::StatusOr<DirectoryContents> ReadDirectory(FileSystem& files, const std::string& directory) {
  DirectoryContents contents;
  LYNX_ASSIGN_OR_RETURN(contents.names, files.List(directory));
  for (const std::string& name : contents.names) {
    const std::optional<int64_t> step = ParseStepName(name);
    if (!step) continue;
    absl::StatusOr<CheckpointSummary> summary = ReadSummary(files, directory, *step);
    if (summary.ok()) {
      contents.checkpoints.push_back(*std::move(summary));
    } else {
      contents.damaged.push_back(std::string(summary.status().message()));
    }
  }
  std::sort(contents.checkpoints.begin(), contents.checkpoints.end(),
            [](const CheckpointSummary& a, const CheckpointSummary& b) { return a.identity.step > b.identity.step; });
  return contents;
}

absl::Status CheckNotReplaced(const std::string& directory, const DirectoryContents& contents,
                              const CheckpointIdentity& identity) {
  LYNX_RETURN_IF_ERROR(CheckFenceNames(directory, contents.names, identity));
  for (const CheckpointSummary& checkpoint : contents.checkpoints) {
    const CheckpointIdentity& there = checkpoint.identity;
    if (there.job != identity.job || there.generation <= identity.generation) continue;
    return Replaced(absl::StrCat(checkpoint.path, " was published by"), there.generation, identity);
  }
  return absl::OkStatus();
}

absl::Status CheckFence(FileSystem& files, const std::string& directory, const CheckpointIdentity& identity) {
  LYNX_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory));
  return CheckFenceNames(directory, names, identity);
}

std::vector<std::string> LeftOvers(const DirectoryContents& contents, const CheckpointIdentity& identity) {
  std::vector<std::string> left_overs;
  for (const std::string& name : contents.names) {
    std::optional<Generation> owner = OwnGeneration(name, kAttemptPrefix, identity.job);
    if (!owner) owner = OwnGeneration(name, kFencePrefix, identity.job);
    const bool outdated = owner && *owner < identity.generation;
    if (outdated || name.starts_with(kRemovedPrefix)) left_overs.push_back(name);
  }
  return left_overs;
}

}  // namespace lynx::worker
