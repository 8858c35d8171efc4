// GpuHealth: what a GPU's Xids and readings mean for people and for the jobs on it: the node's conditions. Pure state;
// not thread-safe.
//
// A GPU is withdrawn when the driver has lost it, and after an Xid that is not the fault of the program that ran on it:
// until the agent starts anew, because only a reset or a repair helps. An Xid of a program's own is shown for an hour, a
// clock that the hardware holds down as long as it does and a minute more.
#ifndef LYNX_AGENT_GPU_HEALTH_H_
#define LYNX_AGENT_GPU_HEALTH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/node_condition.h"
#include "agent/nvml.h"

namespace lynx {

// Whether the Xid is the driver's word for what a program did: its own fault, or its being ended.
bool IsXidOfProgram(int64_t xid);
// "fallen off the bus"; "" for one without a name here.
std::string XidName(int64_t xid);
// "thermal slowdown by the hardware"; "" where nothing but load or settings holds clocks down.
std::string SlowdownText(uint64_t throttle_reasons);

class GpuHealth {
 public:
  // `label`: "GPU 0 (NVIDIA H200)".
  GpuHealth(std::string label, std::string uuid) : label_(std::move(label)), uuid_(std::move(uuid)) {}

  // `now`: wall clock, not falling.
  void NoteXid(int64_t xid, Nanos now);
  void NoteReadings(const GpuReadings& readings, Nanos now);

  // What holds at `now`; at most one of a kind.
  std::vector<NodeCondition> Conditions(Nanos now) const;

 private:
  struct Noted {
    NodeCondition condition;
    std::optional<Nanos> until;  // nullopt: for good
  };
  // `shown_for`: after its last note. A withdrawing condition is never replaced by one that does not withdraw.
  void Note(const std::string& kind, bool withdrawn, const std::string& message, Nanos now, std::optional<Nanos> shown_for);

  const std::string label_;
  const std::string uuid_;
  std::map<std::string, Noted> noted_;
};

}  // namespace lynx

#endif  // LYNX_AGENT_GPU_HEALTH_H_
