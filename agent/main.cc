// lynx-agent: finds the devices of a node, measures them and tells the server. See agent/agent.h.
//
// Exit codes: 0 after SIGTERM or SIGINT, and after --probe; 1 when it cannot start, or when no device that --devices allows is
// left; 2 for wrong flags.
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "agent/agent.h"
#include "agent/device_offer.h"
#include "agent/gpu_watch.h"
#include "common/clock.h"
#include "common/network_domain.h"
#include "common/status.h"
#include "common/version.h"
#include "node/daemon.h"
#include "node/file.h"
#include "node/flags.h"
#include "node/log.h"
#include "node/metrics_endpoint.h"
#include "node/rate.h"
#include "security/node_identity.h"

namespace lynx::agent {
namespace {

struct AgentFlags {
  std::string node = DefaultNodeName();
  std::string server = "127.0.0.1:7470";
  std::string address = "127.0.0.1";
  std::string data_dir = "/var/lib/lynx/agent";
  std::string rank_binary = BesideThisBinary("lynx-rank");
  std::string devices = "auto";
  std::string gpus;
  std::string cores;
  std::string memory;
  std::string gpu_reserve;
  std::string host_memory;
  std::string network_domain;
  std::string link_rate;
  std::string inter_node_rate;
  bool encrypt_ranks = false;
  std::string metrics_address;
  std::string log_level = "info";
  bool probe = false;
  IdentityFlags identity;

  std::vector<Flag> All() {
    std::vector<Flag> flags = {
        {"node", &node, "name of this node"},
        {"server", &server, "host:port of lynx-server; of several servers all, with commas: the one that leads is followed"},
        {"address", &address, "numeric address of this node; the link is measured over it"},
        {"data-dir", &data_dir, "directory for kept measurements; one agent per directory"},
        {"rank-binary", &rank_binary, "the rank process, which also measures"},
        {"devices", &devices,
         "what this node offers to ranks: auto (GPUs where any can be used, else CPU cores), cpu or cuda, each with :N for "
         "at most so many; a number alone: so many CPU devices, 0 as many as cores"},
        {"gpus", &gpus, "GPUs to offer, as nvidia-smi numbers them, such as 0-3,6; empty: all"},
        {"cores", &cores, "cores that the devices share, such as 0-3,6; empty: all that are available"},
        {"memory", &memory, "memory of each device, such as 8GiB; empty: an equal share of 80% of what is available"},
        {"gpu-reserve", &gpu_reserve,
         "memory of each GPU that is left to CUDA and NCCL, such as 3GiB; empty: as measured, at least 2GiB or an eighth"},
        {"host-memory", &host_memory,
         "memory of this node that GPUs may offload to, such as 200GiB; empty: 80% of what is available"},
        {"network-domain", &network_domain,
         "where this node is in the network, from the widest part to the closest, such as row2/rack7: jobs get nodes of one "
         "part; "
         "empty: not known"},
        {"link-rate", &link_rate, "rate to which lynx-worker paces connections (--link-rate there); empty: not paced"},
        {"inter-node-rate", &inter_node_rate,
         "stated rate between nodes; empty: as measured within this node, and then GPUs are not used together with those of "
         "other nodes"},
        {"encrypt-ranks", &encrypt_ranks,
         "measure the link with encrypted connections, as ranks use them where lynx-server has --encrypt-ranks on"},
        {"metrics-address", &metrics_address, "host:port to serve /metrics, /healthz and /readyz on; empty: not served"},
        {"log-level", &log_level, "trace, debug, info, warn or error"},
        {"probe", &probe, "print the devices that this node would offer, and why not its GPUs, and end"},
    };
    const std::vector<Flag> of_identity = identity.All();
    flags.insert(flags.end(), of_identity.begin(), of_identity.end());
    return flags;
  }
};

absl::StatusOr<int64_t> RateFlag(const std::string& name, const std::string& text) {
  absl::StatusOr<int64_t> rate = ParseRate(text);
  return rate.ok() ? rate : Annotate(rate.status(), "--" + name);
}

absl::StatusOr<Bytes> SizeFlag(const std::string& name, const std::string& text) {
  absl::StatusOr<Bytes> size = ParseBytes(text);
  return size.ok() ? size : Annotate(size.status(), "--" + name);
}

// The memory that GPUs may offload to. A node of CPUs has no memory of this kind: its devices use the node's memory
// already.
absl::StatusOr<Bytes> HostMemory(const AgentFlags& flags, const std::vector<NodeDevice>& devices) {
  if (devices.front().kind == DeviceKind::kCpu) return Bytes(0);
  if (!flags.host_memory.empty()) return SizeFlag("host-memory", flags.host_memory);
  return HostMemoryForOffloading();
}

absl::StatusOr<DeviceOffer> FindDevices(const AgentFlags& flags, const DeviceWish& wish) {
  CpuProbeOptions cpu;
  if (!flags.cores.empty()) {
    absl::StatusOr<std::vector<int32_t>> cores = ParseCores(flags.cores);
    if (!cores.ok()) return Annotate(cores.status(), "--cores");
    cpu.cores = *std::move(cores);
  }
  LYNX_ASSIGN_OR_RETURN(const Bytes memory, SizeFlag("memory", flags.memory));
  LYNX_ASSIGN_OR_RETURN(const Bytes reserved, SizeFlag("gpu-reserve", flags.gpu_reserve));
  cpu.memory_per_device = memory;
  GpuProbeOptions gpu{.cores = cpu.cores, .memory_per_device = memory, .reserved = reserved, .rank_binary = flags.rank_binary};
  if (!flags.gpus.empty()) {
    absl::StatusOr<std::vector<int32_t>> gpus = ParseCores(flags.gpus);
    if (!gpus.ok()) return Annotate(gpus.status(), "--gpus");
    gpu.gpus = *std::move(gpus);
  }
  return FindOffer(wish, std::move(cpu), std::move(gpu));
}

// The objects that an agent needs for every kind of device.
struct Setting {
  const AgentFlags& flags;
  const MeasurementOptions measurement;
  const int64_t inter_node_rate;
  const Clock& clock;
  AgentMetrics& metrics;
  WakeEvent& wake;
  StopSignals& signals;
  const CredentialSource credentials;
  const ServerAddresses servers;
};

absl::StatusOr<AgentEnd> Offer(const Setting& setting, const std::vector<NodeDevice>& devices,
                               std::vector<NodeCondition> conditions, const GpuWatch* gpus) {
  const AgentFlags& flags = setting.flags;
  LYNX_ASSIGN_OR_RETURN(const std::string node_key, NodeKey(setting.measurement, devices));
  LinkCost fallback = StatedCpuProfile().intra_node;
  if (setting.measurement.pacing_bytes_per_second > 0) {
    fallback.bytes_per_second = setting.measurement.pacing_bytes_per_second;
  }
  for (NodeCondition& condition : conditions) {
    LogWarn("{}", condition.message);
    condition.since = setting.clock.Wall();
  }
  LogInfo("offers {} devices:\n{}", devices.size(), OfferText(devices));
  MeasuringThread measuring(setting.measurement, devices,
                            MeasurementCache(setting.measurement.directory + "/measured", node_key), setting.clock,
                            setting.metrics, setting.wake);
  LYNX_ASSIGN_OR_RETURN(const Bytes host_memory, HostMemory(flags, devices));
  const size_t gpu_count = devices.front().kind == DeviceKind::kCuda ? devices.size() : 0;
  return RunAgent({.node = flags.node,
                   .servers = setting.servers,
                   .conditions = std::move(conditions),
                   .host_memory = host_memory,
                   .cores = FindNodeCores(),
                   .network_domain = flags.network_domain,
                   .network_rate_assumed = setting.inter_node_rate == 0,
                   .credentials = setting.credentials},
                  devices, AgentProfile(fallback, setting.inter_node_rate, gpu_count), measuring, gpus, setting.wake,
                  setting.metrics, setting.signals, setting.clock);
}

// Offers GPUs as long as any GPU works. If no GPU is left and --devices allows CPUs, offers CPUs. If --devices asks for CPUs,
// offers CPUs from the beginning.
absl::Status OfferAll(const Setting& setting, const DeviceWish& wish) {
  LYNX_ASSIGN_OR_RETURN(DeviceOffer offer, FindDevices(setting.flags, wish));
  if (offer.nvml == nullptr) return Offer(setting, offer.devices, offer.conditions, nullptr).status();
  LogInfo("NVIDIA driver {}", offer.nvml->driver_version());
  GpuWatch gpus(std::move(offer.nvml), offer.devices, setting.flags.node, *setting.metrics.registry(), setting.clock,
                setting.wake);
  while (!offer.devices.empty()) {
    LYNX_ASSIGN_OR_RETURN(const AgentEnd end, Offer(setting, offer.devices, offer.conditions, &gpus));
    if (end == AgentEnd::kStopSignal) return absl::OkStatus();
    const std::vector<NodeCondition> conditions = gpus.conditions();
    std::erase_if(offer.devices, [&](const NodeDevice& device) { return IsWithdrawn(device, conditions); });
  }
  if (wish.kind == DeviceKind::kCuda) {
    return absl::FailedPreconditionError("none of the GPUs can be used any more, and --devices cuda allows nothing else");
  }
  LogWarn("none of the GPUs can be used any more: going on with CPUs");
  LYNX_ASSIGN_OR_RETURN(const DeviceOffer cpus, FindDevices(setting.flags, {DeviceKind::kCpu, wish.most}));
  return Offer(setting, cpus.devices, offer.conditions, &gpus).status();
}

absl::Status Probe(const AgentFlags& flags, const DeviceWish& wish) {
  LYNX_ASSIGN_OR_RETURN(const DeviceOffer offer, FindDevices(flags, wish));
  for (const NodeCondition& condition : offer.conditions) std::fprintf(stderr, "%s\n", condition.message.c_str());
  std::fputs(OfferText(offer.devices).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status Run(const AgentFlags& flags, StopSignals& signals) {
  LYNX_RETURN_IF_ERROR(StartLog(flags.log_level));
  LYNX_RETURN_IF_ERROR(CheckNodeName(flags.node));
  const absl::StatusOr<ServerAddresses> servers = ServerAddresses::Parse(flags.server);
  if (!servers.ok()) return Annotate(servers.status(), "--server");
  LYNX_RETURN_IF_ERROR(CheckNumericAddress(flags.address, "--address"));
  LYNX_RETURN_IF_ERROR(CheckExecutable(flags.rank_binary, "--rank-binary"));
  LYNX_RETURN_IF_ERROR(Annotate(CheckNetworkDomain(flags.network_domain), "--network-domain"));
  LYNX_ASSIGN_OR_RETURN(const int64_t link_rate, RateFlag("link-rate", flags.link_rate));
  LYNX_ASSIGN_OR_RETURN(const int64_t inter_node_rate, RateFlag("inter-node-rate", flags.inter_node_rate));
  LYNX_ASSIGN_OR_RETURN(const DeviceWish wish, ParseDeviceWish(flags.devices));
  LYNX_RETURN_IF_ERROR(SizeFlag("host-memory", flags.host_memory).status());
  if (flags.probe) return Probe(flags, wish);

  std::error_code error;
  const std::string directory = std::filesystem::absolute(flags.data_dir, error).lexically_normal().string();
  LYNX_RETURN_IF_ERROR(MakeDirectories(directory));
  const absl::StatusOr<UniqueFd> lock = LockFile(directory + "/lynx-agent.lock");
  if (!lock.ok()) return Annotate(lock.status(), "another lynx-agent uses this data directory, give another --data-dir");

  const RealClock clock;
  AgentMetrics metrics;
  if (!flags.metrics_address.empty()) {
    LYNX_ASSIGN_OR_RETURN(const int port, ServeMetrics(flags.metrics_address, metrics.registry(),
                                                       ReadyWhileAttached(metrics.registry(), metrics.attached())));
    LogInfo("metrics on port {}", port);
  }
  LogInfo("lynx-agent {} of node {}, server {}", kVersion, flags.node, flags.server);
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<NodeIdentity> identity,
                        NodeIdentity::Open(flags.identity, flags.node, *servers, clock));
  WakeEvent wake;
  return OfferAll({.flags = flags,
                   .measurement = {.rank_binary = flags.rank_binary,
                                   .directory = directory,
                                   .address = flags.address,
                                   .pacing_bytes_per_second = link_rate,
                                   .encrypt = flags.encrypt_ranks},
                   .inter_node_rate = inter_node_rate,
                   .clock = clock,
                   .metrics = metrics,
                   .wake = wake,
                   .signals = signals,
                   .credentials = CredentialsOf(identity.get()),
                   .servers = *servers},
                  wish);
}

}  // namespace
}  // namespace lynx::agent

int main(int argc, char** argv) {
  lynx::agent::AgentFlags flags;
  lynx::ParseCommandLine(argc, argv, "lynx-agent", "finds and measures the devices of a node", flags.All());
  lynx::StopWatchingLockOrder();
  lynx::StopSignals signals;
  const absl::Status status = lynx::agent::Run(flags, signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "lynx-agent: %s\n", std::string(status.message()).c_str());
  return status.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}
