// Rules for copies to the host and back. (What a transfer under way holds, the validator looks after for all of them.) One
// object follows one program. Pure; not thread-safe.
//
// A buffer (a tensor of a layer and microbatch) that goes to the host goes once, is touched by nothing from the end of its
// way out to the start of its way back, and comes back before the step ends.
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

  // The rule that the next action breaks, if any. Its fields are in range.
  std::optional<std::string> Follow(const Action& action);
  // What the program's end leaves undone, if anything.
  std::optional<std::string> AtEnd() const;

 private:
  enum class Place : uint8_t { kGoing, kOnHost, kBack };  // kBack: or on its way
  struct State {
    Place place;
    Action offload;  // start
  };
  std::optional<std::string> CheckTensors(const Action& action) const;
  std::optional<std::string> FollowCopy(const Action& action, const BufferKey& key);

  const StageContext& context_;
  std::map<BufferKey, State> states_;  // of all that have gone
};

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_VALIDATE_COPIES_H_
