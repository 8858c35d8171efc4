#include "worker/copies/copy_store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "common/status.h"
#include "worker/checkpoint/checkpoint_index.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/shard_reader.h"
#include "worker/contract/rank_progress.h"

namespace lynx::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kRecordSuffix[] = ".json";
constexpr char kNewSuffix[] = ".new";
constexpr char kResumed[] = "resumed-";
constexpr char kShardPrefix[] = "shard-";
constexpr Bytes kRecordLimit = kKiB * 1024;
constexpr mode_t kFileMode = 0600;

absl::Status FromErrno(const std::string& what) {
  const std::string text = absl::StrCat(what, ": ", std::strerror(errno));
  if (errno == ENOSPC || errno == EDQUOT || errno == ENOMEM) return absl::ResourceExhaustedError(text);
  if (errno == ENOENT) return absl::NotFoundError(text);
  return absl::InternalError(text);
}

std::string Prefix(Generation generation, int64_t step) { return absl::StrCat("g", generation.value, "-s", step); }

// Removes "gG-sS" from the beginning of a name, and sets generation and step. Returns false if the name does not begin like
// this.
bool TakePrefix(std::string_view& name, Generation& generation, int64_t& step) {
  const auto number = [&](const char* before, int64_t& out) {
    if (!name.starts_with(before)) return false;
    name.remove_prefix(std::strlen(before));
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), out);
    if (error != std::errc() || out < 0) return false;
    name.remove_prefix(static_cast<size_t>(end - name.data()));
    return true;
  };
  return number("g", generation.value) && number("-s", step);
}

// Parses the name of a shard's file or of its record. Also accepts the names of files that are still being written.
std::optional<CopyKey> ParseShardName(std::string_view name) {
  CopyKey key;
  if (!TakePrefix(name, key.generation, key.step) || !name.starts_with("-")) return std::nullopt;
  name.remove_prefix(1);
  if (!name.starts_with(kShardPrefix)) return std::nullopt;
  key.file = std::string(name);
  return key;
}

std::optional<ResumedMark> ParseMark(std::string_view name) {
  ResumedMark mark;
  if (!name.starts_with(kResumed)) return std::nullopt;
  name.remove_prefix(std::strlen(kResumed));
  if (!TakePrefix(name, mark.generation, mark.step) || !name.empty()) return std::nullopt;
  return mark;
}

}  // namespace

absl::Status WriteAll(int fd, std::span<const char> bytes, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FromErrno(absl::StrCat("cannot write ", what));
    OwnProgress().Made();
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status ReadAt(int fd, int64_t offset, std::span<char> out, const std::string& what) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FromErrno(absl::StrCat("cannot read ", what));
    if (got == 0) return absl::DataLossError(absl::StrCat(what, " ends at byte ", offset));
    OwnProgress().Made();
    out = out.subspan(static_cast<size_t>(got));
    offset += got;
  }
  return absl::OkStatus();
}

CopyStore::CopyStore(const std::string& directory, const JobId& job)
    : directory_(directory), folder_(absl::StrCat(directory, "/", job.value)) {}

absl::Status CopyStore::Create() const {
  LYNX_RETURN_IF_ERROR(MakeCopiesDirectory(directory_));
  return MakeCopiesDirectory(folder_);
}

std::string CopyStore::ShardPath(const CopyKey& key) const {
  return absl::StrCat(folder_, "/", Prefix(key.generation, key.step), "-", key.file);
}

std::string CopyStore::RecordPath(const CopyKey& key) const { return ShardPath(key) + kRecordSuffix; }

absl::StatusOr<UniqueFd> CopyStore::BeginShard(const CopyKey& key, const std::optional<CopyKey>& replaced) const {
  const std::string path = ShardPath(key);
  ::unlink(RecordPath(key).c_str());
  if (replaced.has_value() && *replaced != key) {
    ::unlink(RecordPath(*replaced).c_str());
    ::rename(ShardPath(*replaced).c_str(), path.c_str());  // if the old file does not exist any more, open creates a new one
  }
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  if (!file.valid()) return FromErrno(absl::StrCat("cannot create ", path));
  return file;
}

absl::Status CopyStore::CheckFence(Generation generation) const {
  for (const std::string& name : NamesIn(folder_)) {
    const std::optional<ResumedMark> mark = ParseMark(name);
    if (!mark.has_value() || mark->generation <= generation) continue;
    return absl::FailedPreconditionError(absl::StrCat("generation ", mark->generation.value,
                                                      " of the job has begun, so generation ", generation.value,
                                                      " makes no copies any more"));
  }
  return absl::OkStatus();
}

absl::Status CopyStore::Complete(const CopyRecord& record) const {
  LYNX_RETURN_IF_ERROR(CheckFence(record.identity.generation));
  const std::string shard = ShardPath(record.key()), path = RecordPath(record.key()), fresh = path + kNewSuffix;
  // The file that the shard has overwritten may have been longer, so the rest of it is cut off.
  if (::truncate(shard.c_str(), record.shard.bytes.value) != 0) return FromErrno(absl::StrCat("cannot cut ", shard));
  const UniqueFd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  if (!file.valid()) return FromErrno(absl::StrCat("cannot create ", fresh));
  LYNX_RETURN_IF_ERROR(WriteAll(file.get(), EncodeIndex({record.identity, {record.shard}}), fresh));
  if (::rename(fresh.c_str(), path.c_str()) != 0) return FromErrno(absl::StrCat("cannot rename ", fresh));
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> CopyStore::OpenShard(const CopyKey& key) const {
  const std::string path = ShardPath(key);
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) return FromErrno(absl::StrCat("cannot open ", path));
  return file;
}

absl::Status CopyStore::Verify(const CopyRecord& record) const {
  ShardRecord stored = record.shard;
  stored.file = fs::path(ShardPath(record.key())).filename().string();
  return VerifyShardFile(PosixFileSystem(), folder_, stored);
}

void CopyStore::Remove(const CopyKey& key) const {
  ::unlink(RecordPath(key).c_str());
  ::unlink(ShardPath(key).c_str());
}

NodeCopies CopyStore::List() const {
  NodeCopies found;
  for (const std::string& name : NamesIn(folder_)) {
    if (const std::optional<ResumedMark> mark = ParseMark(name)) found.resumed.push_back(*mark);
    if (!name.ends_with(kRecordSuffix)) continue;
    const std::optional<CopyKey> key = ParseShardName(name.substr(0, name.size() - std::strlen(kRecordSuffix)));
    if (!key.has_value()) continue;
    const std::string path = absl::StrCat(folder_, "/", name);
    const absl::StatusOr<std::string> text = ReadWholeFile(PosixFileSystem(), path, kRecordLimit);
    absl::StatusOr<CheckpointIndex> index =
        text.ok() ? DecodeIndex(*text, IndexKind::kOneShard) : absl::StatusOr<CheckpointIndex>(text.status());
    if (index.ok()) {
      CopyRecord record{index->identity, index->files.front()};
      struct stat shard {};
      const bool whole =
          record.key() == *key && ::stat(ShardPath(*key).c_str(), &shard) == 0 && shard.st_size == record.shard.bytes.value;
      if (whole) {
        found.copies.push_back(std::move(record));
        continue;
      }
      index = absl::DataLossError("its shard is missing or of another size");
    }
    found.damaged.push_back(absl::StrCat(path, ": ", std::string(index.status().message())));
  }
  return found;
}

absl::Status CopyStore::MarkResumed(const ResumedMark& mark) const {
  const std::string path = absl::StrCat(folder_, "/", kResumed, Prefix(mark.generation, mark.step));
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  return file.valid() ? absl::OkStatus() : FromErrno(absl::StrCat("cannot create ", path));
}

void CopyStore::RemoveOlderThan(Generation generation) const {
  for (const std::string& name : NamesIn(folder_)) {
    const std::optional<CopyKey> key = ParseShardName(name);
    if (key.has_value() && key->generation < generation) ::unlink(absl::StrCat(folder_, "/", name).c_str());
  }
}

Bytes CopyStore::Used() const {
  Bytes used;
  for (const std::string& name : NamesIn(folder_)) {
    struct stat file {};
    if (::stat(absl::StrCat(folder_, "/", name).c_str(), &file) == 0) used += Bytes(file.st_size);
  }
  return used;
}

}  // namespace lynx::worker
