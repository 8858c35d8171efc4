#include "server/controller/jobs/failure_analysis.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/scheduling/availability.h"

namespace lynx::server {
namespace {

constexpr size_t kLogLinesInReason = 3;
constexpr size_t kLogLinesMatched = 50;  // newest lines of a rank that the rules of onFailure search
constexpr size_t kMaxExcluded = 16;      // largest number of nodes that one job may exclude
constexpr size_t kMaxFaults = 1000;      // largest number of remembered failures of all jobs

// True for a rank that was told to end: either it handled SIGTERM itself, or SIGTERM or SIGKILL ended it.
bool LooksStopped(int32_t exit_code) {
  return exit_code == kRankExitCancelled || exit_code == RankExitOfSignal(SIGTERM) || exit_code == RankExitOfSignal(SIGKILL);
}

}  // namespace

RankFailureFacts FailureAnalysis::FactsOf(const LiveJob& job, int32_t rank) const {
  const LiveRank& live = job.generation.ranks[static_cast<size_t>(rank)];
  const RankRecord& record = job.record.ranks[static_cast<size_t>(rank)];
  RankFailureFacts facts{.job = job.record.id,
                         .node = record.where.node,
                         .cause = live.cause,
                         .exit_code = live.exit_code,
                         .own_words = live.fault_reported,
                         .step = -1,
                         .node_gone = live.forgotten,
                         .at = step_.now()};
  if (live.started) facts.step = std::max(job.replanning.steps_done, job.generation.first_step);
  const LiveNode* node = nodes_.Find(record.where.node);
  if (node == nullptr || record.device_uuid.empty()) return facts;
  for (const ReportedCondition& condition : node->agent.conditions) {
    if (condition.device == record.device_uuid && condition.withdrawn) facts.condition = condition.message;
  }
  return facts;
}

Attributed FailureAnalysis::Blame(LiveJob& job, int32_t rank) {
  RankFailureFacts facts = FactsOf(job, rank);
  const std::vector<RankRecord>& ranks = job.record.ranks;
  const bool spans_nodes =
      std::any_of(ranks.begin(), ranks.end(), [&](const RankRecord& other) { return other.where.node != facts.node; });
  Attributed attributed = Attribute(facts, faults_, spans_nodes);
  if (attributed.to != Attribution::kUnknown) {
    step_.AddEvent(job, EventKind::kFault,
                   absl::StrCat("the failure of rank ", rank, " is attributed to ",
                                attributed.to == Attribution::kNode ? absl::StrCat("node ", facts.node.value)
                                                                    : AttributionName(attributed.to),
                                ": ", attributed.why));
  }
  // Does not remember failures that the job or a token of its data caused, because they say nothing about the node.
  if (attributed.to != Attribution::kJob && facts.cause != FaultCause::kToken) Remember(std::move(facts));
  return attributed;
}

bool FailureAnalysis::WouldRefuseAgain(const LiveJob& job, const LiveRank& culprit) {
  if (culprit.started || job.record.best_steps > 0) return false;
  if (culprit.cause == FaultCause::kPath) return true;
  return culprit.fault_reported && culprit.cause != FaultCause::kMemory && !IsOfCheck(culprit.cause) &&
         job.record.generation == Generation(1);
}

bool FailureAnalysis::MayAllow(const LiveJob& job, int32_t rank) const {
  if (job.record.best_steps == 0 && !job.record.excluded.empty()) return false;
  std::vector<NodeId> without = job.record.excluded;
  without.push_back(job.record.ranks[static_cast<size_t>(rank)].where.node);
  return devices_.Fits(job, WithoutNodes(devices_.AttachedDevices(devices_.KindOf(job)), without)).has_value();
}

void FailureAnalysis::Remember(RankFailureFacts facts) {
  faults_.push_back(std::move(facts));
  while (faults_.size() > kMaxFaults || step_.now() - faults_.front().at >= kFaultsCountFor) faults_.pop_front();
}

const FailureRule* FailureAnalysis::RuleFor(const LiveJob& job, int32_t rank) const {
  const LiveRank& live = job.generation.ranks[static_cast<size_t>(rank)];
  const std::vector<std::string> lines = logs_.LastOf({job.record.id, job.record.generation, rank}, kLogLinesMatched);
  const auto holds = [&](const std::string& text) {
    return absl::StrContains(live.reason, text) ||
           std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return absl::StrContains(line, text); });
  };
  for (const FailureRule& rule : job.record.spec->on_failure) {
    if (rule.log.empty() ? live.phase == RankPhase::kExited && live.exit_code == rule.exit_code : holds(rule.log)) return &rule;
  }
  return nullptr;
}

bool FailureAnalysis::ExcludeNode(LiveJob& job, const NodeId& node, const std::string& why) {
  const std::vector<NodeId>& excluded = job.record.excluded;
  if (std::find(excluded.begin(), excluded.end(), node) != excluded.end()) return false;
  if (excluded.size() >= kMaxExcluded) {
    step_.AddEvent(job, EventKind::kNodeKept,
                   absl::StrCat("node ", node.value, " is used further: the job does without ", excluded.size(),
                                " nodes already, the most"));
    return false;
  }
  jobs_.Exclude(job, node, step_.wall());
  step_.AddEvent(job, EventKind::kNodeExcluded, absl::StrCat("node ", node.value, " is not used for this job any more", why));
  return true;
}

void FailureAnalysis::NoteFailure(LiveJob& job, Attribution attribution) {
  if (attribution == Attribution::kNode || attribution == Attribution::kUnknown) job.record.check_due = true;
}

std::vector<BadNode> FailureAnalysis::FoundBad(const LiveJob& job) const {
  std::vector<CheckFinding> findings;
  const auto node_of = [&](size_t rank) { return job.record.ranks[rank].where.node; };
  for (size_t r = 0; r < job.generation.ranks.size(); ++r) {
    const LiveRank& live = job.generation.ranks[r];
    if (!live.failed || !live.fault_reported || !IsOfCheck(live.cause)) continue;
    if (live.cause == FaultCause::kCheck) findings.push_back({.node = node_of(r)});
    for (const int32_t peer : live.peers) {
      const auto p = static_cast<size_t>(peer);
      if (p >= job.generation.ranks.size()) continue;
      // A rank that ends by itself reports why. A rank that was told to end reports no failure, so it does not count as silent.
      const bool silent = !job.generation.ranks[p].fault_reported && job.generation.ranks[p].exit_code != kRankExitCancelled;
      findings.push_back({.node = node_of(r), .other = node_of(p), .other_silent = silent});
    }
  }
  return NodesToBlame(findings, [&](const NodeId& node) {
    return static_cast<int>(
        std::count_if(faults_.begin(), faults_.end(), [&](const RankFailureFacts& facts) { return facts.node == node; }));
  });
}

Attributed FailureAnalysis::BlameFound(LiveJob& job, int32_t rank, const std::vector<BadNode>& bad) {
  for (const BadNode& found : bad) {
    step_.AddEvent(job, EventKind::kFault,
                   absl::StrCat("the failure of rank ", rank, " is attributed to node ", found.node.value, ": ", found.why));
    RankFailureFacts facts = FactsOf(job, rank);
    facts.node = found.node;
    Remember(std::move(facts));
  }
  return {Attribution::kNode, bad.front().why};
}

bool FailureAnalysis::ExcludeFound(LiveJob& job, const std::vector<BadNode>& bad) {
  bool any = false;
  for (const BadNode& found : bad) {
    std::vector<NodeId> without = job.record.excluded;
    without.push_back(found.node);
    if (WithoutNodes(devices_.AttachedDevices(devices_.KindOf(job)), without).empty()) {
      step_.AddEvent(job, EventKind::kNodeKept,
                     absl::StrCat("node ", found.node.value, " is used further, though ", found.why,
                                  ": there is no other that the job could run on"));
      continue;
    }
    any = ExcludeNode(job, found.node, absl::StrCat(": ", found.why)) || any;
  }
  return any;
}

std::string FailureAnalysis::FailureText(const LiveJob& job, int32_t rank) const {
  const LiveRank& live = job.generation.ranks[static_cast<size_t>(rank)];
  std::string text = RankText(job.record, rank);
  if (live.fault_reported) return absl::StrCat(text, ": ", live.reason);
  if (live.exit_code > 128) {
    absl::StrAppend(&text, " was killed by signal ", live.exit_code - 128);
  } else if (!live.reason.empty()) {
    absl::StrAppend(&text, ": ", live.reason);
  } else {
    absl::StrAppend(&text, " ended with exit code ", live.exit_code);
  }
  const std::vector<std::string> lines = logs_.LastOf({job.record.id, job.record.generation, rank}, kLogLinesInReason);
  if (!lines.empty()) absl::StrAppend(&text, "; its last lines: ", absl::StrJoin(lines, " | "));
  return text;
}

std::optional<int32_t> FailureAnalysis::Culprit(const LiveJob& job) {
  std::optional<int32_t> culprit;
  const auto order_of = [&](size_t r) { return std::pair(job.generation.ranks[r].during_stop, job.generation.ranks[r].order); };
  for (size_t r = 0; r < job.generation.ranks.size(); ++r) {
    const LiveRank& live = job.generation.ranks[r];
    if (!live.failed || live.peer_lost) continue;
    if (live.during_stop && !live.fault_reported && LooksStopped(live.exit_code)) continue;
    if (!culprit.has_value() || order_of(r) <= order_of(static_cast<size_t>(*culprit))) culprit = static_cast<int32_t>(r);
  }
  return culprit;
}

}  // namespace lynx::server
