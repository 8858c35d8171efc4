// Identifiers. Each kind has a type of its own, so the compiler finds code that confuses, for example, a job with a node.
#ifndef LYNX_COMMON_IDS_H_
#define LYNX_COMMON_IDS_H_

#include <compare>
#include <cstdint>
#include <string>

namespace lynx {

template <class Tag>
struct StringId {
  std::string value;

  StringId() = default;
  explicit StringId(std::string v) : value(std::move(v)) {}
  auto operator<=>(const StringId&) const = default;
  bool empty() const { return value.empty(); }

  template <class H>
  friend H AbslHashValue(H h, const StringId& id) {
    return H::combine(std::move(h), id.value);
  }
};

using JobId = StringId<struct JobIdTag>;
using NodeId = StringId<struct NodeIdTag>;

// The number of a start or restart of a job: 1, 2, ... 0: the job has not started yet. Commits of an older generation are
// refused.
struct Generation {
  int64_t value = 0;
  constexpr Generation() = default;
  constexpr explicit Generation(int64_t v) : value(v) {}
  constexpr auto operator<=>(const Generation&) const = default;
};

}  // namespace lynx

#endif  // LYNX_COMMON_IDS_H_
