// JobTimeline: follows one job through its events and step reports. It says what the job's devices were used for, how long the
// job waited, and how long it took to recover after a loss. Pure; not thread-safe. Times are wall clock times.
//
//     queued --> planning --> starting --> running <--> stopping
//       ^___________^____________^_____________________/
//
// A step that the job has never done before counts as training. A step that was done before and then lost counts as redoing.
// The time between the newest step and the event of a loss counts as detecting the loss.
#ifndef LYNX_SERVER_METRICS_JOB_TIMELINE_H_
#define LYNX_SERVER_METRICS_JOB_TIMELINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/units.h"
#include "server/values/job.h"

namespace lynx::server {

// What a job's devices are used for.
enum class DeviceUse : uint8_t { kTraining, kPlanning, kStarting, kRedoing, kDetecting, kStopping };
inline constexpr int kDeviceUseCount = 6;
const char* DeviceUseName(DeviceUse use);

// Why the devices of a job do not train.
enum class LossCause : uint8_t { kStart, kRank, kNode, kReplan, kPreempted, kHeld, kDrain, kTimeLimit };
inline constexpr int kLossCauseCount = 8;
const char* LossCauseName(LossCause cause);

// Phases of a recovery, for a job that has lost a rank or a node. Each phase begins when the previous one ends. kDetect: from
// the newest step until the loss was noticed. kStop: until the ranks had ended. kWait: until the job had devices and a plan
// again. kStart: until the ranks ran. kRedo: until the first step that the job had never done before.
enum class RecoveryPhase : uint8_t { kDetect, kStop, kWait, kStart, kRedo };
inline constexpr int kRecoveryPhaseCount = 5;
const char* RecoveryPhaseName(RecoveryPhase phase);

class JobTimeline {
 public:
  struct Spent {
    DeviceUse use;
    LossCause cause;  // has no meaning for kTraining
    double device_seconds;
  };
  // The results of one event or step.
  struct Report {
    std::vector<Spent> spent;
    std::optional<Nanos> queue_wait;  // set when the job has left the queue
    std::optional<Nanos> first_step;  // time from its first devices to the end of its first step
    // Time of each phase; set when the job has recovered.
    std::optional<std::vector<std::pair<RecoveryPhase, Nanos>>> recovered;
  };

  // `devices`: number of devices that the job has now.
  Report OnEvent(const JobEvent& event, int32_t devices);
  // `new_step`: the job has never done this step before. Reports of other ranks about the same step are ignored.
  Report OnStep(int64_t step, Nanos duration, bool new_step, Nanos now, int32_t devices);

 private:
  enum class Phase : uint8_t { kUnknown, kQueued, kPlanning, kStarting, kRunning, kStopping, kEnded };
  struct Recovery {
    Nanos spent[kRecoveryPhaseCount];
    Nanos& operator[](RecoveryPhase phase) { return spent[static_cast<size_t>(phase)]; }
  };

  Phase PhaseAfter(const JobEvent& event) const;
  void Enter(Phase next, Nanos now, Report& report);
  void Charge(DeviceUse use, Nanos now, Report& report);
  bool IsFault() const { return cause_ == LossCause::kRank || cause_ == LossCause::kNode; }

  Phase phase_ = Phase::kUnknown;
  LossCause cause_ = LossCause::kStart;
  int32_t devices_ = 0;
  Nanos since_;                   // everything before this time has been accounted for
  int64_t last_step_ = -1;        // newest step of this generation
  Nanos first_devices_;           // 0: the job has had no devices yet, or the time is unknown
  bool seen_from_start_ = false;  // the timeline has seen the submission of the job
  bool stepped_ = false;          // the job has done a new step
  std::optional<Recovery> recovery_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_METRICS_JOB_TIMELINE_H_
