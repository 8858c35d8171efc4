// GpuHealth: turns a GPU's Xids (the driver's numbers for errors of a GPU) and readings into conditions of the node, for people
// and for the jobs on the GPU. Pure state; not thread-safe.
//
// A GPU is withdrawn when the driver has lost it, and after an Xid that is not the fault of the program that ran on it. It
// stays withdrawn until the agent restarts, because only a reset or a repair helps. An Xid that the program caused is shown for
// an hour. If the hardware holds a clock down, this is shown as long as it lasts and for another minute.
#ifndef LYNX_AGENT_GPU_HEALTH_H_
#define LYNX_AGENT_GPU_HEALTH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/node_condition.h"
#include "agent/nvml.h"

namespace lynx::agent {

// True if this Xid is caused by a program: by a fault of the program, or by its end.
bool IsXidOfProgram(int64_t xid);
// The name of an Xid, such as "fallen off the bus"; "" for an Xid that has no name here.
std::string XidName(int64_t xid);
// Why heat or power holds the clocks down, such as "it is too hot, and the hardware slows it down"; "" if only load or settings
// do so.
std::string SlowdownText(uint64_t throttle_reasons);

class GpuHealth {
 public:
  // `label`: "GPU 0 (NVIDIA H200)".
  GpuHealth(std::string label, std::string uuid) : label_(std::move(label)), uuid_(std::move(uuid)) {}

  // `now`: wall clock; must not go back.
  void NoteXid(int64_t xid, Nanos now);
  void NoteReadings(const GpuReadings& readings, Nanos now);

  // The conditions that hold at `now`; at most one of each kind.
  std::vector<NodeCondition> Conditions(Nanos now) const;

 private:
  struct Noted {
    NodeCondition condition;
    std::optional<Nanos> until;  // nullopt: the condition stays forever
  };
  // `shown_for`: how long the condition is shown after the last call of Note for this kind; nullopt: forever. A withdrawing
  // condition is never replaced by one that does not withdraw.
  void Note(const std::string& kind, bool withdrawn, const std::string& message, Nanos now, std::optional<Nanos> shown_for);

  const std::string label_;
  const std::string uuid_;
  std::map<std::string, Noted> noted_;
};

}  // namespace lynx::agent

#endif  // LYNX_AGENT_GPU_HEALTH_H_
