// The loop of lynx-agent: tells the server what the node has and what has been measured, and measures what it is
// asked to. One thread owns the profile; measurements and the stream to the server have threads of their own.
#ifndef LYNX_AGENT_AGENT_H_
#define LYNX_AGENT_AGENT_H_

#include <string>
#include <vector>

#include "agent/agent_metrics.h"
#include "agent/agent_profile.h"
#include "agent/measuring_thread.h"
#include "agent/probe.h"
#include "node/wake.h"

namespace lynx {

struct AgentOptions {
  std::string node;
  std::string server;  // host:port
};

// Runs until a stop signal. `wake` is the event that `measuring` raises.
void RunAgent(const AgentOptions& options, const std::vector<NodeDevice>& devices, AgentProfile profile,
              MeasuringThread& measuring, WakeEvent& wake, AgentMetrics& metrics, StopSignals& signals,
              const Clock& clock);

}  // namespace lynx

#endif  // LYNX_AGENT_AGENT_H_
