// LinkWatch: which links between nodes are busy for longer, or for less, with a step's bytes than when the generation began.
// Bounded. Not thread-safe; owned by the controller.
#ifndef LYNX_SERVER_HEALTH_LINK_WATCH_H_
#define LYNX_SERVER_HEALTH_LINK_WATCH_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/link_use.h"
#include "common/units.h"
#include "server/health/time_window.h"

namespace lynx {

class LinkWatch {
 public:
  LinkWatch() = default;
  explicit LinkWatch(int32_t ranks) : ranks_(ranks) {}

  // The rank has done its next step, which took `duration`. Peers that are no ranks are left out.
  void Add(int32_t rank, Nanos duration, const std::vector<LinkUse>& links);

  // From one rank to another; times are medians of a step's.
  struct Change {
    int32_t from = 0, to = 0;
    int64_t bytes = 0;  // of the newest step
    Nanos before, now;  // that it was busy; now is of the latest steps alone
    bool slower() const { return now > before; }
  };
  // Those that a step may feel: by more than a tenth of the longer step, and to twice or half of their own time. Empty: there
  // are none, or too little is known yet.
  std::vector<Change> Changes() const;

  // From now on changes are those since the latest steps.
  void Rebase();

 private:
  struct Link {
    TimeWindow busy;
    int64_t bytes = 0;
  };
  int32_t ranks_ = 0;
  TimeWindow steps_;  // of rank 0
  std::map<std::pair<int32_t, int32_t>, Link> links_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_HEALTH_LINK_WATCH_H_
