// The loop of lynx-agent. It reports to the server what the node has and what has been measured, and measures what the server
// asks for. One thread owns the profile; measurements and the stream to the server have threads of their own.
#ifndef LYNX_AGENT_AGENT_H_
#define LYNX_AGENT_AGENT_H_

#include <string>
#include <vector>

#include "agent/agent_metrics.h"
#include "agent/agent_profile.h"
#include "agent/gpu_watch.h"
#include "agent/measuring_thread.h"
#include "agent/node_cores.h"
#include "agent/probe.h"
#include "node/channel.h"
#include "node/server_addresses.h"
#include "node/wake.h"

namespace lynx::agent {

struct AgentOptions {
  std::string node;
  ServerAddresses servers;
  std::vector<NodeCondition> conditions;  // conditions that hold as long as the agent runs
  Bytes host_memory;                      // the node's memory that GPUs may offload to; 0: no offloading
  NodeCores cores;                        // reported if the devices are CPUs
  std::string network_domain;             // the node's domain (common/network_domain.h); may be empty
  bool network_rate_assumed = false;      // the rate between nodes is not stated
  CredentialSource credentials;           // null: plain text
};

enum class AgentEnd : uint8_t { kStopSignal, kDeviceWithdrawn };

// Runs until a stop signal, or until a condition of `gpus` withdraws one of `devices`. In the second case the measurements are
// no longer valid, because they are of all devices together. `gpus` may be null. `wake` is the event that `measuring` and
// `gpus` raise.
AgentEnd RunAgent(const AgentOptions& options, const std::vector<NodeDevice>& devices, AgentProfile profile,
                  MeasuringThread& measuring, const GpuWatch* gpus, WakeEvent& wake, AgentMetrics& metrics,
                  StopSignals& signals, const Clock& clock);

}  // namespace lynx::agent

#endif  // LYNX_AGENT_AGENT_H_
