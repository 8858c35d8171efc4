// Stopwatch computes medians of repeated runs within a time budget. This file also has functions that measure processor time.
// Not thread-safe.
#ifndef LYNX_WORKER_RANK_MEASURE_STOPWATCH_H_
#define LYNX_WORKER_RANK_MEASURE_STOPWATCH_H_

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <vector>

#include "common/clock.h"

namespace lynx::worker {

// Returns the median. For an even number of values it is the upper of the two middle ones. `values` must not be empty.
template <class T>
T Median(std::vector<T> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Returns the processor time that has been used by the calling thread (CLOCK_THREAD_CPUTIME_ID), or by all threads of the
// process (CLOCK_PROCESS_CPUTIME_ID).
inline Nanos ProcessorTime(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return Nanos(t.tv_sec * 1'000'000'000LL + t.tv_nsec);
}

// Returns the processor time that the calling thread spends on one run.
template <class Run>
Nanos CpuTimeOf(Run run) {
  const Nanos begin = ProcessorTime(CLOCK_THREAD_CPUTIME_ID);
  run();
  return ProcessorTime(CLOCK_THREAD_CPUTIME_ID) - begin;
}

// What a stopwatch measures. kWall: wall-clock time. kProcessor: the processor time of the whole process. If all threads of the
// process are on one core, and one of them always has work, the processor time is the elapsed time without the waits for the
// core. So it does not include the time of other processes on the core.
enum class Counted : uint8_t { kWall, kProcessor };

enum class RunCounts : uint8_t { kNo, kYes };

class Stopwatch {
 public:
  Stopwatch(int32_t repetitions, double budget_seconds, Counted counted = Counted::kWall)
      : repetitions_(repetitions), deadline_(clock_.Monotonic() + NanosFromSeconds(budget_seconds)), counted_(counted) {}

  bool expired() const { return clock_.Monotonic() >= deadline_; }  // uses wall-clock time for both values of Counted
  Nanos Now() const { return counted_ == Counted::kProcessor ? ProcessorTime(CLOCK_PROCESS_CPUTIME_ID) : clock_.Monotonic(); }

  // Does one run to warm up, then returns the median of the repetitions. If the budget is used up, it stops repeating, but it
  // does at least one repetition.
  template <class Run>
  Nanos MedianOf(Run run) const {
    return MedianTime([&] {
      const Nanos begin = Now();
      run();
      return Now() - begin;
    });
  }

  // Like MedianOf, but for runs that return how long they took.
  template <class TimedRun>
  Nanos MedianTime(TimedRun run) const {
    std::vector<Nanos> times;
    Repeat(repetitions_, [&](RunCounts counts) {
      const Nanos time = run();
      if (counts == RunCounts::kYes) times.push_back(time);
    });
    return Median(times);
  }

  // Does one run to warm up, then `times` runs whose time is measured. If the budget is used up, it stops repeating, but it
  // measures at least one run.
  template <class Run>
  void Repeat(int32_t times, Run run) const {
    run(RunCounts::kNo);
    int32_t done = 0;
    do {
      run(RunCounts::kYes);
    } while (++done < times && !expired());
  }
  int32_t repetitions() const { return repetitions_; }

 private:
  RealClock clock_;
  const int32_t repetitions_;
  const Nanos deadline_;
  const Counted counted_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_MEASURE_STOPWATCH_H_
