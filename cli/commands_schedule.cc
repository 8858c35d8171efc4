// The verbs that say when and where jobs run: hold, release, queue, node.
#include "absl/strings/str_cat.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/listings.h"
#include "cli/render.h"
#include "cli/scalar_text.h"
#include "common/status.h"

namespace lynx {
namespace {

// The job or node, or in tables a line.
int Print(const GlobalOptions& global, const absl::StatusOr<v1::Job>& job, const std::string& line) {
  return job.ok() ? Show(global.output, *job, JobListing({*job}, Cells(global)), line + "\n") : Fail(job.status());
}
int Print(const GlobalOptions& global, const absl::StatusOr<v1::Node>& node, const std::string& line) {
  return node.ok() ? Show(global.output, *node, NodeListing({*node}, Cells(global)), line + "\n") : Fail(node.status());
}

std::string JobText(const absl::StatusOr<v1::Job>& job) {
  return job.ok() ? absl::StrCat("job ", job->id(), " (", job->spec().name(), ")") : "";
}

}  // namespace

int Hold(const GlobalOptions& global, const std::string& id, const std::string& reason) {
  v1::HoldJobRequest request;
  request.set_job_id(id);
  request.set_reason(reason);
  const absl::StatusOr<v1::Job> job = Connect(global).Hold(request);
  const bool trains = job.ok() && job->placement_size() > 0;
  return Print(global, job,
               absl::StrCat(JobText(job), trains ? " gives way with a checkpoint, and then waits" : " is held",
                            " until 'lynxctl release'"));
}

int Release(const GlobalOptions& global, const std::string& id) {
  v1::ReleaseJobRequest request;
  request.set_job_id(id);
  const absl::StatusOr<v1::Job> job = Connect(global).Release(request);
  return Print(global, job, absl::StrCat(JobText(job), " is ", job.ok() ? StateName(job->state()) : "", ": ",
                                         job.ok() ? job->reason() : ""));
}

int Queues(const GlobalOptions& global) {
  const absl::StatusOr<v1::ListQueuesResponse> response = Connect(global).Queues();
  if (!response.ok()) return Fail(response.status());
  return Show(global.output, *response, QueueListing({response->queues().begin(), response->queues().end()}, Cells(global)));
}

int SetQueue(const GlobalOptions& global, const QueueOptions& options) {
  v1::SetQueueRequest request;
  v1::Queue& queue = *request.mutable_queue();
  queue.set_name(options.name);
  queue.set_weight(options.weight);
  queue.set_quota_devices(options.quota);
  queue.set_no_borrowing(options.no_borrowing);
  const absl::StatusOr<v1::Queue> set = Connect(global).SetQueue(request);
  return set.ok() ? Show(global.output, *set, QueueListing({*set}, Cells(global))) : Fail(set.status());
}

int Cordon(const GlobalOptions& global, const CordonOptions& options) {
  v1::CordonNodeRequest request;
  request.set_node(options.node);
  request.set_reason(options.reason);
  request.set_drain(options.drain);
  if (!options.grace.empty()) {
    const absl::StatusOr<Nanos> grace = ParseDuration(options.grace);
    if (!grace.ok()) return Fail(Annotate(grace.status(), "--grace"));
    request.set_grace_ns(grace->value);
  }
  const absl::StatusOr<v1::Node> node = Connect(global).Cordon(request);
  std::string line = absl::StrCat("node ", options.node, " takes no new ranks");
  if (node.ok() && options.drain) {
    absl::StrAppend(&line, node->jobs().empty() ? "; it is drained: no job has ranks there"
                                                : absl::StrCat("; ", node->jobs_size(), node->jobs_size() == 1 ? " job leaves" : " jobs leave",
                                                               " it ('lynxctl nodes' shows when it is drained)"));
  }
  if (node.ok() && !node->worker_attached()) absl::StrAppend(&line, "; note that no such node is attached now");
  return Print(global, node, line);
}

int Uncordon(const GlobalOptions& global, const std::string& name) {
  v1::UncordonNodeRequest request;
  request.set_node(name);
  return Print(global, Connect(global).Uncordon(request), absl::StrCat("node ", name, " takes ranks"));
}

}  // namespace lynx
