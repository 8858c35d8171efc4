#include "agent/measurement_cache.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/digest.h"
#include "common/status.h"
#include "node/file.h"
#include "node/log.h"

namespace lynx::agent {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBinaryLimitBytes = 1 << 30;
// Ends the key in a file. No key contains it, because keys consist of digests, names and JSON on one line.
constexpr char kSeparator[] = "\n---\n";

std::string DevicesKey(const std::vector<LayerShape>& shapes) {
  return absl::StrCat("devices ", MeasureRequestText({.shapes = shapes}));
}
constexpr char kLinkKey[] = "link", kGpuLinksKey[] = "links between GPUs";

}  // namespace

absl::StatusOr<std::string> NodeKey(const MeasurementOptions& options, const std::vector<NodeDevice>& devices) {
  LYNX_ASSIGN_OR_RETURN(const std::string binary, ReadFile(options.rank_binary, kBinaryLimitBytes));
  std::string key = absl::StrCat("binary ", Sha256Hex(binary), "; address ", options.address, "; pacing ",
                                 options.pacing_bytes_per_second, options.encrypt ? "; encrypted" : "");
  for (const NodeDevice& device : devices) {
    absl::StrAppend(&key, "; ", EnumName(device.kind), " ", device.model, device.uuid, " on ",
                    absl::StrJoin(device.cores, ","));
  }
  return key;
}

std::optional<MeasureResult> MeasurementCache::FindDevices(const std::vector<LayerShape>& shapes) const {
  const std::optional<std::string> text = Find(DevicesKey(shapes));
  if (!text.has_value()) return std::nullopt;
  absl::StatusOr<MeasureResult> result = ParseMeasureResult(*text);
  return result.ok() ? std::optional(*std::move(result)) : std::nullopt;
}

std::optional<LinkResult> MeasurementCache::FindLink() const {
  const std::optional<std::string> text = Find(kLinkKey);
  if (!text.has_value()) return std::nullopt;
  absl::StatusOr<LinkResult> result = ParseLinkResult(*text);
  return result.ok() ? std::optional(*std::move(result)) : std::nullopt;
}

std::optional<GpuLinksResult> MeasurementCache::FindGpuLinks() const {
  const std::optional<std::string> text = Find(kGpuLinksKey);
  if (!text.has_value()) return std::nullopt;
  absl::StatusOr<GpuLinksResult> result = ParseGpuLinksResult(*text);
  return result.ok() ? std::optional(*std::move(result)) : std::nullopt;
}

void MeasurementCache::KeepDevices(const std::vector<LayerShape>& shapes, const MeasureResult& result) {
  Keep(DevicesKey(shapes), MeasureResultText(result));
}

void MeasurementCache::KeepLink(const LinkResult& result) { Keep(kLinkKey, LinkResultText(result)); }

void MeasurementCache::KeepGpuLinks(const GpuLinksResult& result) { Keep(kGpuLinksKey, GpuLinksResultText(result)); }

std::string MeasurementCache::PathOf(const std::string& key) const {
  return absl::StrCat(directory_, "/", Sha256Hex(absl::StrCat(node_key_, "\n", key)), ".measured");
}

std::optional<std::string> MeasurementCache::Find(const std::string& key) const {
  const absl::StatusOr<std::string> text = ReadFile(PathOf(key), 16 << 20);
  if (!text.ok()) return std::nullopt;
  const std::string head = absl::StrCat(node_key_, "\n", key, kSeparator);
  if (text->compare(0, head.size(), head) != 0) return std::nullopt;
  return text->substr(head.size());
}

void MeasurementCache::Keep(const std::string& key, const std::string& result) {
  absl::Status kept = MakeDirectories(directory_);
  if (kept.ok()) kept = WriteFileDurably(PathOf(key), absl::StrCat(node_key_, "\n", key, kSeparator, result));
  if (!kept.ok()) LogWarn("a measurement is not kept: {}", std::string(kept.message()));

  std::vector<std::pair<fs::file_time_type, std::string>> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, error)) {
    if (entry.path().extension() == ".measured") files.push_back({entry.last_write_time(error), entry.path().string()});
  }
  std::sort(files.rbegin(), files.rend());
  for (size_t i = kMaxFiles; i < files.size(); ++i) fs::remove(files[i].second, error);
}

}  // namespace lynx::agent
