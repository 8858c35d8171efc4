// TroubleLog: which lines about a trouble that is noticed again and again go into the log. A new trouble is logged at once, but
// no two lines within kApart, and the same trouble again after kAgain. What was left out meanwhile is counted. Not thread-safe.
#ifndef LYNX_SERVER_METRICS_TROUBLE_LOG_H_
#define LYNX_SERVER_METRICS_TROUBLE_LOG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/units.h"

namespace lynx::server {

class TroubleLog {
 public:
  static constexpr Nanos kApart{1'000'000'000}, kAgain{60'000'000'000};

  // `trouble`: what is wrong now; "": nothing is wrong. `now`: a monotonic time. Returns the line to log; nullopt: none.
  std::optional<std::string> Next(const std::string& trouble, Nanos now) {
    const bool is_new = trouble != last_;
    last_ = trouble;
    if (trouble.empty()) return std::nullopt;
    pending_ = pending_ || is_new;
    if (logged_at_.has_value() && now - *logged_at_ < (pending_ ? kApart : kAgain)) {
      left_out_ += is_new ? 1 : 0;
      return std::nullopt;
    }
    // The trouble of this line was counted if it was noticed before.
    const int64_t others = left_out_ - (pending_ && !is_new ? 1 : 0);
    logged_at_ = now;
    left_out_ = 0;
    pending_ = false;
    return others > 0 ? absl::StrCat(trouble, " (and ", others, " other troubles since the line before)") : trouble;
  }

 private:
  std::string last_;
  bool pending_ = false;  // `last_` has not been logged yet
  std::optional<Nanos> logged_at_;
  int64_t left_out_ = 0;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_METRICS_TROUBLE_LOG_H_
