#include "server/health/attribution.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <set>

#include "absl/strings/str_cat.h"
#include "worker/contract/rank_report.h"

namespace lynx::server {
namespace {

// True if the process was ended by a signal that a fault in its own program causes. SIGKILL and SIGTERM do not count, because
// other processes send them.
bool IsCrash(int32_t exit_code) {
  constexpr std::array kSignals = {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGSYS, SIGTRAP};
  return std::any_of(kSignals.begin(), kSignals.end(), [&](int signal) { return exit_code == RankExitOfSignal(signal); });
}

// True if both failures are of the same job and step, and the program failed both times in the same way.
bool Alike(const RankFailureFacts& a, const RankFailureFacts& b) {
  const bool ended = IsCrash(a.exit_code) || (a.own_words && a.cause == FaultCause::kProgram);
  return a.job == b.job && ended && a.exit_code == b.exit_code && a.own_words == b.own_words && a.cause == b.cause &&
         a.step == b.step;
}

std::string StepText(int64_t step) { return step < 0 ? "before its first step" : absl::StrCat("in step ", step); }

Attributed ByCause(const RankFailureFacts& failure, bool alike_before) {
  switch (failure.cause) {
    case FaultCause::kMemory: return {Attribution::kMemory, "there was less memory than the plan takes"};
    case FaultCause::kData: return {Attribution::kData, "it cannot read its data"};
    case FaultCause::kToken:
      return {Attribution::kData, "they have a token that is no word of the model's vocabulary, and every run would meet it",
              true};
    case FaultCause::kDisk: return {Attribution::kNode, "the node's disk does not take what the rank needs to start"};
    case FaultCause::kDevice: return {Attribution::kNode, "its device has failed"};
    case FaultCause::kCheck:
    case FaultCause::kLink: return {Attribution::kNode, "the check before the start found it bad"};
    case FaultCause::kProgram: return {Attribution::kCode, "what it was to run cannot be run", alike_before};
    case FaultCause::kPath: return {Attribution::kJob, "it needs a path that the node does not let jobs use"};
    case FaultCause::kUnknown: break;
  }
  return {};
}

}  // namespace

const char* AttributionName(Attribution attribution) {
  constexpr std::array<const char*, 6> kNames = {"unknown", "memory", "data", "node", "code", "the job"};
  return kNames.at(static_cast<size_t>(attribution));
}

Attributed Attribute(const RankFailureFacts& failure, const std::deque<RankFailureFacts>& before, bool spans_nodes) {
  int here = 0, elsewhere = 0;  // numbers of failures of this job on this node, and on other nodes
  std::set<JobId> others;       // other jobs with failures on this node
  bool alike_before = false, alike_elsewhere = false;
  for (const RankFailureFacts& other : before) {
    if (failure.at - other.at >= kFaultsCountFor) continue;
    if (other.job == failure.job) ++(other.node == failure.node ? here : elsewhere);
    if (other.job != failure.job && other.node == failure.node) others.insert(other.job);
    alike_before = alike_before || Alike(failure, other);
    alike_elsewhere = alike_elsewhere || (Alike(failure, other) && other.node != failure.node);
  }
  if (Attributed attributed = ByCause(failure, alike_before); attributed.to != Attribution::kUnknown) return attributed;
  if (!failure.condition.empty()) {
    return {Attribution::kNode, absl::StrCat("its agent says of the device: ", failure.condition)};
  }
  if (failure.node_gone) return {Attribution::kNode, "the process went with its machine or worker daemon"};
  if (alike_elsewhere) {
    return {Attribution::kCode, absl::StrCat("it has ended so before, ", StepText(failure.step), ", on another node"), true};
  }
  if (static_cast<int>(others.size()) + 1 >= kManyJobsFaults) {
    return {Attribution::kNode, absl::StrCat("ranks of ", others.size(), others.size() == 1 ? " other job" : " other jobs",
                                             " have failed there within the hour")};
  }
  if (spans_nodes && elsewhere == 0 && here + 1 >= kSameNodeFaults) {
    return {Attribution::kNode, absl::StrCat("of this job's failures within the hour all ", here + 1, " were there")};
  }
  return {};
}

}  // namespace lynx::server
