#include "worker/daemon/rank_ending.h"

#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lynx::worker {
namespace {

std::string WithLastLine(std::string text, const std::string& line) {
  if (!line.empty()) absl::StrAppend(&text, "; the last it wrote was: ", line);
  return text;
}

// Returns a text that says how the process ended, and the possible reason if one is known.
std::string ExplainedExit(const ExitStatus& exit, bool for_memory) {
  std::string text = ExitText(exit);
  if (for_memory) absl::StrAppend(&text, ": the kernel's out-of-memory killer ended a process of this node at that moment");
  if (exit.signal == SIGBUS) {
    absl::StrAppend(&text, ", as a process is that reads a mapped file beyond its end: a data file may have been cut short");
  }
  return text;
}

// Returns the ending of a rank that has reported why it failed.
RankEnding Failed(const RankFailure& failure, const std::optional<ExitStatus>& exit) {
  const int32_t own = failure.peer_lost ? kRankExitPeerLost : kRankExitFailure;
  const bool has_code = exit.has_value() && exit->code != kRankExitOk;
  return {.exit_code = has_code ? exit->code : own,
          .reason = failure.reason,
          .peer_lost = failure.peer_lost,
          .outcome = failure.peer_lost ? RankOutcome::kPeerLost : RankOutcome::kFailed,
          .cause = failure.cause};
}

// Returns the ending of a rank that has reported that it was done. If the exit code is an error, the rank counts as failed,
// because the last checkpoint may be missing.
RankEnding Done(const EndingFacts& facts) {
  if (!facts.exit.has_value() || facts.exit->code == kRankExitOk) return {};
  return {.exit_code = facts.exit->code,
          .reason =
              WithLastLine(absl::StrCat("reported that it was done, but ended with ", ExitText(*facts.exit)), facts.last_line),
          .outcome = RankOutcome::kFailed};
}

// Returns the ending of a rank that gave way. The exit code does not matter, because the rank's checkpoint exists.
RankEnding Yielded(const RankYielded& yielded) {
  return {.exit_code = kRankExitYielded,
          .reason = absl::StrCat("gave way after ", yielded.steps, " steps, as asked"),
          .outcome = RankOutcome::kStopped};
}

RankEnding Silent(const EndingFacts& facts) {
  if (!facts.exit.has_value()) {
    return {
        .exit_code = kRankExitFailure,
        .reason = WithLastLine("ended without a report; the worker daemon had been away and did not see how", facts.last_line),
        .outcome = RankOutcome::kFailed};
  }
  if (facts.exit->signal == SIGKILL && facts.hung > Nanos(0)) {
    // This is not the code of SIGKILL. For such a code the server shows people only the signal, and this reason would be lost.
    return {.exit_code = kRankExitFailure,
            .reason = WithLastLine(
                absl::StrCat("had made no progress for ", FormatDuration(facts.hung), ", and was killed by the worker daemon"),
                facts.last_line),
            .outcome = RankOutcome::kKilled};
  }
  const bool for_memory = facts.exit->signal == SIGKILL && facts.oom_kill;
  RankEnding ending{.exit_code = facts.exit->code,
                    .reason = WithLastLine(ExplainedExit(*facts.exit, for_memory), facts.last_line),
                    .peer_lost = facts.exit->code == kRankExitPeerLost,
                    .outcome = facts.exit->signal != 0 ? RankOutcome::kKilled : RankOutcome::kFailed};
  if (ending.peer_lost) ending.outcome = RankOutcome::kPeerLost;
  if (for_memory) ending.cause = FaultCause::kMemory;
  if (facts.exit->signal == SIGBUS) ending.cause = FaultCause::kData;
  if (ending.exit_code == kRankExitLeaseOver) {
    ending.outcome = RankOutcome::kStopped;
    ending.reason = "ended itself, since its node was cut off and its work might have been given to others";
  }
  if (ending.exit_code == kRankExitOk) {
    ending.exit_code = kRankExitFailure;
    ending.reason = WithLastLine("ended with exit code 0 but never reported that it was done", facts.last_line);
  }
  return ending;
}

}  // namespace

const char* RankOutcomeName(RankOutcome outcome) {
  switch (outcome) {
    case RankOutcome::kDone: return "done";
    case RankOutcome::kFailed: return "failed";
    case RankOutcome::kPeerLost: return "peer_lost";
    case RankOutcome::kStopped: return "stopped";
    case RankOutcome::kKilled: return "killed";
  }
  return "";
}

RankEnding DescribeEnding(const EndingFacts& facts) {
  RankEnding ending;
  if (facts.last_report.has_value() && std::holds_alternative<RankDone>(*facts.last_report)) {
    ending = Done(facts);
  } else if (facts.last_report.has_value() && std::holds_alternative<RankFailure>(*facts.last_report)) {
    ending = Failed(std::get<RankFailure>(*facts.last_report), facts.exit);
  } else if (facts.last_report.has_value() && std::holds_alternative<RankYielded>(*facts.last_report)) {
    return Yielded(std::get<RankYielded>(*facts.last_report));
  } else {
    ending = Silent(facts);
  }
  if (facts.stop == StopStage::kNone || ending.exit_code == kRankExitOk) return ending;
  // The rank ended because the daemon told it to end, even if its report names another reason.
  ending.outcome = RankOutcome::kStopped;
  ending.peer_lost = false;
  ending.cause = FaultCause::kUnknown;
  ending.reason = facts.stop == StopStage::kKilled ? "was asked to end, did not in time, and was killed" : "was asked to end";
  return ending;
}

}  // namespace lynx::worker
