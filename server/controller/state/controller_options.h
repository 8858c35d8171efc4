// ControllerOptions: limits and times of the controller. Plain data.
#ifndef LYNX_SERVER_CONTROLLER_STATE_CONTROLLER_OPTIONS_H_
#define LYNX_SERVER_CONTROLLER_STATE_CONTROLLER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/connection_secret.h"
#include "common/units.h"
#include "planner/cost/cluster_topology.h"
#include "planner/cost/hardware_profile.h"
#include "planner/plan/plan.h"
#include "planner/problem/job_spec.h"
#include "server/controller/state/seeded_mistake.h"

namespace lynx::server {

// Limit for the programs in one desired state. It leaves room for all other fields within the largest message
// (proto/message_limit.h).
inline constexpr Bytes kMaxProgramText{48 << 20};

struct ControllerOptions {
  // How often nodes report when nothing has changed.
  Nanos heartbeat{2'000'000'000};
  // A node is lost when its worker daemon has been absent for this long. After a start of the server, the absence counts from
  // that start.
  Nanos node_timeout{60'000'000'000};
  Nanos measure_timeout{60'000'000'000};  // time for agents to measure the shapes whose op times a plan needs
  Nanos listen_timeout{60'000'000'000};   // the ranks of a generation must all listen within this time
  // Ranks that end because a peer is gone often report before the rank that is at fault. After such a report the server waits
  // this long for the report of the rank at fault.
  Nanos culprit_grace{2'000'000'000};
  // When a generation is over, the next one waits at most this long for ranks on a node without a worker daemon, once a peer of
  // these ranks has ended. Anything that these ranks commit after the next generation has begun is refused.
  Nanos stop_timeout{10'000'000'000};
  // true: nodes that are cut off end their ranks by themselves before the server gives their work to other nodes.
  bool leases = true;
  // Unless kOff, nodes whose ranks cannot encrypt their connections get no ranks.
  RankEncryption encryption = RankEncryption::kOff;
  // The server waits this long for reports of a rank that has exited with 0, and for the exit of a rank that has reported its
  // last step.
  Nanos exit_grace{10'000'000'000};
  // Pause before the next generation if the last one trained no step. A node may be unable to start ranks for a while, such as
  // when its disk is full. Without the pause, it would use up a job's restarts within a moment. The pause doubles with each
  // such generation in a row.
  Nanos restart_pause{2'000'000'000};
  Nanos most_restart_pause{60'000'000'000};
  Nanos progress_interval{1'000'000'000};  // time between two writes of a job's progress
  // A job trains at least this long before it is planned again for more devices or for changed speeds.
  Nanos replan_after{5'000'000'000};
  int32_t most_replans_per_hour = 12;  // limit for one job; plans that became necessary because devices were lost do not count
  // Time for ranks to give way. They get more if thirty steps and a checkpoint take longer.
  Nanos yield_timeout{60'000'000'000};
  // If a job could start within this time anyway, no other job has to give way for it.
  Nanos soon{30'000'000'000};
  // A job that has lost devices while it trained keeps its place in the line for this long. It holds up the jobs behind it even
  // if there are too few devices for it now, because the lost devices may come back soon.
  Nanos return_timeout{120'000'000'000};
  // A job that names no checkpoint directory writes to `checkpoint_root`/JOB/checkpoints. An absolute path.
  std::string checkpoint_root = "/var/lib/lynx/jobs";
  int64_t max_unfinished_jobs = 10'000;
  // Number of ended jobs to remember. When there are more, the job that ended first is dropped with its idempotency key, plan
  // and events; the files that it wrote stay on disk. At least 1.
  size_t kept_jobs = 10'000;
  size_t max_nodes = 10'000;
  // Limit for the text of programs in one message to a worker. Ranks whose programs do not fit start with a later message. A
  // plan with a program above the limit is refused.
  Bytes most_program_text = kMaxProgramText;
  // Returns the layer shapes whose op times the planner needs (planner/candidates/search.h WantedShapes). Required.
  std::function<std::vector<LayerShape>(const JobSpec&, const ClusterTopology&)> wanted_shapes;
  // Returns the layer shape from whose op times a plan was made (planner/candidates/search.h WantedShapeOf). Null: the op times
  // of a plan's own shape are never asked for.
  std::function<LayerShape(const JobSpec&, const Plan&)> wanted_shape_of;
  Mistake mistake = Mistake::kNone;  // for tests only

  bool Makes(Mistake m) const { return mistake == m; }
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_STATE_CONTROLLER_OPTIONS_H_
