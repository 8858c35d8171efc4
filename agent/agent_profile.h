// AgentProfile: what the agent knows of its node's speed, what it is asked to know, and what it should measure next.
// Pure state: it measures nothing itself. Not thread-safe.
//
// Order: the link, then those between the node's GPUs, if it has more than one, then the general rates, then the wanted
// shapes in the order in which the server named them. What failed is not tried again while it stays wanted; when the server
// stops wanting a shape and later wants it again, it is.
#ifndef LYNX_AGENT_AGENT_PROFILE_H_
#define LYNX_AGENT_AGENT_PROFILE_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cost/hardware_profile.h"
#include "worker/rank/measure/measure.h"

namespace lynx {

enum class MeasureTaskKind : uint8_t { kLink, kGpuLinks, kRates, kShape };

struct MeasureTask {
  MeasureTaskKind kind = MeasureTaskKind::kLink;
  LayerShape shape;  // kShape
  bool operator==(const MeasureTask&) const = default;
};

class AgentProfile {
 public:
  // `fallback_link` stands while the link has not been measured. `inter_node_bytes_per_second` > 0 states the rate
  // between nodes; 0: as measured within the node, over its address. `gpus`: 0 on a node of CPUs.
  AgentProfile(LinkCost fallback_link, int64_t inter_node_bytes_per_second, size_t gpus = 0)
      : link_{.link = fallback_link}, inter_node_bytes_per_second_(inter_node_bytes_per_second), gpu_links_tried_(gpus < 2) {}

  // The first kMaxShapes of them.
  void SetWanted(const std::vector<LayerShape>& shapes);
  std::optional<MeasureTask> Next() const;

  void RecordLink(const absl::StatusOr<LinkResult>& result);
  // Without them plans count with the link that is measured over the node's address.
  void RecordGpuLinks(const absl::StatusOr<GpuLinksResult>& result);
  // For kRates and kShape. A result without the shape is a failure of the shape.
  void RecordDevices(const MeasureTask& task, const absl::StatusOr<MeasureResult>& result);

  // nullopt before any device measurement has succeeded.
  std::optional<HardwareProfile> Profile() const;
  // That NCCL takes of a GPU for a rank's routes, at most kMaxRoutes; 0 where it was not measured.
  Bytes nccl_memory() const;
  std::vector<LayerShape> FailedShapes() const;
  // Why something could not be measured; "" when nothing failed.
  std::string Failure() const;

  static constexpr size_t kMaxShapes = 64;
  static constexpr int64_t kMaxRoutes = 8;

 private:
  void Learn(const MeasureResult& result);

  LinkResult link_;
  const int64_t inter_node_bytes_per_second_;
  bool link_tried_ = false;
  bool gpu_links_tried_;
  std::optional<GpuLinksResult> gpu_links_;
  std::string gpu_links_failure_;
  bool rates_tried_ = false;
  std::string link_failure_;
  std::string rates_failure_;
  std::optional<MeasureResult> rates_;  // its shapes are in measured_
  std::vector<ShapeTimes> measured_;    // oldest first
  std::vector<LayerShape> wanted_;
  std::map<LayerShape, std::string> failed_;
};

}  // namespace lynx

#endif  // LYNX_AGENT_AGENT_PROFILE_H_
