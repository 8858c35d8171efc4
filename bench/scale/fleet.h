// Fleet: thousands of nodes in one process. Each node has an agent's and a worker daemon's stream over real gRPC, and
// ranks that exist only in its reports. When a stream ends, the node dials again with the daemons' backoff. It reports
// at the heartbeat that the server asks for.
//
// Thread-safe. Each node's state is guarded by its own lock.
#ifndef LYNX_BENCH_SCALE_FLEET_H_
#define LYNX_BENCH_SCALE_FLEET_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "common/units.h"

namespace lynx::scale {

// Times in milliseconds, collected from many threads.
class Samples {
 public:
  void Add(double millis);
  // Returns the values sorted, and removes them.
  std::vector<double> Take();

 private:
  std::mutex mutex_;
  std::vector<double> values_;
};
// The quantile of sorted values; 0 if the list is empty.
double Quantile(const std::vector<double>& sorted, double share);

struct FleetOptions {
  std::string server;  // host:port
  int nodes = 0;
  int devices = 1;  // devices of each node
  // How long a short job's rank runs. A job of more than kShortSteps steps runs until it is told to end.
  Nanos train{1'000'000'000};
};
inline constexpr int64_t kShortSteps = 100;

class Node;

class Fleet {
 public:
  explicit Fleet(FleetOptions options);
  ~Fleet();

  // The number of nodes whose two streams have both had an answer since they were opened.
  int attached() const;
  // The reasons why streams have ended, and how often.
  std::map<std::string, int64_t> ended();
  // Times in milliseconds: between two answered reports of a worker daemon, and from a report to its answer.
  Samples& intervals() { return intervals_; }
  Samples& answers() { return answers_; }
  // told: the number of ranks that have been told to bind their sockets, which is the first order for a rank. running: the
  // number of ranks that run now.
  int64_t told() const { return told_; }
  int64_t running() const { return running_; }

 private:
  friend class Node;
  // Runs `action` in the fleet's own thread.
  void At(Nanos time, std::function<void()> action);
  void Main();
  void Ended(const std::string& reason);

  const FleetOptions options_;
  Samples intervals_, answers_;
  std::atomic<int64_t> told_{0}, running_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  struct Item {
    Nanos time;
    std::function<void()> action;
    bool operator<(const Item& other) const { return other.time < time; }
  };
  // mutex_ guards the next three members.
  std::priority_queue<Item> items_;
  std::map<std::string, int64_t> ended_;
  bool stop_ = false;

  std::vector<std::unique_ptr<Node>> nodes_;
  std::thread thread_;
};

}  // namespace lynx::scale

#endif  // LYNX_BENCH_SCALE_FLEET_H_
