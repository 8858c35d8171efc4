// Leadership: whether this server leads, by its own clock. Several servers may name one store; one of them leads
// (server/store/server_lease.h). The thread that renews the lease says how long it holds; whoever is about to answer a call or
// to direct a node asks. The clock counts while the machine sleeps and while the process is stopped. So a server that was
// stopped for long does not lead when it continues, whichever of its threads runs first. Thread-safe.
#ifndef LYNX_SERVER_VALUES_LEADERSHIP_H_
#define LYNX_SERVER_VALUES_LEADERSHIP_H_

#include <atomic>
#include <cstdint>
#include <limits>

#include "common/clock.h"
#include "common/units.h"

namespace lynx::server {

class Leadership {
 public:
  bool Leads() const { return BootTime().value < until_.load(); }
  // The server leads until this BootTime.
  void LeadUntil(Nanos until) { until_ = until.value; }
  // For a server that is always the only one.
  void LeadForEver() { until_ = std::numeric_limits<int64_t>::max(); }
  void End() { until_ = 0; }

 private:
  std::atomic<int64_t> until_{0};  // the BootTime until which this server leads; 0: it does not lead
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_VALUES_LEADERSHIP_H_
