// EffectList: effects that wait to be carried out, in order. If two effects set the state of the same thing, only the newer
// effect stays, in its own place in the order. Notices about the same job are joined. Not thread-safe.
#ifndef LYNX_SERVER_LOOP_EFFECT_LIST_H_
#define LYNX_SERVER_LOOP_EFFECT_LIST_H_

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/values/events.h"

namespace lynx::server {

class EffectList {
 public:
  void Append(Effect effect);
  bool empty() const { return effects_.size() == dropped_; }
  void clear();
  // All effects. Valid until the next change.
  const std::vector<Effect>& Get();
  std::vector<Effect> Take();
  template <class Predicate>
  void EraseIf(Predicate predicate) {
    std::vector<Effect> all = Take();
    for (Effect& effect : all) {
      if (!predicate(effect)) Append(std::move(effect));
    }
  }

 private:
  void Compact();

  std::vector<Effect> effects_;
  std::vector<bool> gone_;                          // [i]: true if a newer effect has replaced effects_[i]
  size_t dropped_ = 0;                              // number of true entries in gone_
  std::unordered_map<std::string, size_t> newest_;  // index of the newest effect with this key
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_LOOP_EFFECT_LIST_H_
