#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/client.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/local_cluster.h"
#include "cli/render.h"
#include "cli/server_place.h"
#include "common/status.h"

namespace lynx {
namespace {

std::string DirectoryOf(const LocalCommandOptions& options) {
  return options.directory.empty() ? LocalDirectory() : Absolute(options.directory);
}

Listing DaemonListing(const LocalCluster& cluster) {
  Listing listing{.columns = {{"DAEMON", "daemon"}, {"STATE", "state"}, {"PID", "pid"}, {"METRICS", "metrics"}, {"LOG", "log"}}};
  for (const LocalDaemon& daemon : cluster.daemons) {
    listing.rows.push_back({daemon.name, IsRunning(daemon) ? "running" : "stopped", absl::StrCat(daemon.process.pid),
                            "http://" + daemon.metrics_address + "/metrics", daemon.log});
  }
  return listing;
}

std::string StatusJson(const LocalCluster& cluster, const std::string& directory) {
  nlohmann::ordered_json json = {{"directory", directory}, {"server", cluster.server_address}, {"page", LivePageAddress(directory)}};
  json["daemons"] = nlohmann::ordered_json::array();
  for (const LocalDaemon& daemon : cluster.daemons) {
    json["daemons"].push_back({{"name", daemon.name}, {"running", IsRunning(daemon)}, {"pid", daemon.process.pid},
                               {"metricsAddress", daemon.metrics_address}, {"log", daemon.log}});
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void PrintLivePage(const std::string& directory) {
  const std::string address = LivePageAddress(directory);
  if (!address.empty()) std::printf("look at it in a browser: http://%s/\n", address.c_str());
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
  return kExitOk;
}

int LocalStatusCommand(const GlobalOptions& global, const LocalCommandOptions& options) {
  auto cluster = ReadLocalCluster(DirectoryOf(options));
  if (!cluster.ok()) return Fail(cluster.status());
  const bool all = std::all_of(cluster->daemons.begin(), cluster->daemons.end(), IsRunning);
  const bool table = global.output == OutputFormat::kTable || global.output == OutputFormat::kWide;
  const int shown = ShowListing(global.output, StatusJson(*cluster, DirectoryOf(options)), DaemonListing(*cluster));
  if (!table || shown != kExitOk) return shown != kExitOk ? shown : all ? kExitOk : kExitJobFailed;  // 'lynxctl nodes' has the nodes
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
  const absl::Status down = LocalDown(DirectoryOf(options));
  if (!down.ok()) return Fail(down);
  std::printf("local cluster is down; its jobs and checkpoints stay in %s\n", DirectoryOf(options).c_str());
  return kExitOk;
}

}  // namespace lynx
