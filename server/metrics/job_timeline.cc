// See job_timeline.h.
#include "server/metrics/job_timeline.h"

#include <algorithm>
#include <optional>

#include "proto/event_kind.h"

namespace lynx::server {
namespace {

// Returns why the devices do not train after this event, if the event ends the ranks of a generation. nullopt: it does not end
// them.
std::optional<LossCause> CauseOf(const JobEvent& event) {
  const bool placed = event.state == JobState::kStarting || event.state == JobState::kRunning;
  const std::optional<EventKind> kind = ParseEventKind(event.kind);
  if (!placed || !kind) return std::nullopt;
  switch (*kind) {
    case EventKind::kRankLost: return LossCause::kRank;
    case EventKind::kNodeLost: return LossCause::kNode;
    case EventKind::kReplanAdopted: return LossCause::kReplan;
    case EventKind::kPreempted: return LossCause::kPreempted;
    case EventKind::kHeld: return LossCause::kHeld;
    case EventKind::kDraining: return LossCause::kDrain;
    case EventKind::kTimeLimit: return LossCause::kTimeLimit;
    default: return std::nullopt;
  }
}

// True if an event of this kind says that the ranks of a generation are being started.
bool Places(std::optional<EventKind> kind) {
  return kind == EventKind::kPlaced || kind == EventKind::kRestarting || kind == EventKind::kResuming ||
         kind == EventKind::kMoving || kind == EventKind::kReplanned;
}

}  // namespace

const char* DeviceUseName(DeviceUse use) {
  static constexpr const char* kNames[kDeviceUseCount] = {"training", "planning",  "starting",
                                                          "redoing",  "detecting", "stopping"};
  return kNames[static_cast<size_t>(use)];
}

const char* LossCauseName(LossCause cause) {
  static constexpr const char* kNames[kLossCauseCount] = {"start",     "rank", "node",  "replan",
                                                          "preempted", "held", "drain", "time_limit"};
  return kNames[static_cast<size_t>(cause)];
}

const char* RecoveryPhaseName(RecoveryPhase phase) {
  static constexpr const char* kNames[kRecoveryPhaseCount] = {"detect", "stop", "wait", "start", "redo"};
  return kNames[static_cast<size_t>(phase)];
}

JobTimeline::Phase JobTimeline::PhaseAfter(const JobEvent& event) const {
  if (IsFinal(event.state)) return Phase::kEnded;
  if (event.state == JobState::kQueued) return Phase::kQueued;
  if (event.state == JobState::kPlanning) return Phase::kPlanning;
  if (CauseOf(event).has_value()) return Phase::kStopping;
  const std::optional<EventKind> kind = ParseEventKind(event.kind);
  if (event.state == JobState::kStarting) return Places(kind) || phase_ == Phase::kUnknown ? Phase::kStarting : phase_;
  // After one of these events the ranks train. kGoesOn and kReplanKept: they continue, even if they were asked to give way.
  const bool goes_on = kind == EventKind::kRunning || kind == EventKind::kGoesOn || kind == EventKind::kReplanKept;
  return goes_on || phase_ == Phase::kUnknown ? Phase::kRunning : phase_;
}

void JobTimeline::Charge(DeviceUse use, Nanos now, Report& report) {
  const Nanos time = std::max(Nanos(0), now - since_);
  since_ = now;
  if (devices_ > 0 && time > Nanos(0)) report.spent.push_back({use, cause_, Seconds(time) * devices_});
}

void JobTimeline::Enter(Phase next, Nanos now, Report& report) {
  const Nanos time = std::max(Nanos(0), now - since_);
  switch (phase_) {
    case Phase::kQueued:
      if (next != Phase::kEnded) report.queue_wait = time;
      if (recovery_.has_value()) (*recovery_)[RecoveryPhase::kWait] += time;
      since_ = now;
      break;
    case Phase::kPlanning:
      if (recovery_.has_value()) (*recovery_)[RecoveryPhase::kWait] += time;
      Charge(DeviceUse::kPlanning, now, report);
      break;
    case Phase::kStarting:
      if (recovery_.has_value()) (*recovery_)[RecoveryPhase::kStart] += time;
      Charge(DeviceUse::kStarting, now, report);
      break;
    case Phase::kStopping:
      if (recovery_.has_value()) (*recovery_)[RecoveryPhase::kStop] += time;
      if (next != Phase::kRunning) Charge(DeviceUse::kStopping, now, report);
      break;
    case Phase::kRunning:
      if (next != Phase::kStopping) {
        Charge(DeviceUse::kStopping, now, report);  // the job ends or waits: this time was for example for its last checkpoint
      } else if (IsFault()) {
        recovery_ = Recovery{};
        (*recovery_)[RecoveryPhase::kDetect] = time;
        Charge(DeviceUse::kDetecting, now, report);
      }  // otherwise the ranks still finish their step; OnStep accounts for it
      break;
    case Phase::kUnknown:
    case Phase::kEnded: since_ = now; break;
  }
  if (next == Phase::kStarting) last_step_ = -1;
  const bool has_devices = next == Phase::kPlanning || next == Phase::kStarting;
  if (seen_from_start_ && first_devices_ == Nanos(0) && has_devices) first_devices_ = now;
  phase_ = next;
}

JobTimeline::Report JobTimeline::OnEvent(const JobEvent& event, int32_t devices) {
  Report report;
  if (event.kind == EventKindName(EventKind::kSubmitted)) seen_from_start_ = true;
  const Phase next = PhaseAfter(event);
  if (const std::optional<LossCause> cause = CauseOf(event); cause.has_value()) cause_ = *cause;
  if (next != phase_) Enter(next, event.time, report);
  devices_ = devices;
  return report;
}

JobTimeline::Report JobTimeline::OnStep(int64_t step, Nanos duration, bool new_step, Nanos now, int32_t devices) {
  Report report;
  if (step <= last_step_ || phase_ == Phase::kEnded) return report;
  // The report of a step may come before the event that says that the job runs.
  if (phase_ != Phase::kRunning && phase_ != Phase::kStopping) Enter(Phase::kRunning, std::max(since_, now - duration), report);
  devices_ = devices;
  if (phase_ == Phase::kStopping && IsFault()) return report;
  last_step_ = step;
  if (new_step && seen_from_start_ && !stepped_ && first_devices_ > Nanos(0)) report.first_step = now - first_devices_;
  stepped_ = stepped_ || new_step;
  if (recovery_.has_value()) {
    if (!new_step) (*recovery_)[RecoveryPhase::kRedo] += std::max(Nanos(0), now - since_);
    if (new_step) {
      report.recovered.emplace();
      for (int i = 0; i < kRecoveryPhaseCount; ++i) {
        const auto phase = static_cast<RecoveryPhase>(i);
        report.recovered->emplace_back(phase, (*recovery_)[phase]);
      }
      recovery_.reset();
    }
  }
  Charge(new_step ? DeviceUse::kTraining : DeviceUse::kRedoing, now, report);
  return report;
}

}  // namespace lynx::server
