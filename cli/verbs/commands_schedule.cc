// hold, release, queue, node: verbs that say when and where jobs run.
#include <algorithm>
#include <cstdio>
#include <functional>

#include "absl/strings/str_cat.h"
#include "cli/connect/client.h"
#include "cli/output/exit_code.h"
#include "cli/output/listings.h"
#include "cli/output/render.h"
#include "cli/spec/scalar_text.h"
#include "cli/verbs/commands.h"
#include "common/status.h"
#include "common/utf8.h"

namespace lynx::cli {
namespace {

// Prints the job; in table formats prints a line instead.
int Print(const GlobalOptions& global, const absl::StatusOr<v1::Job>& job, const std::string& line) {
  return job.ok() ? Show(global.output, *job, JobListing({*job}, Cells(global)), line + "\n") : Fail(job.status());
}

std::string JobText(const absl::StatusOr<v1::Job>& job) {
  return job.ok() ? absl::StrCat("job ", job->id(), " (", job->spec().name(), ")") : "";
}

std::string CordonLine(const v1::Node& node, bool drain) {
  std::string line = absl::StrCat("node ", node.name(), " takes no new ranks");
  if (drain) {
    absl::StrAppend(&line, node.jobs().empty()
                               ? "; it is drained: no job has ranks there"
                               : absl::StrCat("; ", node.jobs_size(), node.jobs_size() == 1 ? " job leaves" : " jobs leave",
                                              " it ('lynxctl nodes' shows when it is drained)"));
  }
  if (!node.worker_attached()) absl::StrAppend(&line, "; note that no such node is attached now");
  return line;
}

// If there is only one node (`one`), prints it as a message of its own. Otherwise prints the nodes as a list.
int ShowNodes(const GlobalOptions& global, const v1::ListNodesResponse& nodes, bool one) {
  const Listing listing = NodeListing({nodes.nodes().begin(), nodes.nodes().end()}, Cells(global));
  return one ? Show(global.output, nodes.nodes(0), listing) : Show(global.output, nodes, listing);
}

// Changes the nodes one after another. In table formats prints a line for each node as soon as it is changed.
int ChangeNodes(const GlobalOptions& global, const std::vector<std::string>& names,
                const std::function<absl::StatusOr<v1::Node>(Client&, const std::string&)>& change,
                const std::function<std::string(const v1::Node&)>& line_of) {
  const bool table = global.output == OutputFormat::kTable || global.output == OutputFormat::kWide;
  Client client = Connect(global);
  v1::ListNodesResponse changed;
  int code = kExitOk;
  for (const std::string& name : names) {
    absl::StatusOr<v1::Node> node = change(client, name);
    if (!node.ok()) {
      const int failed = Fail(names.size() > 1 ? Annotate(node.status(), absl::StrCat("node ", name)) : node.status());
      code = std::max(code, failed);
      if (failed == kExitUnreachable) break;
      continue;
    }
    if (table) std::printf("%s\n", line_of(*node).c_str());
    *changed.add_nodes() = *std::move(node);
  }
  if (table || changed.nodes().empty()) return code;
  return std::max(code, ShowNodes(global, changed, names.size() == 1));
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
  return Print(global, job,
               absl::StrCat(JobText(job), " is ", job.ok() ? StateName(job->state()) : "", ": ",
                            job.ok() ? VisibleLine(job->reason()) : ""));
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
  queue.set_user_quota_devices(options.user_quota);
  queue.set_no_borrowing(options.no_borrowing);
  queue.mutable_managers()->Add(options.managers.begin(), options.managers.end());
  const absl::StatusOr<v1::Queue> set = Connect(global).SetQueue(request);
  return set.ok() ? Show(global.output, *set, QueueListing({*set}, Cells(global))) : Fail(set.status());
}

int Cordon(const GlobalOptions& global, const CordonOptions& options) {
  v1::CordonNodeRequest request;
  request.set_reason(options.reason);
  request.set_drain(options.drain);
  if (!options.grace.empty()) {
    const absl::StatusOr<Nanos> grace = ParseDuration(options.grace);
    if (!grace.ok()) return Fail(Annotate(grace.status(), "--grace"));
    request.set_grace_ns(grace->value);
  }
  return ChangeNodes(
      global, options.nodes,
      [&](Client& client, const std::string& name) {
        request.set_node(name);
        return client.Cordon(request);
      },
      [&](const v1::Node& node) { return CordonLine(node, options.drain); });
}

int Uncordon(const GlobalOptions& global, const std::vector<std::string>& nodes) {
  return ChangeNodes(
      global, nodes,
      [](Client& client, const std::string& name) {
        v1::UncordonNodeRequest request;
        request.set_node(name);
        return client.Uncordon(request);
      },
      [](const v1::Node& node) { return absl::StrCat("node ", node.name(), " takes ranks"); });
}

}  // namespace lynx::cli
