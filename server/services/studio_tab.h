// StudioTab: the studio (studio/service.h) as a tab of the live page, with this server's cluster as the first machine.
//
// Questions are answered by the program lynx-studio, with the lowest priority, at most kMaxQuestions at a time over all pages;
// others wait for their turn. Requests that ask something hold a thread of the page's endpoint, so at most kMaxRequests are
// served at a time; more are answered 503, and the page asks again. If the program is not there, the page is served, and says
// so with each answer.
//
// The caller has checked who asks. Thread-safe. `nodes` is called on the requesting threads.
#ifndef LYNX_SERVER_SERVICES_STUDIO_TAB_H_
#define LYNX_SERVER_SERVICES_STUDIO_TAB_H_

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "node/http_endpoint.h"
#include "server/scheduling/whole_cluster.h"
#include "studio/service.h"

namespace lynx::server {

class StudioTab {
 public:
  static constexpr char kPath[] = "/studio";
  static constexpr size_t kMaxQuestions = 2;
  static constexpr int kMaxRequests = 8;

  // `nodes`: the nodes as they are now. They are asked for at most once in the time `fresh`.
  using Nodes = std::function<absl::StatusOr<std::vector<WholeNode>>()>;
  StudioTab(std::set<std::string> hosts, Nodes nodes, Nanos fresh, const Clock& clock);

  // True if the path is kPath or below it.
  static bool Has(const std::string& path);
  HttpReply Answer(HttpRequest request);
  // Stops all questions; then nothing keeps the endpoint's threads.
  void Stop() { service_.Stop(); }
  int requests() const { return requests_; }  // that are served now, of those that ask something

 private:
  absl::StatusOr<StudioCluster> Cluster();

  const Nodes nodes_;
  const Nanos fresh_;
  const Clock& clock_;
  std::mutex mutex_;                       // held while the cluster is looked at; other threads wait for it
  absl::StatusOr<StudioCluster> cluster_;  // guarded by mutex_; an error is kept as long as a cluster is
  Nanos looked_;                           // guarded by mutex_; monotonic; 0: never
  std::atomic<int> requests_{0};
  StudioService service_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_SERVICES_STUDIO_TAB_H_
