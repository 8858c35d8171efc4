// LivePage: what lynx-server answers to browsers: one read-only page about the cluster and its jobs, the JSON
// data for it, and the studio, in which people plan for the cluster.
//
//     /               the page, with /page.css, /shared.js and /page.js; the same for everybody; it loads nothing from others
//     /api/cluster    summaries of nodes and counts of jobs
//     /api/jobs       jobs that have not ended, then those that have, newest first; at most kMaxJobs
//     /api/nodes?from=FIRST&to=LAST   nodes with names from FIRST to LAST, both included; at most kMaxNodes
//     /api/job?id=ID  one job as the parts of its report (report/job_report.h)
//     /studio/...     the studio (studio_tab.h), for whoever may see the nodes
//
// The guard decides who may see the page, with the same rules as for the RPCs with the same data. A browser sends a token as
// the password of HTTP basic authentication; a program sends it as a bearer token. A request is refused if its Host header is
// not one of `hosts`. So a web page of an attacker whose domain name resolves to this server (DNS rebinding) cannot read
// anything.
//
// Requests share work: an answer is kept for the time `fresh`, and other requests for the same data get it too. The owner
// thread only copies a bounded amount of data; texts and plots are made on the requesting thread. If the owner thread does not
// answer within `patience`, the answer is 503.
//
// Thread-safe. The services and the guard must outlive the page.
#ifndef LYNX_SERVER_SERVICES_LIVE_PAGE_H_
#define LYNX_SERVER_SERVICES_LIVE_PAGE_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "node/http_endpoint.h"
#include "report/traced_job.h"
#include "server/access/guard.h"
#include "server/loop/core.h"
#include "server/services/jobs_service.h"
#include "server/services/studio_tab.h"

namespace lynx::server {

struct LivePageOptions {
  std::vector<std::string> hosts;     // names and numeric addresses by which the page is reached, without ports
  Nanos fresh{1'000'000'000};         // how long an answer is reused
  Nanos trace_fresh{10'000'000'000};  // how long a traced step is reused
  Nanos forget{60'000'000'000};       // answers and steps that nobody requested for this long are dropped
  size_t most_actions = 100'000;      // a traced step with more actions is not drawn; the report has it
  Nanos patience{5'000'000'000};      // time limit for the owner thread to answer
};

class LivePage {
 public:
  LivePage(ServerCore& core, JobsService& jobs, Guard& guard, LivePageOptions options, const Clock& clock);

  HttpReply Answer(const HttpRequest& request);
  // Called with the head of a request that has a body. The reply refuses the request before its body is read; nullopt: the body
  // may be read.
  std::optional<HttpReply> RefusedBody(const HttpRequest& request);
  // Stops the studio's questions; then nothing keeps the endpoint's threads for long.
  void Stop() { studio_.Stop(); }

  static constexpr size_t kMaxJobs = 200;
  static constexpr size_t kMaxNodes = 100;
  // Parts of a job's report that are longer than this are left out. In bytes.
  static constexpr size_t kMaxPartLength = 2 << 20;

 private:
  struct Entry;
  // The traced step of a job's present plan.
  struct Traced {
    std::shared_ptr<const TracedJob> step;  // null: there is no traced step, or it is too large
    bool too_large = false;                 // there is a traced step, but it is too large
    Nanos looked;                           // monotonic: when the trace was read
  };

  // The reply that refuses the request for its Host header, or for its caller; nullopt: it is not refused. `method`: the RPC
  // that returns the same data.
  std::optional<HttpReply> RefusedHost(const HttpRequest& request) const;
  std::optional<HttpReply> RefusedCaller(const HttpRequest& request, const std::string& method);
  HttpReply Route(const HttpRequest& request);
  HttpReply Kept(const std::string& key, const std::function<absl::StatusOr<std::string>()>& make);
  template <class Value>
  absl::StatusOr<Value> OnOwner(std::function<absl::StatusOr<Value>()> work);

  absl::StatusOr<std::string> Cluster();
  absl::StatusOr<std::string> Jobs();
  absl::StatusOr<std::string> Nodes(const std::string& from, const std::string& to);
  absl::StatusOr<std::string> Job(const std::string& id);
  absl::StatusOr<Traced> TraceOf(const v1::Job& job);

  ServerCore& core_;
  JobsService& jobs_;
  Guard& guard_;
  const LivePageOptions options_;
  const std::set<std::string> hosts_;
  const Clock& clock_;

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>> kept_;  // guarded by mutex_
  std::map<std::string, Traced> traces_;                // guarded by mutex_; key: job, generation and plan
  StudioTab studio_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_SERVICES_LIVE_PAGE_H_
