// NodeCondition: something about a node or one of its devices that people should know. Plain data.
#ifndef LYNX_AGENT_NODE_CONDITION_H_
#define LYNX_AGENT_NODE_CONDITION_H_

#include <string>

#include "common/units.h"

namespace lynx::agent {

struct NodeCondition {
  std::string kind;        // one of the kinds in proto/lynx/v1/cluster.proto
  std::string device;      // UUID of the GPU; empty = the node
  bool withdrawn = false;  // the device is not offered while the condition holds
  std::string message;     // a sentence
  Nanos since;             // wall clock time
  bool operator==(const NodeCondition&) const = default;
};

}  // namespace lynx::agent

#endif  // LYNX_AGENT_NODE_CONDITION_H_
