// Live views: what the live page shows: its files, and JSON data about the cluster and its jobs. The data stays small, however
// many nodes there are. Pure; thread-safe.
#ifndef LYNX_SERVER_SERVICES_LIVE_VIEWS_H_
#define LYNX_SERVER_SERVICES_LIVE_VIEWS_H_

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/units.h"
#include "report/job_report.h"
#include "server/values/cluster_stats.h"
#include "server/values/job.h"
#include "server/values/node_state.h"

namespace lynx::server {

// The content of the files in server/page/, which the build compiles into the program.
std::string_view LivePageHtml();
std::string_view LivePageStyle();  // to be placed after PageStyle
std::string_view LivePageScript();

// One cell of the map of nodes: one node, or, if there are more than kMaxCells nodes, several consecutive nodes by name.
struct MapCell {
  NodeId first, last;
  int64_t nodes = 0;
  std::array<int64_t, kNodePresenceCount> presence{};
  int64_t cordoned = 0, warned = 0;
  int64_t devices = 0, used = 0, withdrawn = 0;
};
inline constexpr size_t kMaxCells = 400;
// `nodes`: sorted by name. Returns at most `most` cells (> 0), all with the same number of nodes except the last.
std::vector<MapCell> MapOf(const std::vector<NodeSummary>& nodes, size_t most = kMaxCells);

struct ClusterSummary {
  std::vector<NodeSummary> nodes;
  std::array<int64_t, kJobStateCount> jobs{};
  Nanos now;  // Unix time
};
std::string ClusterJson(const ClusterSummary& cluster);

// One line of the list of jobs.
struct JobSummary {
  JobId id;
  std::string name, reason;
  JobState state = JobState::kQueued;
  std::vector<PendingReason> pending;
  Progress progress;
  int64_t steps = 0;  // number of steps that the job must do
  Nanos predicted;    // predicted step time; 0: unknown
  int32_t restarts = 0;
  std::optional<double> goodput;
};
std::string JobsJson(const std::vector<JobSummary>& jobs, bool more);

// Returns the JSON of these nodes. `more`: the requested range has more nodes than `nodes`.
std::string NodesJson(const std::vector<NodeView>& nodes, bool more);

// `state`: the name of a JobState.
std::string JobJson(const std::string& id, const std::string& name, const std::string& state,
                    const std::vector<PagePart>& parts);

}  // namespace lynx::server

#endif  // LYNX_SERVER_SERVICES_LIVE_VIEWS_H_
