// EventKind is the kind of an event of a job, in the protocol's field `kind` and in the store. A table has one row for each
// kind, which also says how the kind is drawn. Pure; thread-safe.
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
  kCheckpoint,        // a checkpoint is complete and visible
  kCheckpointFailed,  // a checkpoint could not be written
  kStepSkipped,       // the loss or gradient norm of a step was not finite, so no weights were updated in this step
  kCopies,            // copies in memory are not made, or have errors
  kResumed,           // the ranks continue from copies in memory
  kRankLost,          // a rank ended unexpectedly, or does not respond
  kNodeLost,          // the server has lost a node
  kFault,             // attribution of the last failure: what caused it
  kNodeCheck,         // the ranks checked their nodes and found nothing
  kNodeKept,          // a node is to blame, but the job goes on using it: it has no other node, or excludes too many already
  kNodeExcluded,      // the job does not use a node any more
  kRestarting,        // the job starts again after a failure
  kResuming,          // the ranks gave way to another plan that cannot be used, so the job starts again without it
  kMoving,            // the job starts on other devices
  kReplan,            // another plan is being looked for
  kReplanForced,      // the job must be planned again
  kReplanKept,        // the job goes on with the plan that it has
  kReplanAdopted,     // the ranks give way to another plan
  kReplanned,         // the job has received another plan
  kGoesOn,            // the ranks continue to train although the server has asked them to give way
  kDrift,             // the nodes, or the load of experts, differ from what the plan assumes
  kMeasured,          // agents measured what the plan needs
  kPreempted,         // the job gives way to another job
  kHeld,              // a person holds the job
  kReleased,          // a person released the job
  kDraining,          // a node is drained
  kLeaving,           // the job is cancelled, and its ranks are asked to write a checkpoint and end
  kTimeLimit,         // the job has used up its time limit
  kServerRestarted,   // the server started again
  kSucceeded,         // all steps are done
  kFailed,            // the job ended with an error
  kCancelled,         // a person cancelled the job
};

// The meaning of a mark on the timeline of a job.
enum class EventMark : uint8_t { kNone, kFailure, kChange, kCheckpoint };

struct EventKindInfo {
  EventKind kind;
  const char* name;  // such as "replan-forced"
  EventMark mark = EventMark::kNone;
  // True if the job's ranks stop training. Then the time until the job runs again is lost.
  bool stops = false;
};

// All kinds, in the order of the enumeration.
std::span<const EventKindInfo> EventKinds();
const EventKindInfo& InfoOf(EventKind kind);
inline const char* EventKindName(EventKind kind) { return InfoOf(kind).name; }
// Returns nullopt if only another release knows this kind.
std::optional<EventKind> ParseEventKind(std::string_view name);

}  // namespace lynx

#endif  // LYNX_PROTO_EVENT_KIND_H_
