// LinkWatch: finds links between nodes whose busy time per step has become longer or shorter since the generation began.
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

namespace lynx::server {

class LinkWatch {
 public:
  LinkWatch() = default;
  explicit LinkWatch(int32_t ranks) : ranks_(ranks) {}

  // Adds the rank's next step, which took `duration`. Links to peers that are not ranks are ignored.
  void Add(int32_t rank, Nanos duration, const std::vector<LinkUse>& links);

  // A link from one rank to another. Times are medians over steps.
  struct Change {
    int32_t from = 0, to = 0;
    int64_t bytes = 0;  // bytes that the link carried in the newest step
    Nanos before, now;  // busy time per step; `now` covers only the latest steps
    bool slower() const { return now > before; }
  };
  // Returns the links whose change affects a step. The time of such a link has more than doubled or fallen below half. The
  // difference is more than a tenth of a step's time (before the change or now, whichever is longer). Empty: there are no such
  // links, or too few steps are known yet.
  std::vector<Change> Changes() const;

  // From now on, Changes() compares with the latest steps.
  void Rebase();

 private:
  struct Link {
    TimeWindow busy;
    int64_t bytes = 0;
  };
  int32_t ranks_ = 0;
  TimeWindow steps_;  // durations of the steps of rank 0
  std::map<std::pair<int32_t, int32_t>, Link> links_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_HEALTH_LINK_WATCH_H_
