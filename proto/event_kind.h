// EventKind: what an event of a job says, in the protocol's `kind` and in the store. Each kind has one row of a table, which
// also says how it is drawn. Pure; thread-safe.
#ifndef LYNX_PROTO_EVENT_KIND_H_
#define LYNX_PROTO_EVENT_KIND_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lynx {

enum class EventKind : uint8_t {
  kSubmitted,         // the job was accepted
  kQueued,            // the job waits for devices
  kPlanning,          // a plan is being made
  kPlanned,           // a plan was made
  kPlaced,            // the job has devices and a plan
  kRunning,           // all ranks train
  kCheckpoint,        // a checkpoint is visible
  kCheckpointFailed,  // a checkpoint could not be written
  kStepSkipped,       // a step's update was left out since its loss or gradient norm was not finite
  kCopies,            // copies in memory are not made, or are not what they should be
  kResumed,           // ranks went on from a checkpoint or from copies in memory
  kRankLost,          // a rank ended, or its process is gone
  kNodeLost,          // a node is gone
  kFault,             // whose fault the last failure was
  kNodeCheck,         // the ranks checked their nodes and found nothing
  kNodeKept,          // a node that should be excluded is kept
  kNodeExcluded,      // the job does not use a node any more
  kRestarting,        // the job starts again after a failure
  kResuming,          // the job starts again after it gave way
  kMoving,            // the job starts on other devices
  kReplan,            // another plan is being looked for
  kReplanForced,      // the job must be planned again
  kReplanKept,        // the job goes on with the plan that it has
  kReplanAdopted,     // the ranks give way to another plan
  kReplanned,         // the job has another plan
  kGoesOn,            // the ranks train on though they were asked to give way
  kDrift,             // the nodes became slower or faster than the plan counts on
  kMeasured,          // agents measured what the plan needs
  kPreempted,         // the job gives way to another job
  kHeld,              // a person holds the job
  kReleased,          // a person released the job
  kDraining,          // a node is drained
  kLeaving,           // the job leaves a node that is withdrawn
  kTimeLimit,         // the job's time is over
  kServerRestarted,   // the server started again
  kSucceeded,         // all steps are done
  kFailed,            // the job ended with an error
  kCancelled,         // a person cancelled the job
};

// What a mark on a job's strip of time stands for.
enum class EventMark : uint8_t { kNone, kFailure, kChange, kCheckpoint };

struct EventKindInfo {
  EventKind kind;
  const char* name;  // "replan-forced"
  EventMark mark = EventMark::kNone;
  // The job's ranks stop training: until the job runs again, its time is lost.
  bool stops = false;
};

// All kinds, in the order of the enumeration.
std::span<const EventKindInfo> EventKinds();
const EventKindInfo& InfoOf(EventKind kind);
inline const char* EventKindName(EventKind kind) { return InfoOf(kind).name; }
// nullopt: a kind of another release.
std::optional<EventKind> ParseEventKind(std::string_view name);

}  // namespace lynx

#endif  // LYNX_PROTO_EVENT_KIND_H_
