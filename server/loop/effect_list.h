// EffectList: effects that wait to be carried out, in their order; of two states of the same thing only the newer, at its
// place, and notices of the same job as one. Not thread-safe.
#ifndef LYNX_SERVER_LOOP_EFFECT_LIST_H_
#define LYNX_SERVER_LOOP_EFFECT_LIST_H_

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/values/events.h"

namespace lynx {

class EffectList {
 public:
  void Append(Effect effect);
  bool empty() const { return effects_.size() == dropped_; }
  void clear();
  // All of them; until the next change.
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
  std::vector<bool> gone_;  // beside effects_: a newer one has taken its place
  size_t dropped_ = 0;
  std::unordered_map<std::string, size_t> newest_;  // where the newest of its kind is
};

}  // namespace lynx

#endif  // LYNX_SERVER_LOOP_EFFECT_LIST_H_
