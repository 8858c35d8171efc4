#include "proto/event_kind.h"

#include <array>
#include <cstddef>

namespace lynx {
namespace {

constexpr std::array kKinds = {
    EventKindInfo{EventKind::kSubmitted, "submitted"},
    EventKindInfo{EventKind::kQueued, "queued"},
    EventKindInfo{EventKind::kPlanning, "planning"},
    EventKindInfo{EventKind::kPlanned, "planned"},
    EventKindInfo{EventKind::kPlaced, "placed"},
    EventKindInfo{EventKind::kRunning, "running"},
    EventKindInfo{EventKind::kCheckpoint, "checkpoint", EventMark::kCheckpoint},
    EventKindInfo{EventKind::kCheckpointFailed, "checkpoint-failed", EventMark::kFailure},
    EventKindInfo{EventKind::kStepSkipped, "step-skipped"},
    EventKindInfo{EventKind::kCopies, "copies"},
    EventKindInfo{EventKind::kResumed, "resumed"},
    EventKindInfo{EventKind::kRankLost, "rank-lost", EventMark::kFailure, true},
    EventKindInfo{EventKind::kNodeLost, "node-lost", EventMark::kFailure, true},
    EventKindInfo{EventKind::kFault, "fault", EventMark::kFailure},
    EventKindInfo{EventKind::kNodeCheck, "node-check"},
    EventKindInfo{EventKind::kNodeKept, "node-kept"},
    EventKindInfo{EventKind::kNodeExcluded, "node-excluded"},
    EventKindInfo{EventKind::kRestarting, "restarting"},
    EventKindInfo{EventKind::kResuming, "resuming"},
    EventKindInfo{EventKind::kMoving, "moving"},
    EventKindInfo{EventKind::kReplan, "replan"},
    EventKindInfo{EventKind::kReplanForced, "replan-forced", EventMark::kChange},
    EventKindInfo{EventKind::kReplanKept, "replan-kept"},
    EventKindInfo{EventKind::kReplanAdopted, "replan-adopted", EventMark::kChange, true},
    EventKindInfo{EventKind::kReplanned, "replanned"},
    EventKindInfo{EventKind::kGoesOn, "goes-on"},
    EventKindInfo{EventKind::kDrift, "drift", EventMark::kChange},
    EventKindInfo{EventKind::kMeasured, "measured"},
    EventKindInfo{EventKind::kPreempted, "preempted", EventMark::kChange, true},
    EventKindInfo{EventKind::kHeld, "held", EventMark::kChange, true},
    EventKindInfo{EventKind::kReleased, "released"},
    EventKindInfo{EventKind::kDraining, "draining", EventMark::kChange, true},
    EventKindInfo{EventKind::kLeaving, "leaving", EventMark::kChange},
    EventKindInfo{EventKind::kTimeLimit, "time-limit", EventMark::kChange},
    EventKindInfo{EventKind::kServerRestarted, "server-restarted"},
    EventKindInfo{EventKind::kSucceeded, "succeeded"},
    EventKindInfo{EventKind::kFailed, "failed"},
    EventKindInfo{EventKind::kCancelled, "cancelled"},
};

constexpr bool InOrder() {
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (static_cast<size_t>(kKinds[i].kind) != i) return false;
  }
  return true;
}
static_assert(InOrder());

}  // namespace

std::span<const EventKindInfo> EventKinds() { return kKinds; }

const EventKindInfo& InfoOf(EventKind kind) { return kKinds.at(static_cast<size_t>(kind)); }

std::optional<EventKind> ParseEventKind(std::string_view name) {
  for (const EventKindInfo& info : kKinds) {
    if (name == info.name) return info.kind;
  }
  return std::nullopt;
}

}  // namespace lynx
