// What agents and worker daemons report about their nodes, and their desired states. These plain values are the decoded
// messages of the protocol; proto/lynx/v1/cluster.proto explains the fields.
#ifndef LYNX_SERVER_VALUES_NODE_STATE_H_
#define LYNX_SERVER_VALUES_NODE_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/connection_secret.h"
#include "common/fault_cause.h"
#include "common/ids.h"
#include "common/link_use.h"
#include "common/rank_key.h"
#include "common/units.h"
#include "planner/cost/hardware_profile.h"
#include "server/values/job.h"
#include "worker/contract/rank_report.h"

namespace lynx::server {

struct Device {
  int32_t index = 0;
  DeviceKind kind = DeviceKind::kCpu;
  std::string model;
  Bytes memory;
  std::vector<int32_t> cores;
  std::string uuid, detail;  // only for a GPU
  bool operator==(const Device&) const = default;
};

struct ReportedCondition {
  std::string kind;
  std::string device;  // UUID of a device; empty: the condition is about the node
  bool withdrawn = false;
  std::string message;
  Nanos since;  // wall clock time
};

// The fields are explained in proto/lynx/v1/cluster.proto.
struct ReportedCores {
  std::string machine, limit_group;
  int64_t limit_permille = 0;
  bool operator==(const ReportedCores&) const = default;
};

struct AgentState {
  NodeId node;
  std::string boot;
  std::vector<Device> devices;
  std::shared_ptr<const HardwareProfile> profile;  // null: nothing has been measured yet
  std::vector<LayerShape> failed_shapes;
  std::string failure;
  std::string version;
  std::vector<ReportedCondition> conditions;
  Bytes host_memory;  // host memory that the node's GPUs may use for offloading
  std::string network_domain;
  ReportedCores cores;
  bool network_rate_assumed = false;  // the rate between nodes is neither measured nor stated
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

// One message of a rank process. Messages come in the order in which the rank sent them.
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
  std::vector<RankObservation> ranks;  // all ranks of the node
  std::vector<RankMessage> messages;
  std::vector<RankLogLines> logs;
  std::string version;
  int64_t number = 0;        // number of the report; 0: the daemon's version is too old to know leases
  int32_t witness_port = 0;  // 0: the node cannot be a witness
  bool encrypts = false;     // the node's ranks can encrypt their connections
  int64_t renewed = 0;       // the newest report for which the node has received a renewal
  std::set<JobId> copies;    // jobs whose states the node keeps in memory
};

struct RankAddress {
  std::string host;
  int32_t port = 0;
  bool operator==(const RankAddress&) const = default;
};

// One rank that should run on a node.
struct RankAssignment {
  RankKey key;
  bool started = false;  // the worker has reported that the rank runs or has ended, so its configuration is not sent again
  int32_t device = 0;
  DeviceKind device_kind = DeviceKind::kCpu;
  std::string device_uuid;  // only for a GPU
  std::vector<int32_t> cores;
  std::shared_ptr<const JobSpec> spec;
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const std::vector<RankAddress>> peers;  // addresses of all ranks, by rank; null: the rank must only listen
  int64_t resume_step = -1;
  std::string checkpoint_directory;  // an absolute path
  bool yield = false;                // the rank must give way after the current step
  bool check = false;                // the rank must check devices and links before it trains
  RankEncryption encryption = RankEncryption::kOff;
};

struct ReportAck {
  RankKey key;
  int64_t sequence = 0;
  bool released = false;  // the generation is over, so the worker may forget the rank
};

struct WorkerDesired {
  std::vector<RankAssignment> ranks;
  std::vector<ReportAck> acks;
  std::vector<JobId> ended;  // jobs that have ended: the node deletes its copies of their states
};

// The answer to one report of a worker daemon.
struct LeaseRenewal {
  int64_t report = 0;       // number of the report that this renewal answers
  Nanos server_up;          // time since this server process began
  Nanos isolated, cut_off;  // times without an answer after which the node's ranks end (cluster.proto); 0: never
  std::vector<RankAddress> witnesses;
  bool more_witnesses = false;  // the witnesses of earlier renewals remain witnesses
};

// An order that the node gets no new ranks. With `drain`, its present ranks also leave.
struct Cordon {
  std::string reason;
  bool drain = false;
  Nanos deadline;  // end of a drain, wall clock; 0: no deadline
  Nanos since;     // wall clock time
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
  Nanos last_seen;  // wall clock time
  std::shared_ptr<const HardwareProfile> profile;
  std::vector<JobId> jobs;
  std::vector<ReportedCondition> conditions;
  std::optional<Cordon> cordon;
  std::string agent_version, worker_version;  // versions that the last reports named
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_VALUES_NODE_STATE_H_
