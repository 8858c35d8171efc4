#include "worker/copies/copy_files.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

constexpr char kPath[] = "copies in memory";
// A short read, such as that of a header or of rows of a few KiB, reads ahead: it requests this number of bytes.
constexpr int64_t kWindowBytes = int64_t{256} << 10;

class RemoteFile : public ReadableFile {
 public:
  RemoteFile(CopyClient& client, CopyKey key, Bytes size) : client_(client), key_(std::move(key)), size_(size) {}

  Bytes size() const override { return size_; }

  absl::Status Read(std::span<char> out) override {
    LYNX_RETURN_IF_ERROR(CheckWithin(static_cast<int64_t>(out.size())));
    while (!out.empty()) {
      const int64_t held = window_at_ + static_cast<int64_t>(window_.size()) - position_;
      if (position_ >= window_at_ && held > 0) {
        const std::span<char> part = out.first(std::min<size_t>(out.size(), static_cast<size_t>(held)));
        std::memcpy(part.data(), window_.data() + (position_ - window_at_), part.size());
        position_ += static_cast<int64_t>(part.size());
        out = out.subspan(part.size());
      } else if (static_cast<int64_t>(out.size()) >= kWindowBytes) {
        LYNX_RETURN_IF_ERROR(client_.Get(key_, position_, out));
        position_ += static_cast<int64_t>(out.size());
        out = {};
      } else {
        window_at_ = position_;
        window_.resize(static_cast<size_t>(std::min(kWindowBytes, size_.value - position_)));
        LYNX_RETURN_IF_ERROR(client_.Get(key_, window_at_, window_));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Skip(int64_t bytes) override {
    LYNX_RETURN_IF_ERROR(CheckWithin(bytes));
    position_ += bytes;
    return absl::OkStatus();
  }

 private:
  absl::Status CheckWithin(int64_t bytes) const {
    if (bytes <= size_.value - position_) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(key_.file, " in another node's memory ends at byte ", size_.value));
  }

  CopyClient& client_;
  const CopyKey key_;
  const Bytes size_;
  int64_t position_ = 0;
  std::vector<char> window_;
  int64_t window_at_ = 0;
};

}  // namespace

absl::Status CopyFiles::ReadOnly(const std::string& path) {
  return absl::InternalError(absl::StrCat(path, ": copies are only read"));
}

CheckpointSummary CopyFiles::Summary() const {
  return {copies_.identity, absl::StrCat(kPath, " of step ", copies_.identity.step), TotalBytes(copies_.files), copies_.files};
}

absl::StatusOr<std::unique_ptr<ReadableFile>> CopyFiles::OpenFile(const std::string& path) {
  const std::string file = path.substr(path.rfind('/') + 1);
  for (size_t i = 0; i < copies_.files.size(); ++i) {
    if (copies_.files[i].file != file) continue;
    CopyKey key{copies_.identity.generation, copies_.identity.step, file};
    if (copies_.nodes[i] == node_) return PosixFileSystem().OpenFile(store_.ShardPath(key));
    return std::make_unique<RemoteFile>(client_(copies_.nodes[i]), std::move(key), copies_.files[i].bytes);
  }
  return absl::NotFoundError(absl::StrCat("there is no ", path));
}

}  // namespace lynx::worker
