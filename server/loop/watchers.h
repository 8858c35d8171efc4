// Watchers: the WatchJob calls of each job. A watcher gets every event at once, and progress at most 20 times a second. Owner
// thread only; the streams themselves are thread-safe.
#ifndef LYNX_SERVER_LOOP_WATCHERS_H_
#define LYNX_SERVER_LOOP_WATCHERS_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "common/units.h"
#include "lynx/v1/jobs.pb.h"
#include "server/values/job.h"

namespace lynx::server {

// One WatchJob call.
class WatchStream {
 public:
  virtual ~WatchStream() = default;
  // `last`: the stream ends after this message.
  virtual void Send(const v1::WatchJobResponse& response, bool last) = 0;
  virtual void Close(const absl::Status& status) = 0;
};

class Watchers {
 public:
  static constexpr size_t kMost = 1000;

  static constexpr size_t kMaxOfOne = 100;  // largest number of watchers of one caller

  // Adds a watcher for the caller `who`. If `who` is empty, the limit for one caller does not apply. ResourceExhausted: a limit
  // is reached.
  absl::Status Add(const JobId& job, const std::string& who, std::shared_ptr<WatchStream> stream);
  void Remove(const JobId& job, const WatchStream* stream);
  void Close(const JobId& job, const absl::Status& status);
  void CloseAll(const absl::Status& status);

  // Tells the job's watchers that the job has changed. `encode` returns the job's present state. It is called only if somebody
  // watches and a message is due.
  using EncodeJob = std::function<v1::Job(const JobId&)>;
  void Changed(const JobId& job, bool final, const std::vector<JobEvent>& events, Nanos now, const EncodeJob& encode);
  // Sends the progress that Changed has held back because the last message was too recent.
  void Tick(Nanos now, const EncodeJob& encode);

 private:
  struct Watcher {
    std::string who;
    std::shared_ptr<WatchStream> stream;
  };
  struct Watched {
    std::vector<Watcher> watchers;
    Nanos sent;              // monotonic time
    bool held_back = false;  // the job has progress that Tick must send
  };
  void Send(Watched& watched, const v1::WatchJobResponse& response, bool last, Nanos now);

  std::map<JobId, Watched> jobs_;
  size_t count_ = 0;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_LOOP_WATCHERS_H_
