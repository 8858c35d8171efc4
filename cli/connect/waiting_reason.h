// WaitingReason: when a person who watches a job that waits is told why. What the server says of it comes at once and changes
// with whatever else goes on in the cluster, so it is said after some seconds, and again where it has changed, now and then.
// Pure; one thread.
#ifndef LYNX_CLI_CONNECT_WAITING_REASON_H_
#define LYNX_CLI_CONNECT_WAITING_REASON_H_

#include <string>
#include <vector>

#include "common/units.h"
#include "lynx/v1/jobs.pb.h"

namespace lynx {

class WaitingReason {
 public:
  // So long it has waited; between two that differ in kind ("ahead", then "capacity"); between two of the same kinds, that is
  // in numbers or names.
  static constexpr Nanos kFirst{3'000'000'000}, kOther{10'000'000'000}, kSame{60'000'000'000};

  // This has been said already.
  void Said(const std::string& text) { said_ = text; }
  // What is to be said now; "" = nothing. `job` is as it was last heard of. `now`: monotonic.
  std::string Due(const v1::Job& job, Nanos now);

 private:
  bool waits_ = false;
  bool told_ = false;  // since it waits
  Nanos since_;        // it waits, or was told
  std::string said_;
  std::vector<std::string> kinds_;  // of what was told
};

}  // namespace lynx

#endif  // LYNX_CLI_CONNECT_WAITING_REASON_H_
