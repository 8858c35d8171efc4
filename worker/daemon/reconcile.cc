#include "worker/daemon/reconcile.h"

#include <map>

namespace lynx::worker {
namespace {

std::string AddressText(const PeerAddress& address) { return absl::StrCat(address.host, ":", address.port); }

// Adds the next operation for a rank that must end. Adds no operation while the rank still has time to end by itself.
void End(const ActualRank& rank, Nanos now, Nanos grace, std::vector<RankOperation>& operations) {
  if (rank.phase == RankPhase::kListening || (rank.phase == RankPhase::kExited && rank.released)) {
    operations.push_back({SupervisorActionKind::kForget, rank.key, ""});
  } else if (rank.phase == RankPhase::kExited) {
    return;
  } else if (rank.stop == StopStage::kNone) {
    operations.push_back({SupervisorActionKind::kTerminate, rank.key, ""});
  } else if (rank.stop == StopStage::kAsked && now - rank.asked_at >= grace) {
    operations.push_back({SupervisorActionKind::kKill, rank.key, ""});
  }
}

}  // namespace

std::vector<RankOperation> Reconcile(const std::vector<DesiredRank>& desired, const std::vector<ActualRank>& actual, Nanos now,
                                     Nanos grace) {
  std::map<RankKey, const DesiredRank*> wanted;
  for (const DesiredRank& rank : desired) wanted[rank.key] = &rank;
  std::map<RankKey, const ActualRank*> known;
  for (const ActualRank& rank : actual) known[rank.key] = &rank;

  std::vector<RankOperation> operations;
  for (const auto& [key, rank] : known) {
    // A rank that has been asked to end must end, even if the server wants it again.
    if (!wanted.contains(key) || rank->stop != StopStage::kNone) {
      if (rank->phase == RankPhase::kExited && wanted.contains(key)) continue;
      End(*rank, now, grace, operations);
    }
  }
  for (const auto& [key, rank] : wanted) {
    const auto found = known.find(key);
    if (found == known.end()) {
      if (!rank->start) {
        operations.push_back({SupervisorActionKind::kListen, key, ""});
      } else {
        operations.push_back({SupervisorActionKind::kRefuse, key,
                              "the worker daemon was restarted before it started the rank, so the socket that its peers "
                              "know is gone"});
      }
      continue;
    }
    const ActualRank& now_there = *found->second;
    if (now_there.phase == RankPhase::kRunning && now_there.stop == StopStage::kNone && rank->yield != now_there.yield) {
      operations.push_back({rank->yield ? SupervisorActionKind::kAskToYield : SupervisorActionKind::kTakeYieldBack, key, ""});
    }
    if (now_there.phase != RankPhase::kListening || !rank->start) continue;
    if (now_there.address == rank->address) {
      operations.push_back({SupervisorActionKind::kStart, key, ""});
    } else {
      operations.push_back({SupervisorActionKind::kRefuse, key,
                            absl::StrCat("its peers expect it at ", AddressText(rank->address), " but it listens on ",
                                         AddressText(now_there.address), ": the worker daemon was restarted in between")});
    }
  }
  return operations;
}

}  // namespace lynx::worker
