#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "cli/connect/client.h"
#include "cli/connect/contexts.h"
#include "cli/connect/server_place.h"
#include "cli/local/find_server.h"
#include "cli/local/local_cluster.h"
#include "cli/output/exit_code.h"
#include "cli/output/render.h"
#include "cli/verbs/commands.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

std::string DirectoryOf(const LocalCommandOptions& options) {
  return options.directory.empty() ? LocalDirectory() : Absolute(options.directory);
}

Listing DaemonListing(const LocalCluster& cluster) {
  Listing listing{
      .columns = {{"DAEMON", "daemon"}, {"STATE", "state"}, {"PID", "pid"}, {"METRICS", "metrics"}, {"LOG", "log"}}};
  for (const LocalDaemon& daemon : cluster.daemons) {
    listing.rows.push_back({daemon.name, IsRunning(daemon) ? "running" : "stopped", absl::StrCat(daemon.process.pid),
                            "http://" + daemon.metrics_address + "/metrics", daemon.log});
  }
  return listing;
}

std::string StatusJson(const LocalCluster& cluster, const std::string& directory) {
  nlohmann::ordered_json json = {
      {"directory", directory}, {"server", cluster.server_address}, {"page", LivePageAddress(directory)}};
  json["daemons"] = nlohmann::ordered_json::array();
  for (const LocalDaemon& daemon : cluster.daemons) {
    json["daemons"].push_back({{"name", daemon.name},
                               {"running", IsRunning(daemon)},
                               {"pid", daemon.process.pid},
                               {"metricsAddress", daemon.metrics_address},
                               {"log", daemon.log}});
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void PrintLivePage(const std::string& directory) {
  const std::string address = LivePageAddress(directory);
  if (!address.empty()) std::printf("look at it in a browser: http://%s/\n", address.c_str());
}

// If the next commands would call a server other than this cluster's, says which server, and how to reach this cluster.
// Otherwise returns "".
std::string Elsewhere(const LocalCluster& cluster, const std::string& directory) {
  const ServerAddress found = FindServer({});
  if (found.status.ok() && found.address == cluster.server_address && found.authority.empty()) return "";
  std::vector<std::string> variables;  // environment variables that are read even if --server is given
  for (const char* name : {"LYNX_CONTEXT", "LYNX_CA_FILE", "LYNX_TOKEN_FILE"}) {
    if (!Environment(name).empty()) variables.push_back(name);
  }
  std::vector<std::string> because = variables;
  if (!Environment("LYNX_SERVER").empty()) because.push_back("LYNX_SERVER");
  const std::string context = ContextInUse();
  if (!context.empty() && Environment("LYNX_CONTEXT").empty() && Environment("LYNX_SERVER").empty())
    because.push_back("context " + context);
  std::string how = absl::StrCat("lynxctl --server ", cluster.server_address, " ...");
  if (!variables.empty()) how = absl::StrCat("unset ", absl::StrJoin(variables, " "), "; ", how);
  if (variables.empty() && directory == LocalDirectory()) {
    std::vector<std::string> other;
    if (!Environment("LYNX_SERVER").empty()) other.push_back("unset LYNX_SERVER");
    if (!context.empty()) other.push_back("lynxctl context use --none");
    if (!other.empty()) absl::StrAppend(&how, ", or ", absl::StrJoin(other, "; "));
  }
  const std::string why =
      because.empty() ? absl::StrCat(", ", found.source) : absl::StrCat(" because of ", absl::StrJoin(because, ", "));
  return absl::StrCat("lynxctl calls ", found.address, why, "; for this cluster: ", how, "\n");
}

}  // namespace

int LocalUpCommand(const LocalCommandOptions& options) {
  LocalOptions local;
  local.directory = DirectoryOf(options);
  local.nodes = options.nodes;
  local.devices = options.devices;
  local.link_rate = options.link_rate;
  auto cluster = LocalUp(local);
  if (!cluster.ok()) return Fail(cluster.status());
  std::printf("local cluster is up: server %s, %zu nodes, in %s\n", cluster->server_address.c_str(),
              (cluster->daemons.size() - 1) / 2, local.directory.c_str());
  PrintLivePage(local.directory);
  std::fputs(Elsewhere(*cluster, local.directory).c_str(), stdout);
  return kExitOk;
}

int LocalStatusCommand(const GlobalOptions& global, const LocalCommandOptions& options) {
  if (const absl::Status placed = CheckLocalDirectory(DirectoryOf(options)); !placed.ok()) return Fail(placed);
  auto cluster = ReadLocalCluster(DirectoryOf(options));
  if (!cluster.ok()) return Fail(cluster.status());
  const bool all = std::all_of(cluster->daemons.begin(), cluster->daemons.end(), IsRunning);
  const bool table = global.output == OutputFormat::kTable || global.output == OutputFormat::kWide;
  const int shown = ShowListing(global.output, StatusJson(*cluster, DirectoryOf(options)), DaemonListing(*cluster));
  if (!table || shown != kExitOk)
    return shown != kExitOk ? shown : all ? kExitOk : kExitJobFailed;  // 'lynxctl nodes' shows the nodes in the other formats
  if (!all) {
    std::printf("\nnot everything runs; 'lynxctl local up' starts what is missing\n");
    return kExitJobFailed;
  }
  PrintLivePage(DirectoryOf(options));
  GlobalOptions here = global;
  here.connection = {.server = cluster->server_address, .no_context = true};
  std::printf("\n");
  return Nodes(here);
}

int LocalDownCommand(const LocalCommandOptions& options) {
  absl::Status down = CheckLocalDirectory(DirectoryOf(options));
  if (down.ok()) down = LocalDown(DirectoryOf(options));
  if (!down.ok()) return Fail(down);
  std::printf("local cluster is down; its jobs and checkpoints stay in %s\n", DirectoryOf(options).c_str());
  return kExitOk;
}

}  // namespace lynx::cli
