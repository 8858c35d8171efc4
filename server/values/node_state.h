// What agents and worker daemons say of their nodes, and what they are told, as plain values: the protocol's messages
// after decoding and before encoding (proto/lynx/v1/cluster.proto says what the fields mean). Thread-safe as values are.
#ifndef LYNX_SERVER_VALUES_NODE_STATE_H_
#define LYNX_SERVER_VALUES_NODE_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/fault_cause.h"
#include "common/ids.h"
#include "common/link_use.h"
#include "common/rank_key.h"
#include "common/units.h"
#include "planner/cost/hardware_profile.h"
#include "server/values/job.h"
#include "worker/contract/rank_report.h"

namespace lynx {

struct Device {
  int32_t index = 0;
  DeviceKind kind = DeviceKind::kCpu;
  std::string model;
  Bytes memory;
  std::vector<int32_t> cores;
  std::string uuid, detail;  // of a GPU
  bool operator==(const Device&) const = default;
};

struct ReportedCondition {
  std::string kind;
  std::string device;  // UUID; empty = the node
  bool withdrawn = false;
  std::string message;
  Nanos since;  // wall clock
};

// As in proto/lynx/v1/cluster.proto.
struct ReportedCores {
  std::string machine, limit_group;
  int64_t limit_permille = 0;
  bool operator==(const ReportedCores&) const = default;
};

struct AgentState {
  NodeId node;
  std::string boot;
  std::vector<Device> devices;
  std::shared_ptr<const HardwareProfile> profile;  // null: nothing measured yet
  std::vector<LayerShape> failed_shapes;
  std::string failure;
  std::string version;
  std::vector<ReportedCondition> conditions;
  Bytes host_memory;  // that its GPUs may offload to
  std::string network_domain;
  ReportedCores cores;
};

struct AgentDesired {
  std::vector<LayerShape> shapes;
};

struct RankObservation {
  RankKey key;
  RankPhase phase = RankPhase::kListening;
  std::string host;
  int32_t port = 0;
  int32_t exit_code = 0;
  std::string reason;
  bool peer_lost = false;
  FaultCause cause = FaultCause::kUnknown;
};

// What one rank process says, in its order.
struct RankMessage {
  RankKey key;
  int64_t sequence = 0;
  RankReport report;
};

struct RankLogLines {
  RankKey key;
  std::vector<std::string> lines;
};

struct WorkerState {
  NodeId node;
  std::string boot;
  std::string address;
  std::vector<RankObservation> ranks;  // complete
  std::vector<RankMessage> messages;
  std::vector<RankLogLines> logs;
  std::string version;
  int64_t number = 0;        // 0: the daemon knows nothing of leases
  int32_t witness_port = 0;  // 0: none
  int64_t renewed = 0;       // the newest report that a renewal has come for
  std::set<JobId> copies;    // jobs of whose states it keeps copies in memory
};

struct RankAddress {
  std::string host;
  int32_t port = 0;
  bool operator==(const RankAddress&) const = default;
};

// One rank that should be on a node.
struct RankAssignment {
  RankKey key;
  bool started = false;  // the worker has said that it runs or has ended: naming it is enough
  int32_t device = 0;
  DeviceKind device_kind = DeviceKind::kCpu;
  std::string device_uuid;  // of a GPU
  std::vector<int32_t> cores;
  std::shared_ptr<const JobSpec> spec;
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const std::vector<RankAddress>> peers;  // by rank; empty: only listen
  int64_t resume_step = -1;
  std::string checkpoint_directory;  // absolute
  bool yield = false;                // give way when a step is done
  bool check = false;                // devices and links before training
};

struct ReportAck {
  RankKey key;
  int64_t sequence = 0;
  bool released = false;  // its generation is over: the worker may forget it
};

struct WorkerDesired {
  std::vector<RankAssignment> ranks;
  std::vector<ReportAck> acks;
  std::vector<JobId> ended;  // whose copies are to go
};

// The answer to one report of a worker daemon.
struct LeaseRenewal {
  int64_t report = 0;
  Nanos server_up;
  Nanos isolated, cut_off;  // 0: the node's ranks go on whatever happens
  std::vector<RankAddress> witnesses;
  bool more_witnesses = false;
};

// No new ranks on a node; with `drain`, those that are there leave.
struct Cordon {
  std::string reason;
  bool drain = false;
  Nanos deadline;  // of a drain, wall clock; 0 = none
  Nanos since;     // wall clock
  bool operator==(const Cordon&) const = default;
};

// A node as people see it.
struct NodeView {
  NodeId name;
  std::string address;
  bool agent_attached = false;
  bool worker_attached = false;
  std::vector<Device> devices;
  std::string network_domain;
  int32_t devices_used = 0;
  Nanos last_seen;  // wall clock
  std::shared_ptr<const HardwareProfile> profile;
  std::vector<JobId> jobs;
  std::vector<ReportedCondition> conditions;
  std::optional<Cordon> cordon;
  std::string agent_version, worker_version;  // of the last reports
};

}  // namespace lynx

#endif  // LYNX_SERVER_VALUES_NODE_STATE_H_
