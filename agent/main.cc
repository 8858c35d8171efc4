// lynx-agent: finds the devices of a node, measures them and tells the server. See agent/agent.h.
//
// Exit codes: 0 after SIGTERM or SIGINT; 1 when it cannot start; 2 for wrong flags.
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "agent/agent.h"
#include "common/clock.h"
#include "common/status.h"
#include "common/version.h"
#include "node/daemon.h"
#include "node/file.h"
#include "node/flags.h"
#include "node/metrics_endpoint.h"
#include "node/rate.h"
#include "spdlog/spdlog.h"

namespace lynx {
namespace {

struct AgentFlags {
  std::string node = DefaultNodeName();
  std::string server = "127.0.0.1:7470";
  std::string address = "127.0.0.1";
  std::string data_dir = "/var/lib/lynx/agent";
  std::string rank_binary = BesideThisBinary("lynx-rank");
  int64_t devices = 0;
  std::string cores;
  std::string memory;
  std::string link_rate;
  std::string inter_node_rate;
  std::string metrics_address;
  std::string log_level = "info";

  std::vector<Flag> All() {
    return {
        {"node", &node, "name of this node"},
        {"server", &server, "host:port of lynx-server"},
        {"address", &address, "numeric address of this node; the link is measured over it"},
        {"data-dir", &data_dir, "directory for kept measurements; one agent per directory"},
        {"rank-binary", &rank_binary, "the rank process, which also measures"},
        {"devices", &devices, "ranks that this node may run at a time; 0: as many as cores"},
        {"cores", &cores, "cores that the devices share, such as 0-3,6; empty: all that are available"},
        {"memory", &memory, "memory of each device, such as 8GiB; empty: an equal share of 80% of what is available"},
        {"link-rate", &link_rate,
         "rate to which lynx-worker paces connections (--link-rate there); empty: not paced"},
        {"inter-node-rate", &inter_node_rate, "stated rate between nodes; empty: as measured within this node"},
        {"metrics-address", &metrics_address, "host:port to serve /metrics on; empty: not served"},
        {"log-level", &log_level, "trace, debug, info, warn or error"},
    };
  }
};

absl::StatusOr<int64_t> RateFlag(const std::string& name, const std::string& text) {
  absl::StatusOr<int64_t> rate = ParseRate(text);
  return rate.ok() ? rate : Annotate(rate.status(), "--" + name);
}

absl::StatusOr<std::vector<NodeDevice>> FindDevices(const AgentFlags& flags) {
  CpuProbeOptions options{.devices = flags.devices};
  if (flags.devices < 0) return absl::InvalidArgumentError(absl::StrCat("--devices ", flags.devices, " is negative"));
  if (!flags.cores.empty()) {
    absl::StatusOr<std::vector<int32_t>> cores = ParseCores(flags.cores);
    if (!cores.ok()) return Annotate(cores.status(), "--cores");
    options.cores = *std::move(cores);
  }
  absl::StatusOr<Bytes> memory = ParseBytes(flags.memory);
  if (!memory.ok()) return Annotate(memory.status(), "--memory");
  options.memory_per_device = *memory;
  return CpuProbe(options).Find();
}

absl::Status Run(const AgentFlags& flags, StopSignals& signals) {
  LYNX_RETURN_IF_ERROR(StartLog(flags.log_level));
  LYNX_RETURN_IF_ERROR(CheckNodeName(flags.node));
  LYNX_RETURN_IF_ERROR(CheckNumericAddress(flags.address, "--address"));
  LYNX_RETURN_IF_ERROR(CheckExecutable(flags.rank_binary, "--rank-binary"));
  LYNX_ASSIGN_OR_RETURN(const int64_t link_rate, RateFlag("link-rate", flags.link_rate));
  LYNX_ASSIGN_OR_RETURN(const int64_t inter_node_rate, RateFlag("inter-node-rate", flags.inter_node_rate));
  LYNX_ASSIGN_OR_RETURN(const std::vector<NodeDevice> devices, FindDevices(flags));

  std::error_code error;
  const std::string directory = std::filesystem::absolute(flags.data_dir, error).lexically_normal().string();
  LYNX_RETURN_IF_ERROR(MakeDirectories(directory));
  const absl::StatusOr<UniqueFd> lock = LockFile(directory + "/lynx-agent.lock");
  if (!lock.ok())
    return Annotate(lock.status(), "another lynx-agent uses this data directory, give another --data-dir");

  MeasurementOptions measurement{.rank_binary = flags.rank_binary,
                                 .directory = directory,
                                 .address = flags.address,
                                 .pacing_bytes_per_second = link_rate};
  LYNX_ASSIGN_OR_RETURN(const std::string node_key, NodeKey(measurement, devices));
  LinkCost fallback = StatedCpuProfile().intra_node;
  if (link_rate > 0) fallback.bytes_per_second = link_rate;

  const RealClock clock;
  AgentMetrics metrics;
  if (!flags.metrics_address.empty()) {
    LYNX_ASSIGN_OR_RETURN(const int port, ServeMetrics(flags.metrics_address, metrics.registry()));
    spdlog::info("metrics on port {}", port);
  }
  spdlog::info("lynx-agent {} of node {}, {} devices, server {}", kVersion, flags.node, devices.size(), flags.server);
  WakeEvent wake;
  MeasuringThread measuring(measurement, devices, MeasurementCache(directory + "/measured", node_key), clock, metrics,
                            wake);
  RunAgent({.node = flags.node, .server = flags.server}, devices, AgentProfile(fallback, inter_node_rate), measuring,
           wake, metrics, signals, clock);
  return absl::OkStatus();
}

}  // namespace
}  // namespace lynx

int main(int argc, char** argv) {
  lynx::AgentFlags flags;
  lynx::ParseCommandLine(argc, argv, "lynx-agent", "finds and measures the devices of a node", flags.All());
  lynx::StopSignals signals;
  const absl::Status status = lynx::Run(flags, signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "lynx-agent: %s\n", std::string(status.message()).c_str());
  return status.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}
