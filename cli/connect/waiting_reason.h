// WaitingReason: decides when to tell a person who watches a waiting job why it waits. The server's reason changes with
// everything that happens in the cluster. So the reason is shown only after some seconds. A changed reason is shown again only
// after a pause. Pure; one thread.
#ifndef LYNX_CLI_CONNECT_WAITING_REASON_H_
#define LYNX_CLI_CONNECT_WAITING_REASON_H_

#include <string>
#include <vector>

#include "common/units.h"
#include "lynx/v1/jobs.pb.h"

namespace lynx::cli {

class WaitingReason {
 public:
  // kFirst: how long the job has waited before the first reason is shown. kOther: the time from the last shown reason to a
  // reason of other kinds ("ahead", then "capacity"). kSame: the time from the last shown reason to one of the same kinds, in
  // which only numbers or names differ.
  static constexpr Nanos kFirst{3'000'000'000}, kOther{10'000'000'000}, kSame{60'000'000'000};

  // Call this if `text` was shown to the person in another way. Due does not return this text again.
  void Said(const std::string& text) { said_ = text; }
  // The text to show now; "" = nothing. `job`: the newest known state of the job. `now`: monotonic.
  std::string Due(const v1::Job& job, Nanos now);

 private:
  bool waits_ = false;
  bool told_ = false;  // a reason was shown since the job began to wait
  Nanos since_;        // when the job began to wait, or when a reason was last shown
  std::string said_;
  std::vector<std::string> kinds_;  // kinds of the reason that was last shown
};

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECT_WAITING_REASON_H_
