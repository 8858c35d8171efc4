// Stopwatch: medians of repeated runs within a budget of time, and processor times. Not thread-safe.
#ifndef LYNX_WORKER_RANK_MEASURE_STOPWATCH_H_
#define LYNX_WORKER_RANK_MEASURE_STOPWATCH_H_

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

// CLOCK_THREAD_CPUTIME_ID: of the calling thread; CLOCK_PROCESS_CPUTIME_ID: of all threads of the process.
inline Nanos ProcessorTime(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return Nanos(t.tv_sec * 1'000'000'000LL + t.tv_nsec);
}

// Processor time that the calling thread spends on one run.
template <class Run>
Nanos CpuTimeOf(Run run) {
  const Nanos begin = ProcessorTime(CLOCK_THREAD_CPUTIME_ID);
  run();
  return ProcessorTime(CLOCK_THREAD_CPUTIME_ID) - begin;
}

// What a stopwatch counts. kProcessor: processor time of the whole process, which is time without waiting for the
// core, if all its threads are on one core and one of them always has work: so that what other processes do there
// meanwhile is not in it.
enum class Counted : uint8_t { kWall, kProcessor };

class Stopwatch {
 public:
  Stopwatch(int32_t repetitions, double budget_seconds, Counted counted = Counted::kWall)
      : repetitions_(repetitions), deadline_(clock_.Monotonic() + NanosFromSeconds(budget_seconds)), counted_(counted) {}

  bool expired() const { return clock_.Monotonic() >= deadline_; }  // wall time in any case
  Nanos Now() const { return counted_ == Counted::kProcessor ? ProcessorTime(CLOCK_PROCESS_CPUTIME_ID) : clock_.Monotonic(); }

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
  const Counted counted_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_MEASURE_STOPWATCH_H_
