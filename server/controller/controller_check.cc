// Node checks: nodes are checked before a job trains on them again, and blamed when a check fails. See controller.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/controller/controller.h"

namespace lynx {

// Has the job's nodes checked before its next start if a node caused the failure, or if nothing is known of the cause.
void Controller::NoteFailure(Job& job, Attribution attribution) {
  if (attribution == Attribution::kNode || attribution == Attribution::kUnknown) job.record.check_due = true;
}

void Controller::FoldCheck(Job& job, const NodeCheckReport& checked) {
  job.record.check_due = false;
  std::string text =
      absl::StrCat("the check passed in ", FormatDuration(checked.duration), ": ", checked.devices,
                   checked.devices == 1 ? " device, " : " devices, ", checked.links, checked.links == 1 ? " link" : " links");
  if (checked.links > 0) absl::StrAppend(&text, ", the slowest ", FormatBytes(Bytes(checked.slowest_bytes_per_second)), "/s");
  AddEvent(job, EventKind::kNodeCheck, text);
  Touch(job);
}

// The bad nodes according to the node checks of the generation that is over; empty: no check has failed.
std::vector<BadNode> Controller::FoundBad(const Job& job) const {
  std::vector<CheckFinding> findings;
  const auto node_of = [&](size_t rank) { return job.record.ranks[rank].where.node; };
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    const LiveRank& live = job.ranks[r];
    if (!live.failed || !live.fault_reported || !IsOfCheck(live.cause)) continue;
    if (live.cause == FaultCause::kCheck) findings.push_back({.node = node_of(r)});
    for (const int32_t peer : live.peers) {
      const auto p = static_cast<size_t>(peer);
      if (p >= job.ranks.size()) continue;
      // A rank reports why it ends, unless it was told to end and did.
      const bool silent = !job.ranks[p].fault_reported && job.ranks[p].exit_code != kRankExitCancelled;
      findings.push_back({.node = node_of(r), .other = node_of(p), .other_silent = silent});
    }
  }
  return NodesToBlame(findings, [&](const NodeId& node) {
    return static_cast<int>(
        std::count_if(faults_.begin(), faults_.end(), [&](const RankFailureFacts& facts) { return facts.node == node; }));
  });
}

// Used instead of Blame when checks have failed. `bad` is not empty.
Attributed Controller::BlameFound(Job& job, int32_t rank, const std::vector<BadNode>& bad) {
  for (const BadNode& found : bad) {
    AddEvent(job, EventKind::kFault,
             absl::StrCat("the failure of rank ", rank, " is attributed to node ", found.node.value, ": ", found.why));
    RankFailureFacts facts = FactsOf(job, rank);
    facts.node = found.node;
    Remember(std::move(facts));
  }
  return {Attribution::kNode, bad.front().why};
}

// Excludes the bad nodes from the job; returns whether any was newly excluded. If the job would have no node left, it keeps the
// bad one: otherwise it would never run.
bool Controller::ExcludeFound(Job& job, const std::vector<BadNode>& bad) {
  bool any = false;
  for (const BadNode& found : bad) {
    std::vector<NodeId> without = job.record.excluded;
    without.push_back(found.node);
    if (WithoutNodes(AttachedDevices(KindOf(job), {}), without).empty()) {
      AddEvent(job, EventKind::kNodeKept,
               absl::StrCat("node ", found.node.value, " is used further, though ", found.why,
                            ": there is no other that the job could run on"));
      continue;
    }
    any = ExcludeNode(job, found.node, absl::StrCat(": ", found.why)) || any;
  }
  return any;
}

}  // namespace lynx
