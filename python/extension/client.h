// Service and JobWatch connect the package's Client to a lynx-server. They make the calls of lynxctl (cli/connect/client.h).
// Functions need the interpreter's lock, and give it up while they wait.
#ifndef LYNX_PYTHON_EXTENSION_CLIENT_H_
#define LYNX_PYTHON_EXTENSION_CLIENT_H_

#include <pybind11/pybind11.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/connect/client.h"
#include "cli/local/find_server.h"
#include "python/extension/background.h"
#include "python/extension/planning.h"

namespace lynx::python {

// The changes of a job, in order. A thread of its own listens to the server.
class JobWatch {
 public:
  // The watch has its own connection.
  JobWatch(cli::ServerAddress server, Nanos timeout, const std::string& job);
  // Ends the watch; its thread ends soon after (Client::Watch).
  ~JobWatch() { Close(); }
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // Waits for the next message (WatchJobResponse). None: the job has ended, or the watch is closed. Throws the watch's error.
  pybind11::object Next();
  // Wakes a call of Next that waits in another thread. Close may be called several times.
  void Close();

 private:
  // The members that the thread and the owner share.
  struct Line {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<v1::WatchJobResponse> messages;  // at most kMaxWaiting
    bool ended = false, closed = false;
    absl::Status status;
  };

  std::shared_ptr<Line> line_;
  std::shared_ptr<BackgroundTask> task_;
};

// One server, or several of which one leads. Calls from several threads take turns.
class Service {
 public:
  Service(const cli::ConnectionFlags& flags, double timeout_seconds);

  std::string server() const;  // HOST:PORT, or several with commas
  pybind11::object Submit(const std::string& text, const std::string& name, const std::string& folder,
                          const std::vector<std::string>& overrides, const std::string& key);
  pybind11::object Get(const std::string& job, bool events);
  pybind11::object List(int32_t limit, const std::vector<std::string>& states, const std::string& user);
  pybind11::object Cancel(const std::string& job, const std::string& reason, bool checkpoint, double grace_seconds);
  pybind11::object Hold(const std::string& job, const std::string& reason);
  pybind11::object Release(const std::string& job);
  pybind11::object Logs(const std::string& job, int32_t rank, int32_t lines, int64_t attempt, int64_t after);
  pybind11::object Curves(const std::string& job);
  pybind11::object Nodes();
  pybind11::object Queues();
  pybind11::object WhoAmI();
  std::shared_ptr<MadePlan> PlanOf(const std::string& job);
  std::unique_ptr<JobWatch> Watch(const std::string& job);

 private:
  struct Shared {
    std::mutex mutex;
    cli::Client client;  // guarded by mutex
  };
  // Makes a call with the client, and returns its message as values.
  template <class Call>
  auto Ask(Call call);

  cli::ServerAddress address_;
  Nanos timeout_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace lynx::python

#endif  // LYNX_PYTHON_EXTENSION_CLIENT_H_
