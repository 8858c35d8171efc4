// See live_views.h.
#include "server/services/live_views.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/check.h"
#include "common/version.h"

namespace lynx::server {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxReasons = 3;
constexpr size_t kMaxShownConditions = 8;
constexpr size_t kMaxJobsOfNode = 16;

// Texts come from files, programs and people, and may contain invalid UTF-8, which JSON does not allow. It is replaced.
std::string Text(const ordered_json& json) { return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

// Returns null for a number that is not finite, because JSON has no such numbers.
ordered_json Number(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

double InMillis(Nanos time) { return static_cast<double>(time.value) * 1e-6; }

ordered_json PresenceJson(const std::array<int64_t, kNodePresenceCount>& counts) {
  static constexpr const char* kNames[kNodePresenceCount] = {"ready", "partial", "absent", "lost"};
  ordered_json json = ordered_json::object();
  for (size_t i = 0; i < counts.size(); ++i) json[kNames[i]] = counts[i];
  return json;
}

ordered_json CellJson(const MapCell& cell) {
  return {{"first", cell.first.value},  {"last", cell.last.value},
          {"nodes", cell.nodes},        {"presence", PresenceJson(cell.presence)},
          {"cordoned", cell.cordoned},  {"warned", cell.warned},
          {"devices", cell.devices},    {"used", cell.used},
          {"withdrawn", cell.withdrawn}};
}

void Add(const NodeSummary& node, MapCell& cell) {
  if (cell.nodes++ == 0) cell.first = node.name;
  cell.last = node.name;
  ++cell.presence[static_cast<size_t>(node.presence)];
  cell.cordoned += node.cordoned ? 1 : 0;
  cell.warned += node.warned ? 1 : 0;
  cell.devices += node.devices;
  cell.used += node.used;
  cell.withdrawn += node.withdrawn;
}

}  // namespace

std::vector<MapCell> MapOf(const std::vector<NodeSummary>& nodes, size_t most) {
  LYNX_CHECK(most > 0);
  const size_t each = std::max<size_t>(1, (nodes.size() + most - 1) / most);
  std::vector<MapCell> cells((nodes.size() + each - 1) / each);
  for (size_t i = 0; i < nodes.size(); ++i) Add(nodes[i], cells[i / each]);
  return cells;
}

std::string ClusterJson(const ClusterSummary& cluster) {
  MapCell all;
  for (const NodeSummary& node : cluster.nodes) Add(node, all);
  ordered_json jobs = ordered_json::object();
  for (size_t i = 0; i < cluster.jobs.size(); ++i) jobs[EnumName(static_cast<JobState>(i))] = cluster.jobs[i];
  ordered_json cells = ordered_json::array();
  for (const MapCell& cell : MapOf(cluster.nodes)) cells.push_back(CellJson(cell));
  return Text({{"version", kVersion},
               {"timeMs", cluster.now.value / 1'000'000},
               {"all", CellJson(all)},
               {"jobs", jobs},
               {"cells", cells}});
}

std::string JobsJson(const std::vector<JobSummary>& jobs, bool more) {
  ordered_json list = ordered_json::array();
  for (const JobSummary& job : jobs) {
    ordered_json pending = ordered_json::array();
    for (size_t i = 0; i < std::min(job.pending.size(), kMaxReasons); ++i) pending.push_back(job.pending[i].text);
    list.push_back({{"id", job.id.value},
                    {"name", job.name},
                    {"state", EnumName(job.state)},
                    {"reason", job.reason},
                    {"pending", pending},
                    {"steps", job.steps},
                    {"done", job.progress.steps_done},
                    {"restarts", job.restarts},
                    {"stepMs", InMillis(job.progress.step)},
                    {"predictedMs", InMillis(job.predicted)},
                    {"tokensPerSecond", Number(job.progress.tokens_per_second)},
                    {"loss", Number(job.progress.loss)},
                    {"goodput", job.goodput.has_value() ? Number(*job.goodput) : ordered_json(nullptr)}});
  }
  return Text({{"jobs", list}, {"more", more}});
}

std::string NodesJson(const std::vector<NodeView>& nodes, bool more) {
  ordered_json list = ordered_json::array();
  for (const NodeView& node : nodes) {
    ordered_json conditions = ordered_json::array(), jobs = ordered_json::array();
    for (size_t i = 0; i < std::min(node.conditions.size(), kMaxShownConditions); ++i)
      conditions.push_back(node.conditions[i].message);
    for (size_t i = 0; i < std::min(node.jobs.size(), kMaxJobsOfNode); ++i) jobs.push_back(node.jobs[i].value);
    list.push_back({{"name", node.name.value},
                    {"agent", node.agent_attached},
                    {"worker", node.worker_attached},
                    {"devices", node.devices.size()},
                    {"model", node.devices.empty() ? "" : node.devices.front().model},
                    {"used", node.devices_used},
                    {"seenMs", node.last_seen.value / 1'000'000},
                    {"jobs", jobs},
                    {"conditions", conditions},
                    {"cordon", node.cordon.has_value()
                                   ? ordered_json(node.cordon->reason.empty() ? "no reason given" : node.cordon->reason)
                                   : ordered_json(nullptr)},
                    {"drain", node.cordon.has_value() && node.cordon->drain}});
  }
  return Text({{"nodes", list}, {"more", more}});
}

std::string JobJson(const std::string& id, const std::string& name, const std::string& state,
                    const std::vector<PagePart>& parts) {
  ordered_json list = ordered_json::array();
  for (const PagePart& part : parts) list.push_back({{"id", part.id}, {"html", part.html}});
  return Text({{"id", id}, {"name", name}, {"state", state}, {"parts", list}});
}

}  // namespace lynx::server
