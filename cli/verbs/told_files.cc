// See told_files.h.
#include "cli/verbs/told_files.h"

#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/utf8.h"

namespace lynx::cli {
namespace {

constexpr int64_t kTellEvery = 16 << 20;  // bytes

class ToldReadable : public worker::ReadableFile {
 public:
  ToldReadable(ToldFiles& files, std::string path, std::unique_ptr<worker::ReadableFile> file)
      : files_(files), path_(std::move(path)), file_(std::move(file)) {}
  Bytes size() const override { return file_->size(); }
  absl::Status Read(std::span<char> out) override {
    files_.Read(path_, static_cast<int64_t>(out.size()));
    return file_->Read(out);
  }
  absl::Status Skip(int64_t bytes) override { return file_->Skip(bytes); }

 private:
  ToldFiles& files_;
  const std::string path_;
  const std::unique_ptr<worker::ReadableFile> file_;
};

class ToldWritable : public worker::WritableFile {
 public:
  ToldWritable(ToldFiles& files, std::string path, std::unique_ptr<worker::WritableFile> file)
      : files_(files), path_(std::move(path)), file_(std::move(file)) {}
  absl::Status Append(std::string_view bytes) override {
    files_.Wrote(path_, static_cast<int64_t>(bytes.size()));
    return file_->Append(bytes);
  }
  absl::Status Sync() override { return file_->Sync(); }

 private:
  ToldFiles& files_;
  const std::string path_;
  const std::unique_ptr<worker::WritableFile> file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<worker::WritableFile>> ToldFiles::CreateFile(const std::string& path) {
  LYNX_ASSIGN_OR_RETURN(auto file, disk_.CreateFile(path));
  Tell(path);
  return std::make_unique<ToldWritable>(*this, path, std::move(file));
}

absl::StatusOr<std::unique_ptr<worker::ReadableFile>> ToldFiles::OpenFile(const std::string& path) {
  LYNX_ASSIGN_OR_RETURN(auto file, disk_.OpenFile(path));
  Tell(path);
  return std::make_unique<ToldReadable>(*this, path, std::move(file));
}

void ToldFiles::Count(const std::string& path, std::atomic<int64_t>& total, int64_t bytes) {
  total += bytes;
  if ((untold_ += bytes) < kTellEvery) return;
  untold_ = 0;
  Tell(path);
}

void ToldFiles::Tell(const std::string& path) {
  // The amounts come first, because a narrow terminal shows the beginning.
  std::string text;
  if (read_ > 0) absl::StrAppend(&text, FormatBytes(Bytes(read_)), " read, ");
  if (written_ > 0) absl::StrAppend(&text, FormatBytes(Bytes(written_)), " written, ");
  // The folder may come from a stranger. A terminal would execute escape codes in the name of a file.
  tell_(absl::StrCat(text, VisibleLine(std::filesystem::path(path).filename().string())));
}

}  // namespace lynx::cli
