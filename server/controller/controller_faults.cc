// Failures of ranks: what caused them, and what the job's own rules say about them. See controller.h.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/controller/controller.h"

namespace lynx {
namespace {

constexpr size_t kLogLinesMatched = 50;  // newest lines of a rank that the rules of onFailure search
constexpr size_t kMaxExcluded = 16;      // nodes that one job may exclude
constexpr size_t kMaxFaults = 1000;      // remembered failures of all jobs

}  // namespace

RankFailureFacts Controller::FactsOf(const Job& job, int32_t rank) const {
  const LiveRank& live = job.ranks[static_cast<size_t>(rank)];
  const RankRecord& record = job.record.ranks[static_cast<size_t>(rank)];
  RankFailureFacts facts{.job = job.record.id,
                         .node = record.where.node,
                         .cause = live.cause,
                         .exit_code = live.exit_code,
                         .own_words = live.fault_reported,
                         .step = -1,
                         .node_gone = live.forgotten,
                         .at = now_};
  if (live.started) facts.step = std::max(job.replanning.steps_done, job.first_step);
  const auto node = nodes_.find(record.where.node);
  if (node == nodes_.end() || record.device_uuid.empty()) return facts;
  for (const ReportedCondition& condition : node->second.agent.conditions) {
    if (condition.device == record.device_uuid && condition.withdrawn) facts.condition = condition.message;
  }
  return facts;
}

// Attributes the failure of the rank that explains the failures of its peers. If the cause is known, an event reports it.
Attributed Controller::Blame(Job& job, int32_t rank) {
  RankFailureFacts facts = FactsOf(job, rank);
  const std::vector<RankRecord>& ranks = job.record.ranks;
  const bool spans_nodes =
      std::any_of(ranks.begin(), ranks.end(), [&](const RankRecord& other) { return other.where.node != facts.node; });
  Attributed attributed = Attribute(facts, faults_, spans_nodes);
  if (attributed.to != Attribution::kUnknown) {
    AddEvent(job, EventKind::kFault,
             absl::StrCat(
                 "the failure of rank ", rank, " is attributed to ",
                 attributed.to == Attribution::kNode ? absl::StrCat("node ", facts.node.value) : AttributionName(attributed.to),
                 ": ", attributed.why));
  }
  // Failures of these kinds say nothing about the node for other jobs.
  if (attributed.to != Attribution::kJob && facts.cause != FaultCause::kToken) Remember(std::move(facts));
  return attributed;
}

// True if the rank would fail in the same way again: its data or program failed before the job ever trained, or the node
// refused a path.
bool Controller::WouldRefuseAgain(const Job& job, const LiveRank& culprit) const {
  if (culprit.started || job.record.best_steps > 0) return false;
  if (culprit.cause == FaultCause::kPath) return true;
  return culprit.fault_reported && culprit.cause != FaultCause::kMemory && !IsOfCheck(culprit.cause) &&
         job.record.generation == Generation(1);
}

// True if other nodes could serve the job when this rank's node refuses a path. Either the path or the node's configured roots
// may be wrong; a refusal by a second node tells which. A job that already excludes a node, for any reason, has had its second
// try.
bool Controller::MayAllow(const Job& job, int32_t rank) const {
  if (job.record.best_steps == 0 && !job.record.excluded.empty()) return false;
  std::vector<NodeId> without = job.record.excluded;
  without.push_back(job.record.ranks[static_cast<size_t>(rank)].where.node);
  return Fits(job, WithoutNodes(AttachedDevices(KindOf(job), {}), without)).has_value();
}

void Controller::Remember(RankFailureFacts facts) {
  faults_.push_back(std::move(facts));
  while (faults_.size() > kMaxFaults || now_ - faults_.front().at >= kFaultsCountFor) faults_.pop_front();
}

// The job's first rule that matches the rank's failure; nullptr: no rule matches.
const FailureRule* Controller::RuleFor(const Job& job, int32_t rank) const {
  const LiveRank& live = job.ranks[static_cast<size_t>(rank)];
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

// Returns false if the job still uses the node, or already excluded it.
bool Controller::ExcludeNode(Job& job, const NodeId& node, const std::string& why) {
  std::vector<NodeId>& excluded = job.record.excluded;
  if (std::find(excluded.begin(), excluded.end(), node) != excluded.end()) return false;
  if (excluded.size() >= kMaxExcluded) {
    AddEvent(job, EventKind::kNodeKept,
             absl::StrCat("node ", node.value, " is used further: the job does without ", excluded.size(),
                          " nodes already, the most"));
    return false;
  }
  excluded.push_back(node);
  unused_by_[node][job.record.id] = wall_;
  AddEvent(job, EventKind::kNodeExcluded, absl::StrCat("node ", node.value, " is not used for this job any more", why));
  return true;
}

}  // namespace lynx
