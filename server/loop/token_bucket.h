// TokenBucket: a rate limit. It gives `per_second` tokens a second on average, and at most `burst` without a pause. A value;
// not thread-safe.
#ifndef LYNX_SERVER_LOOP_TOKEN_BUCKET_H_
#define LYNX_SERVER_LOOP_TOKEN_BUCKET_H_

#include <algorithm>

#include "common/units.h"

namespace lynx::server {

struct Rate {
  double per_second = 1;
  double burst = 1;
};

class TokenBucket {
 public:
  TokenBucket(Rate rate, Nanos now) : rate_(rate), level_(rate.burst), at_(now) {}

  // Takes a token and returns 0. If there is no token, returns the time until there will be one.
  Nanos Take(Nanos now) {
    level_ = std::min(rate_.burst, level_ + Seconds(now - at_) * rate_.per_second);
    at_ = now;
    if (level_ >= 1) {
      level_ -= 1;
      return Nanos(0);
    }
    return Nanos(static_cast<int64_t>((1 - level_) / rate_.per_second * 1e9) + 1);
  }
  // True if the bucket is full, like a new bucket.
  bool Full(Nanos now) const { return level_ + Seconds(now - at_) * rate_.per_second >= rate_.burst; }

 private:
  static double Seconds(Nanos time) { return static_cast<double>(time.value) / 1e9; }

  Rate rate_;
  double level_;  // number of tokens at the time at_
  Nanos at_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_LOOP_TOKEN_BUCKET_H_
