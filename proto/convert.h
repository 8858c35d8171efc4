// Conversion between protocol messages (lynx::v1) and the planner's domain types. All these conversions are in proto/.
//
// ToProto never fails. FromProto checks every bound. It returns InvalidArgument for an unknown enum value, for a negative, too
// large or non-finite number, and for a missing or duplicate entry. The error names the field by its path
// ("stages[1].policy[0].placements[3] is ..."). `path` is the path of the message itself; the paths of its fields begin with
// it. Pure; thread-safe.
#ifndef LYNX_PROTO_CONVERT_H_
#define LYNX_PROTO_CONVERT_H_

#include <string>

#include "absl/status/statusor.h"
#include "lynx/v1/plan.pb.h"
#include "planner/cost/cluster_topology.h"
#include "planner/cost/hardware_profile.h"
#include "planner/plan/plan.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/layer_graph.h"
#include "planner/problem/layout.h"

namespace lynx {

v1::RecomputeMode ToProto(RecomputeMode mode);
absl::StatusOr<RecomputeMode> FromProto(v1::RecomputeMode mode, const std::string& path);

v1::DeviceKind ToProto(DeviceKind kind);
absl::StatusOr<DeviceKind> FromProto(v1::DeviceKind kind, const std::string& path);

v1::ModelSpec ToProto(const ModelSpec& model);
// Checks enums, but not numbers; for jobs, ValidateJobSpec checks the numbers.
absl::StatusOr<ModelSpec> ModelFromProto(const v1::ModelSpec& message, const std::string& path);

// FromProto returns a normalized spec that passes ValidateJobSpec and whose paths are absolute. Its errors name fields by their
// names in the job file ("data.path").
v1::JobSpec ToProto(const JobSpec& spec);
absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& message);

v1::ParallelLayout ToProto(const ParallelLayout& layout);
absl::StatusOr<ParallelLayout> FromProto(const v1::ParallelLayout& message, const std::string& path = "layout");

v1::LayerShape ToProto(const LayerShape& shape);
absl::StatusOr<LayerShape> FromProto(const v1::LayerShape& message, const std::string& path = "shape");

// kIncluded: the message of a profile contains the op times of every measured shape. These times are by far the largest part of
// the message.
enum class ProfileShapes : uint8_t { kIncluded, kLeftOut };
// Every op must have its times exactly once; every shape may occur at most once.
v1::HardwareProfile ToProto(const HardwareProfile& profile, ProfileShapes shapes = ProfileShapes::kIncluded);
absl::StatusOr<HardwareProfile> FromProto(const v1::HardwareProfile& message, const std::string& path = "profile");

v1::ClusterTopology ToProto(const ClusterTopology& cluster);
// FromProto returns a cluster that passes CheckCluster.
absl::StatusOr<ClusterTopology> FromProto(const v1::ClusterTopology& message, const std::string& path = "cluster");

// kIncluded: the message of a plan contains the stages' programs. If they are left out, the digest cannot be checked.
enum class PlanPrograms : uint8_t { kIncluded, kLeftOut };

v1::Plan ToProto(const Plan& plan, PlanPrograms programs = PlanPrograms::kIncluded);
// kIncluded: the digest must match the content. kLeftOut: the result has empty programs, and the digest is not checked.
absl::StatusOr<Plan> FromProto(const v1::Plan& message, PlanPrograms programs = PlanPrograms::kIncluded,
                               const std::string& path = "plan");

}  // namespace lynx

#endif  // LYNX_PROTO_CONVERT_H_
