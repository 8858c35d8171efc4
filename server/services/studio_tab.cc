// See studio_tab.h.
#include "server/services/studio_tab.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "studio/cluster_machine.h"

namespace lynx::server {
namespace {

StudioLimits Limits() {
  return {.at_once = StudioTab::kMaxQuestions, .memory = kGiB * 4, .one_thread = true, .background = true};
}

// Looks for the program at each question, so it can be installed while the server runs.
absl::StatusOr<std::string> Ask(const std::string& question, const WakeEvent& cancel) {
  LYNX_ASSIGN_OR_RETURN(const StudioAnswerer answerer, AnswererInProcess(Limits()));
  return answerer(question, cancel);
}

HttpReply TooMany() {
  return {.status = 503, .body = "too many questions at once; ask again soon\n", .headers = {{"Retry-After", "1"}}};
}

}  // namespace

StudioTab::StudioTab(std::set<std::string> hosts, Nodes nodes, Nanos fresh, const Clock& clock)
    : nodes_(std::move(nodes)), fresh_(fresh), clock_(clock),
      service_({.hosts = std::move(hosts), .cluster = [this] { return Cluster(); }}, Ask, Limits()) {}

bool StudioTab::Has(const std::string& path) { return path == kPath || absl::StartsWith(path, std::string(kPath) + "/"); }

HttpReply StudioTab::Answer(HttpRequest request) {
  request.path = std::string(absl::StripPrefix(request.path, kPath));
  // The page asks relative to its own address, so this must end with a slash.
  if (request.path.empty()) return {.status = 307, .headers = {{"Location", "/studio/"}}};
  if (!absl::StartsWith(request.path, "/api/")) return service_.Answer(request);
  if (requests_.fetch_add(1) >= kMaxRequests) {
    requests_.fetch_sub(1);
    return TooMany();
  }
  HttpReply reply = service_.Answer(request);
  requests_.fetch_sub(1);
  return reply;
}

absl::StatusOr<StudioCluster> StudioTab::Cluster() {
  const std::lock_guard lock(mutex_);
  if (looked_ > Nanos(0) && clock_.Monotonic() - looked_ < fresh_) return cluster_;
  if (const absl::StatusOr<std::vector<WholeNode>> nodes = nodes_(); nodes.ok()) {
    const ClusterTopology cluster = WholeCluster(*nodes);
    cluster_ = ClusterMachine(cluster, static_cast<int32_t>(nodes->size()) - cluster.nodes());
  } else {
    cluster_ = nodes.status();
  }
  looked_ = clock_.Monotonic();
  return cluster_;
}

}  // namespace lynx::server
