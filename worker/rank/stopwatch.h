// Stopwatch: medians of repeated runs within a budget of time, and processor times. Not thread-safe.
#ifndef LYNX_WORKER_RANK_STOPWATCH_H_
#define LYNX_WORKER_RANK_STOPWATCH_H_

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <vector>

#include "common/clock.h"

namespace lynx {

// The upper one of the two in the middle of an even number of values. Not empty.
template <class T>
T Median(std::vector<T> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Processor time that the calling thread spends on one run.
template <class Run>
Nanos CpuTimeOf(Run run) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return Nanos(t.tv_sec * 1'000'000'000LL + t.tv_nsec);
  };
  const Nanos begin = now();
  run();
  return now() - begin;
}

class Stopwatch {
 public:
  Stopwatch(int32_t repetitions, double budget_seconds)
      : repetitions_(repetitions), deadline_(clock_.Monotonic() + NanosFromSeconds(budget_seconds)) {}

  bool expired() const { return clock_.Monotonic() >= deadline_; }
  Nanos Now() const { return clock_.Monotonic(); }

  // One run to warm up, then the median of the repetitions; of fewer, but one at least, once the budget is spent.
  template <class Run>
  Nanos MedianOf(Run run) const {
    return MedianTime([&] {
      const Nanos begin = Now();
      run();
      return Now() - begin;
    });
  }

  // The same of runs that say themselves how long they took.
  template <class TimedRun>
  Nanos MedianTime(TimedRun run) const {
    run();
    std::vector<Nanos> times;
    do {
      times.push_back(run());
    } while (static_cast<int32_t>(times.size()) < repetitions_ && !expired());
    return Median(times);
  }

 private:
  RealClock clock_;
  const int32_t repetitions_;
  const Nanos deadline_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_STOPWATCH_H_
