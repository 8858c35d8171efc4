// AgentProfile: what the agent knows about its node's speed, what the server wants to know, and what to measure next. Pure
// state: it measures nothing itself. Not thread-safe.
//
// Order of measurements: the link; then the links between the node's GPUs, if it has several; then the general rates; then the
// wanted shapes, in the order in which the server named them. A shape that failed is not tried again as long as the server
// wants it. It is tried again if the server no longer wants it and wants it again later.
#ifndef LYNX_AGENT_AGENT_PROFILE_H_
#define LYNX_AGENT_AGENT_PROFILE_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cost/hardware_profile.h"
#include "worker/contract/measurement.h"

namespace lynx::agent {

enum class MeasureTaskKind : uint8_t { kLink, kGpuLinks, kRates, kShape };

struct MeasureTask {
  MeasureTaskKind kind = MeasureTaskKind::kLink;
  LayerShape shape;  // the shape to measure, for kShape
  bool operator==(const MeasureTask&) const = default;
};

class AgentProfile {
 public:
  // `fallback_link` is used until the link has been measured. `inter_node_bytes_per_second`: the rate between nodes; 0: the
  // rate that was measured within the node is used instead. `gpus`: number of GPUs; 0 on a node of CPUs.
  AgentProfile(LinkCost fallback_link, int64_t inter_node_bytes_per_second, size_t gpus = 0)
      : link_{.link = fallback_link}, inter_node_bytes_per_second_(inter_node_bytes_per_second), gpu_links_tried_(gpus < 2) {}

  // Shapes after the first kMaxShapes are ignored.
  void SetWanted(const std::vector<LayerShape>& shapes);
  std::optional<MeasureTask> Next() const;

  void RecordLink(const absl::StatusOr<LinkResult>& result);
  // Records the links between the GPUs. If their measurement failed, plans use the link of kind kLink, which was measured over
  // the node's address.
  void RecordGpuLinks(const absl::StatusOr<GpuLinksResult>& result);
  // Records the result of a task of kind kRates or kShape. If the result lacks the shape, the shape has failed.
  void RecordDevices(const MeasureTask& task, const absl::StatusOr<MeasureResult>& result);

  // nullopt until a measurement of the devices has succeeded.
  std::optional<HardwareProfile> Profile() const;
  // The memory of a GPU that NCCL takes if a rank exchanges messages with other ranks over kMaxRoutes routes. 0: not measured.
  Bytes nccl_memory() const;
  std::vector<LayerShape> FailedShapes() const;
  // Says why something could not be measured; "" if nothing failed.
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
  std::optional<MeasureResult> rates_;  // its shapes are copied to measured_
  std::vector<ShapeTimes> measured_;    // the measured shapes, the oldest first
  std::vector<LayerShape> wanted_;
  std::map<LayerShape, std::string> failed_;
};

}  // namespace lynx::agent

#endif  // LYNX_AGENT_AGENT_PROFILE_H_
