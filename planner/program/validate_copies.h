// Rules for copies to the host and back. The validator itself checks what transfers in flight read and write. One object of
// this class checks one program, action by action. Pure; not thread-safe.
//
// A buffer (a tensor of a layer and a microbatch) is offloaded at most once. No action touches the buffer from the end of its
// offload to the start of its reload. The buffer is reloaded before the step ends.
#ifndef LYNX_PLANNER_PROGRAM_VALIDATE_COPIES_H_
#define LYNX_PLANNER_PROGRAM_VALIDATE_COPIES_H_

#include <map>
#include <optional>
#include <string>

#include "planner/problem/stage_context.h"
#include "planner/program/memory_model.h"

namespace lynx {

class CopyRules {
 public:
  explicit CopyRules(const StageContext& context) : context_(context) {}

  // Returns the rule that the next action breaks, if any. The action's fields must be in range.
  std::optional<std::string> Follow(const Action& action);
  // Returns what the program lacks at its end, if anything.
  std::optional<std::string> AtEnd() const;

 private:
  enum class Place : uint8_t { kGoing, kOnHost, kBack };  // kBack: the buffer is on the device again, or its reload has started
  struct State {
    Place place;
    Action offload;  // the action that started the offload
  };
  std::optional<std::string> CheckTensors(const Action& action) const;
  std::optional<std::string> FollowCopy(const Action& action, const BufferKey& key);

  const StageContext& context_;
  std::map<BufferKey, State> states_;  // all buffers that were offloaded
};

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_VALIDATE_COPIES_H_
