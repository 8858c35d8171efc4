// See listings.h.
#include "cli/output/listings.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/output/render.h"
#include "common/utf8.h"

namespace lynx::cli {
namespace {

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string Loss(const v1::Job& job, const CellText& cells) {
  if (job.progress().steps_done() == 0) return cells.None();
  return cells.whole() ? absl::StrCat(job.progress().loss()) : absl::StrFormat("%.3f", job.progress().loss());
}

std::string Steps(const v1::Job& job, const CellText& cells) {
  const int64_t done = job.progress().steps_done();
  return cells.whole() ? absl::StrCat(done) : absl::StrCat(done, "/", job.spec().train().steps());
}

std::string Where(const v1::Job& job) {
  std::vector<std::string> nodes;
  for (const v1::RankPlacement& rank : job.placement()) {
    if (std::find(nodes.begin(), nodes.end(), rank.node()) == nodes.end()) nodes.push_back(rank.node());
  }
  return absl::StrJoin(nodes, ",");
}

std::string OrNone(const std::string& text, const CellText& cells) { return text.empty() ? cells.None() : text; }

// True if one of the jobs was submitted by a user, and not to a server without users.
bool HaveUsers(const std::vector<v1::Job>& jobs) {
  return std::any_of(jobs.begin(), jobs.end(),
                     [](const v1::Job& job) { return !job.owner().empty() && job.owner() != "local"; });
}

// Reasons and conditions of nodes, one per line.
std::string NodeNotes(const std::vector<v1::Node>& nodes, const CellText& cells) {
  std::string notes;
  for (const v1::Node& node : nodes) {
    if (node.has_cordon()) {
      absl::StrAppend(&notes, node.name(), ": ", node.cordon().drain() ? "drained" : "cordoned",
                      node.cordon().reason().empty() ? "" : absl::StrCat(": ", VisibleLine(node.cordon().reason())), " (for ",
                      cells.Age(node.cordon().since_unix_ns()), ")\n");
    }
    for (const v1::NodeCondition& condition : node.conditions()) {
      absl::StrAppend(&notes, node.name(), ": ", VisibleLine(absl::StrCat(condition.kind(), ": ", condition.message())),
                      " (for ", cells.Age(condition.since_unix_ns()), ")\n");
    }
  }
  return notes;
}

std::vector<std::string> NodeRow(const v1::Node& node, const CellText& cells) {
  std::string kind = cells.None(), model = cells.None(), memory = cells.None(), cores = cells.None();
  if (!node.devices().empty()) {
    const v1::Device& device = node.devices(0);
    kind = device.kind();
    model = OrNone(device.model(), cells);
    memory = cells.Size(Bytes(device.memory_bytes()));
    cores = absl::StrJoin(device.cores(), ",");
  }
  const v1::HardwareProfile& profile = node.profile();
  const v1::LinkCost& link = profile.inter_node();
  const double gigaflops = static_cast<double>(profile.flops_per_second()) * 1e-9;
  const double gigabytes = static_cast<double>(link.bytes_per_second()) * 1e-9;
  const bool ready = node.agent_attached() && node.worker_attached();
  return {
      node.name(),
      NodeState(node),
      OrNone(node.network_domain(), cells),
      kind,
      model,
      absl::StrCat(node.devices_size()),
      absl::StrCat(node.devices_used()),
      memory,
      cores,
      profile.flops_per_second()
          ? (cells.whole() ? absl::StrCat(profile.flops_per_second()) : absl::StrFormat("%.1f", gigaflops))
          : cells.None(),
      link.bytes_per_second() ? absl::StrFormat("%s + %.2f GB/s", cells.Duration(link.latency_ns()), gigabytes) : cells.None(),
      link.bytes_per_second() ? absl::StrCat(link.bytes_per_second()) : cells.None(),
      OrNone(node.address(), cells),
      OrNone(node.agent_version(), cells),
      OrNone(node.worker_version(), cells),
      ready && !cells.whole()                           ? "now"
      : node.last_seen_unix_ns() == 0 && !cells.whole() ? "never"
                                                        : cells.Age(node.last_seen_unix_ns()),
      absl::StrJoin(node.jobs(), ",")};
}

// nullptr: no server leads.
const v1::ListedServer* LeaderOf(const std::vector<v1::ListedServer>& servers) {
  const auto leader =
      std::find_if(servers.begin(), servers.end(), [](const auto& server) { return server.role() == v1::SERVER_ROLE_LEADS; });
  return leader == servers.end() ? nullptr : &*leader;
}

std::string RoleOf(const v1::ListedServer& server, const v1::ListedServer* leader) {
  const bool other = leader != nullptr && server.encrypt_ranks() != leader->encrypt_ranks();
  switch (server.role()) {
    case v1::SERVER_ROLE_LEADS: return "leads";
    case v1::SERVER_ROLE_STANDS_BY: return other ? "refused" : "stands by";
    case v1::SERVER_ROLE_SILENT: return "silent";
    default: return "unknown";
  }
}

// Servers whose policy is not that of the leader, one per line.
std::string ServerNotes(const std::vector<v1::ListedServer>& servers) {
  const v1::ListedServer* const leader = LeaderOf(servers);
  if (leader == nullptr) return "";
  std::string notes;
  for (const v1::ListedServer& server : servers) {
    if (server.encrypt_ranks() == leader->encrypt_ranks()) continue;
    absl::StrAppend(&notes, VisibleLine(server.address()), ": --encrypt-ranks is ", VisibleLine(server.encrypt_ranks()),
                    " there, and ", VisibleLine(leader->encrypt_ranks()),
                    " on the server that leads: it does not stand by until it is started with the same\n");
  }
  return notes;
}

}  // namespace

std::string NodeState(const v1::Node& node) {
  const bool ready = node.agent_attached() && node.worker_attached();
  std::string state = ready ? "ready" : node.agent_attached() ? "no worker" : node.worker_attached() ? "no agent" : "away";
  if (node.has_cordon()) {
    const bool leaves = node.cordon().drain() && !node.jobs().empty();
    absl::StrAppend(&state, ",", leaves ? "draining" : node.cordon().drain() ? "drained" : "cordoned");
  }
  return state;
}

Listing JobListing(const std::vector<v1::Job>& jobs, const CellText& cells) {
  Listing listing{.columns = {{"ID", "id"},
                              {"NAME", "name"},
                              {"USER", "user", HaveUsers(jobs) ? ColumnIn::kTables : ColumnIn::kNoTable},
                              {"STATE", "state"},
                              {"STEPS", "steps_done"},
                              {"", "steps", ColumnIn::kNoTable},
                              {"LOSS", "loss"},
                              {"TOK/S", "tokens_per_second"},
                              {"STEP", "step_seconds", ColumnIn::kWideTable},
                              {"ETA", "eta_seconds", ColumnIn::kWideTable},
                              {"QUEUE", "queue", ColumnIn::kWideTable},
                              {"PRIORITY", "priority", ColumnIn::kWideTable},
                              {"RANKS", "ranks", ColumnIn::kWideTable},
                              {"NODES", "nodes", ColumnIn::kWideTable},
                              {"ATTEMPT", "attempt", ColumnIn::kWideTable},
                              {"RESTARTS", "restarts", ColumnIn::kWideTable},
                              {"AGE", "submitted"},
                              {"REASON", "reason"}},
                  .nothing = "no jobs"};
  for (const v1::Job& job : jobs) {
    const v1::Progress& p = job.progress();
    const bool runs = p.tokens_per_second() > 0 && !IsFinal(job.state());
    listing.names.push_back(job.id());
    listing.rows.push_back(
        {job.id(), job.spec().name(), OrNone(job.owner(), cells), StateName(job.state()), Steps(job, cells),
         absl::StrCat(job.spec().train().steps()), Loss(job, cells), runs ? cells.Count(p.tokens_per_second()) : cells.None(),
         p.step_ns() > 0 ? cells.Duration(p.step_ns()) : cells.None(),
         runs && p.eta_ns() > 0 ? cells.Duration(p.eta_ns()) : cells.None(), OrNone(job.spec().scheduling().queue(), cells),
         absl::StrCat(job.spec().scheduling().priority()), absl::StrCat(job.placement_size()), OrNone(Where(job), cells),
         absl::StrCat(job.generation()), absl::StrCat(job.restarts()), cells.Age(job.submitted_unix_ns()),
         cells.whole() ? job.reason() : FirstLine(job.reason())});
  }
  return listing;
}

Listing HistoryListing(const std::vector<v1::Job>& jobs, const CellText& cells) {
  Listing listing{.columns = {{"ID", "id"},
                              {"NAME", "name"},
                              {"USER", "user", HaveUsers(jobs) ? ColumnIn::kTables : ColumnIn::kNoTable},
                              {"STATE", "state"},
                              {"STEPS", "steps_done"},
                              {"LOSS", "loss"},
                              {"SUBMITTED", "submitted", ColumnIn::kWideTable},
                              {"WAITED", "waited_seconds"},
                              {"TOOK", "took_seconds"},
                              {"ATTEMPTS", "attempts", ColumnIn::kWideTable},
                              {"RESTARTS", "restarts"},
                              {"GAVE WAY", "preemptions", ColumnIn::kWideTable},
                              {"CHECKPOINT", "checkpoint", ColumnIn::kWideTable},
                              {"ENDED", "ended"},
                              {"REASON", "reason"}},
                  .nothing = "no job has ended"};
  for (const v1::Job& job : jobs) {
    const bool began = job.started_unix_ns() != 0;
    const int64_t waited = (began ? job.started_unix_ns() : job.ended_unix_ns()) - job.submitted_unix_ns();
    listing.names.push_back(job.id());
    listing.rows.push_back({job.id(), job.spec().name(), OrNone(job.owner(), cells), StateName(job.state()), Steps(job, cells),
                            Loss(job, cells), cells.Time(job.submitted_unix_ns()), cells.Duration(waited),
                            began ? cells.Duration(job.ended_unix_ns() - job.started_unix_ns()) : cells.None(),
                            absl::StrCat(job.generation()), absl::StrCat(job.restarts()), absl::StrCat(job.preemptions()),
                            OrNone(job.checkpoint_path(), cells), cells.Age(job.ended_unix_ns()),
                            cells.whole() ? job.reason() : FirstLine(job.reason())});
  }
  return listing;
}

Listing NodeListing(const std::vector<v1::Node>& nodes, const CellText& cells) {
  // The column DOMAIN is left out if no node has a domain.
  const bool domains =
      std::any_of(nodes.begin(), nodes.end(), [](const v1::Node& node) { return !node.network_domain().empty(); });
  Listing listing{.columns = {{"NODE", "node"},
                              {"STATE", "state"},
                              {"DOMAIN", "domain", domains ? ColumnIn::kTables : ColumnIn::kNoTable},
                              {"KIND", "kind"},
                              {"MODEL", "model", ColumnIn::kWideTable},
                              {"DEVICES", "devices"},
                              {"USED", "used"},
                              {"MEMORY/DEVICE", "device_memory_bytes"},
                              {"CPUSET", "cores"},
                              {"GFLOP/S", "flops_per_second"},
                              {"LINK", ""},
                              {"", "link_bytes_per_second", ColumnIn::kNoTable},
                              {"ADDRESS", "address", ColumnIn::kWideTable},
                              {"AGENT", "agent_version", ColumnIn::kWideTable},
                              {"WORKER", "worker_version", ColumnIn::kWideTable},
                              {"SEEN", "seen"},
                              {"JOBS", "jobs"}},
                  .nothing = "no nodes have attached yet",
                  .notes = NodeNotes(nodes, cells)};
  for (const v1::Node& node : nodes) {
    listing.names.push_back(node.name());
    listing.rows.push_back(NodeRow(node, cells));
  }
  return listing;
}

Listing ServerListing(const std::vector<v1::ListedServer>& servers, const CellText& cells) {
  Listing listing{.columns = {{"SERVER", "server"},
                              {"ROLE", "role"},
                              {"EPOCH", "epoch"},
                              {"VERSION", "version"},
                              {"ENCRYPT-RANKS", "encrypt_ranks"},
                              {"HOST", "host", ColumnIn::kWideTable},
                              {"PROCESS", "process", ColumnIn::kWideTable},
                              {"SINCE", "since", ColumnIn::kWideTable},
                              {"SEEN", "seen"}},
                  .nothing = "no servers",
                  .notes = ServerNotes(servers)};
  const v1::ListedServer* const leader = LeaderOf(servers);
  for (const v1::ListedServer& server : servers) {
    listing.names.push_back(server.address());
    listing.rows.push_back(
        {OrNone(server.address(), cells), RoleOf(server, leader),
         server.epoch() == 0 ? cells.None() : absl::StrCat(server.epoch()), server.version(),
         OrNone(server.encrypt_ranks(), cells), OrNone(server.host(), cells), absl::StrCat(server.process()),
         cells.Age(server.since_unix_ns()),
         server.role() == v1::SERVER_ROLE_LEADS && !cells.whole() ? "now" : cells.Age(server.seen_unix_ns())});
  }
  return listing;
}

Listing QueueListing(const std::vector<v1::Queue>& queues, const CellText& cells) {
  // A column is left out if no queue has managers or quotas of users.
  const bool managers =
      std::any_of(queues.begin(), queues.end(), [](const v1::Queue& queue) { return !queue.managers().empty(); });
  const bool user_quotas =
      std::any_of(queues.begin(), queues.end(), [](const v1::Queue& queue) { return queue.user_quota_devices() > 0; });
  Listing listing{.columns = {{"QUEUE", "queue"},
                              {"WEIGHT", "weight"},
                              {"QUOTA", "quota_devices"},
                              {"USER QUOTA", "user_quota_devices", user_quotas ? ColumnIn::kTables : ColumnIn::kNoTable},
                              {"BORROWS", "borrows"},
                              {"DEVICES", "devices"},
                              {"RUNNING", "running"},
                              {"WAITING", "waiting"},
                              {"MANAGERS", "managers", managers ? ColumnIn::kTables : ColumnIn::kNoTable}}};
  for (const v1::Queue& queue : queues) {
    listing.names.push_back(queue.name());
    listing.rows.push_back({queue.name(), absl::StrCat(queue.weight()),
                            queue.quota_devices() == 0 ? cells.None() : absl::StrCat(queue.quota_devices()),
                            queue.user_quota_devices() == 0 ? cells.None() : absl::StrCat(queue.user_quota_devices()),
                            queue.no_borrowing() ? "no" : "yes", absl::StrCat(queue.devices_used()),
                            absl::StrCat(queue.running()), absl::StrCat(queue.waiting()),
                            OrNone(absl::StrJoin(queue.managers(), ","), cells)});
  }
  return listing;
}

Listing EventListing(const std::vector<v1::JobEvent>& events, const CellText& cells) {
  Listing listing{.columns = {{"#", "sequence", ColumnIn::kWideTable},
                              {"TIME", "time"},
                              {"STATE", "state"},
                              {"EVENT", "event"},
                              {"REASON", "reason"}},
                  .nothing = "no events"};
  for (const v1::JobEvent& event : events) {
    listing.rows.push_back({absl::StrCat(event.sequence()), cells.Time(event.time_unix_ns()), StateName(event.state()),
                            event.kind(), event.reason()});
  }
  return listing;
}

}  // namespace lynx::cli
