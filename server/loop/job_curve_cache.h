// JobCurveCache: the curves of jobs that train, with the points that the store does not have yet. Owner thread only.
#ifndef LYNX_SERVER_LOOP_JOB_CURVE_CACHE_H_
#define LYNX_SERVER_LOOP_JOB_CURVE_CACHE_H_

#include <functional>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/units.h"
#include "server/store/store.h"
#include "server/values/events.h"
#include "server/values/job.h"
#include "server/values/job_curves.h"

namespace lynx::server {

class JobCurveCache {
 public:
  static constexpr Nanos kWriteEvery{30'000'000'000};  // how often the curves of a job that trains are written

  explicit JobCurveCache(Store& store) : store_(store) {}

  void Step(const JobRecord& job, const StepRecorded& step, Nanos wall);
  void Evaluated(const JobRecord& job, const EvaluationRecorded& evaluation);
  absl::StatusOr<JobCurves> Of(const JobId& job);

  // Writes the curves that are due; `now`: monotonic. Curves of jobs that have ended or are unknown (`find` returns null) are
  // due at once, and are dropped from the cache when they are written. Curves that cannot be written stay due.
  void Write(Nanos now, const std::function<const JobRecord*(const JobId&)>& find);
  void WriteAll();

 private:
  struct Entry {
    JobCurves curves;
    bool changed = false;  // the curves have points that the store does not have
    Nanos written;         // monotonic time
  };
  Entry& EntryOf(const JobId& job);

  Store& store_;
  std::map<JobId, Entry> jobs_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_LOOP_JOB_CURVE_CACHE_H_
