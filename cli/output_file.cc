#include "cli/output_file.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "node/file.h"

namespace lynx {

namespace {

// A device or a pipe is written to, where a file would be put in its place; a link leads to what is written.
absl::Status WriteWhereItIs(const std::string& path, const std::string& content) {
  std::error_code error;
  const std::filesystem::file_status target = std::filesystem::status(path, error);
  if (std::filesystem::exists(target) && !std::filesystem::is_regular_file(target)) {
    std::ofstream out(path, std::ios::binary);
    out << content;
    out.close();
    return out ? absl::OkStatus() : absl::UnavailableError("it cannot be written whole");
  }
  const std::filesystem::path real = std::filesystem::exists(target) ? std::filesystem::canonical(path, error) : std::filesystem::path(path);
  return WriteFileDurably(error ? path : real.string(), content);
}

}  // namespace

absl::Status WriteOutput(const std::string& option, const std::string& path, const std::string& content) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(option, " ", path, ": that is a folder; name a file in it"));
  }
  const absl::Status written = WriteWhereItIs(path, content);
  if (written.ok()) return written;
  return absl::InvalidArgumentError(absl::StrCat(option, " ", path, ": ", std::string(written.message()),
                                                 "; name a file in a folder that exists and that you may write to"));
}

void TellWritten(const std::string& what, const std::string& path, size_t bytes, const std::string& hint) {
  std::fprintf(stderr, "%s: %s, %s; %s\n", what.c_str(), path.c_str(),
               FormatBytes(Bytes(static_cast<int64_t>(bytes))).c_str(), hint.c_str());
}

absl::Status WriteTrace(const std::string& option, const std::string& path, const ChromeTraceText& trace,
                        Nanos length) {
  LYNX_RETURN_IF_ERROR(WriteOutput(option, path, trace.json));
  TellWritten("trace", path, trace.json.size(),
              trace.end >= length
                  ? "open it in ui.perfetto.dev"
                  : absl::StrCat("it tells the first ", FormatDuration(trace.end), " of ", FormatDuration(length),
                                 ", as many actions as viewers bear; open it in ui.perfetto.dev"));
  return absl::OkStatus();
}

}  // namespace lynx
