// JobTimeline: follows one job through its events and step reports, and says what its devices were used for, how long it waited
// and how long it took to go on after a loss. Pure; not thread-safe. Times are the wall clock's.
//
//     queued --> planning --> starting --> running <--> stopping
//       ^___________^____________^_____________________/
//
// A step that is further than the job ever was is training; one that was done before, and lost, is done again. What stands
// between the newest step and the event of a loss is the time that it took to notice it.
#ifndef LYNX_SERVER_METRICS_JOB_TIMELINE_H_
#define LYNX_SERVER_METRICS_JOB_TIMELINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/units.h"
#include "server/values/job.h"

namespace lynx {

// Of a job's devices.
enum class DeviceUse : uint8_t { kTraining, kPlanning, kStarting, kRedoing, kDetecting, kStopping };
inline constexpr int kDeviceUseCount = 6;
const char* DeviceUseName(DeviceUse use);

// Why devices do not train.
enum class LossCause : uint8_t { kStart, kRank, kNode, kReplan, kPreempted, kHeld, kDrain, kTimeLimit };
inline constexpr int kLossCauseCount = 8;
const char* LossCauseName(LossCause cause);

// Of a job that has lost a rank or a node: from its newest step until that was noticed, until its ranks had ended, until it had
// devices and a plan again, until its ranks ran, until the first step that it had never done.
enum class RecoveryPhase : uint8_t { kDetect, kStop, kWait, kStart, kRedo };
inline constexpr int kRecoveryPhaseCount = 5;
const char* RecoveryPhaseName(RecoveryPhase phase);

class JobTimeline {
 public:
  struct Spent {
    DeviceUse use;
    LossCause cause;  // without meaning for kTraining
    double device_seconds;
  };
  // What has become known.
  struct Report {
    std::vector<Spent> spent;
    std::optional<Nanos> queue_wait;  // it has left the queue
    std::optional<Nanos> first_step;  // from the first devices it had until its first step was done
    // By phase; it has recovered.
    std::optional<std::vector<std::pair<RecoveryPhase, Nanos>>> recovered;
  };

  // `devices`: that it has now.
  Report OnEvent(const JobEvent& event, int32_t devices);
  // `new_step`: further than the job ever was. Reports of other ranks of a step are passed over.
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
  Nanos since_;             // up to when everything has been accounted for
  int64_t last_step_ = -1;  // of this generation
  Nanos first_devices_;     // 0: it has had none yet, or that is not known
  bool seen_from_start_ = false;
  bool stepped_ = false;
  std::optional<Recovery> recovery_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_METRICS_JOB_TIMELINE_H_
