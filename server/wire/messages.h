// Messages of the server: decodes reports of nodes and checks every field against its limits; encodes answers from the server's
// values. The services decode and encode only with these functions. InvalidArgument names the field by its path. Pure;
// thread-safe.
#ifndef LYNX_SERVER_WIRE_MESSAGES_H_
#define LYNX_SERVER_WIRE_MESSAGES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lynx/v1/cluster.pb.h"
#include "lynx/v1/jobs.pb.h"
#include "proto/convert.h"
#include "server/controller/controller.h"
#include "server/values/job.h"
#include "server/values/job_curves.h"
#include "server/values/node_state.h"
#include "server/values/rank_logs.h"
#include "server/wire/connection_key.h"

namespace lynx::server {

absl::StatusOr<AgentState> Decode(const v1::AgentReport& message);
absl::StatusOr<WorkerState> Decode(const v1::WorkerReport& message);

v1::AgentDesired Encode(const AgentDesired& desired, Nanos heartbeat);
// The secrets of ranks that must be started are derived from `key`.
v1::WorkerDesired Encode(const WorkerDesired& desired, Nanos heartbeat, const ConnectionKey& key);
v1::WorkerDesired Encode(const LeaseRenewal& renewal);

v1::JobState Encode(JobState state);
v1::JobCurves Encode(const JobCurves& curves);
JobCurves Decode(const v1::JobCurves& message);
absl::StatusOr<JobState> Decode(v1::JobState state, const std::string& path);
v1::JobEvent Encode(const JobEvent& event);
// Encodes the job without its events. `plan` may be null.
v1::Job Encode(const JobRecord& job, const Plan* plan, PlanPrograms programs);
v1::Node Encode(const NodeView& node, ProfileShapes shapes = ProfileShapes::kIncluded);
v1::LogLine Encode(const LogLine& line);
v1::Queue Encode(const QueueView& queue);
absl::StatusOr<QueueConfig> Decode(const v1::Queue& message);
v1::StepTrace Encode(const StepTrace& trace);
StepTrace Decode(const v1::StepTrace& message);

// SetFigures copies the progress, the measurements and other values of a job into a message, and GetFigures copies them back.
// The store keeps these values as such a message, because they have no columns of their own.
void SetFigures(const JobRecord& job, v1::Job& message);
void GetFigures(const v1::Job& message, JobRecord& job);

}  // namespace lynx::server

#endif  // LYNX_SERVER_WIRE_MESSAGES_H_
