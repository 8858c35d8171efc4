// MeasurementCache: keeps measurements in files, so that a restarted agent need not measure again. A key is a text with
// everything that the result depends on; a result is found only under exactly the same key. A damaged file counts as
// missing. Not thread-safe; one process per directory.
#ifndef LYNX_AGENT_MEASUREMENT_CACHE_H_
#define LYNX_AGENT_MEASUREMENT_CACHE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/measurement.h"

namespace lynx::agent {

// The part of the key that all measurements of a node share: the devices, the link's pacing and address, and the digest
// of the rank binary. NotFound: the binary is missing.
absl::StatusOr<std::string> NodeKey(const MeasurementOptions& options, const std::vector<NodeDevice>& devices);

class MeasurementCache {
 public:
  MeasurementCache(std::string directory, std::string node_key)
      : directory_(std::move(directory)), node_key_(std::move(node_key)) {}

  // `shapes`: as in MeasureDevices.
  std::optional<MeasureResult> FindDevices(const std::vector<LayerShape>& shapes) const;
  std::optional<LinkResult> FindLink() const;
  std::optional<GpuLinksResult> FindGpuLinks() const;
  // Best effort: a result that cannot be written is logged and will be measured again.
  void KeepDevices(const std::vector<LayerShape>& shapes, const MeasureResult& result);
  void KeepLink(const LinkResult& result);
  void KeepGpuLinks(const GpuLinksResult& result);

  static constexpr size_t kMaxFiles = 256;  // if there are more, the oldest files are deleted

 private:
  std::string PathOf(const std::string& key) const;
  std::optional<std::string> Find(const std::string& key) const;
  void Keep(const std::string& key, const std::string& result);

  const std::string directory_;
  const std::string node_key_;
};

}  // namespace lynx::agent

#endif  // LYNX_AGENT_MEASUREMENT_CACHE_H_
