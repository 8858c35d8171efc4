// SpeedWatch: finds ranks of a generation whose computation has become slower or faster since it began, compared with the other
// ranks. Bounded. Not thread-safe; owned by the controller.
#ifndef LYNX_SERVER_HEALTH_SPEED_WATCH_H_
#define LYNX_SERVER_HEALTH_SPEED_WATCH_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "server/health/time_window.h"

namespace lynx::server {

class SpeedWatch {
 public:
  SpeedWatch() = default;
  explicit SpeedWatch(int32_t ranks) : ranks_(static_cast<size_t>(ranks)) {}

  // Adds the time that the rank's compute stream was busy in its next step.
  void Add(int32_t rank, Nanos busy);

  // Returns for each rank the factor by which a step's computation now takes longer than in the first steps, divided by the
  // factor of the rank that changed least. A change that affects all ranks alike says nothing about one of them. Empty: too
  // little is known yet.
  std::vector<double> Changes() const;

  // Makes changes relative to the latest steps from now on.
  void Rebase();

 private:
  std::vector<TimeWindow> ranks_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_HEALTH_SPEED_WATCH_H_
