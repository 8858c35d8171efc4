// The lines of a rank, through which the NCCL communicator (nccl_communicator.h) transfers, and what ranks settle before they
// connect them. Needs NCCL.
#ifndef LYNX_WORKER_COLLECTIVES_NCCL_LINE_H_
#define LYNX_WORKER_COLLECTIVES_NCCL_LINE_H_

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/units.h"
#include "planner/problem/layout.h"
#include "planner/program/action.h"
#include "worker/backend/device_queue.h"
#include "worker/collectives/communicator.h"
#include "worker/collectives/lanes.h"

namespace lynx::worker {

// OK for ncclSuccess and ncclInProgress. Otherwise `what` says what the caller was doing, and `where` gives details, such as
// the route.
absl::Status StatusOf(ncclResult_t result, const char* what, const std::string& where = "");

ncclDataType_t TypeOf(DataType type);

// Issues an all-to-all on the stream: slot i of `send` (members, count) goes to member i of the group, and slot i of `receive`
// comes from member i. The own slot is copied. Returns the first error of NCCL, or ncclUnhandledCudaError if CUDA refuses the
// copy.
ncclResult_t ExchangeSlots(const LaneInfo& info, ConstElements send, Elements receive, int64_t count, ncclComm_t comm,
                           cudaStream_t stream);

// A line carries the transfers of one lane (lanes.h), or of several lanes between the same two ranks (ShareLines). A lane
// without other ranks has no line. Each line has its own NCCL communicator and device queue.
struct Line {
  Line(const Route& r, int32_t lane, LaneInfo i) : route(r), lanes{lane}, info(std::move(i)) {}

  // True if a boundary's line carries gradients, which go from a stage to the one before it.
  bool backward() const {
    return !is_ring() && (route.group == Group::kNextStage) == (info.direction == Direction::kReceiveOnly);
  }
  const LinkKey& link() const { return info.out ? *info.out : *info.in; }
  // Every rank creates its lines in this order. If lines of two ranks have the same order, they are one line or have no rank in
  // common. So ranks never wait for each other in a circle.
  auto order() const { return std::tuple(link().channel, link().part, backward()); }
  bool is_ring() const { return info.direction == Direction::kBoth; }
  int members() const { return is_ring() ? info.members : 2; }
  int index() const { return is_ring() ? info.index : info.direction == Direction::kSendOnly ? kSender : kReceiver; }

  static constexpr int kSender = 0, kReceiver = 1;  // the ranks in the NCCL communicator of one direction over a boundary

  Route route;                 // the route of the first lane
  std::vector<int32_t> lanes;  // the lanes whose transfers the line carries
  LaneInfo info;               // the information of the first lane
  std::vector<float> words;    // NCCL ids, encoded as floats: one of each member of a ring, or one of the sender
  std::unique_ptr<DeviceQueue> queue;
  cudaStream_t stream() const { return static_cast<cudaStream_t>(queue->native()); }
  // Returns the line's id. Call it after ExchangeIds.
  ncclUniqueId id() const;

  // --- Guarded by the communicator's mutex.
  ncclComm_t comm = nullptr;
  // With these events the watch thread sees whether a transfer is in progress. It cannot use the marks, because they belong to
  // the backend's thread.
  struct Transfer {
    cudaEvent_t begun = nullptr, ended = nullptr;
    Nanos under_way_since;  // 0: the watch thread has not seen it in progress yet
  };
  std::vector<Transfer> issued;  // oldest first; the list is short
  std::vector<Transfer> spare;
};
using Lines = std::vector<std::unique_ptr<Line>>;

// Returns a line for each lane that has other ranks, in the order in which ranks create them.
Lines LinesOf(const ParallelLayout& layout, int32_t rank, const LaneTable& lanes);

// Lets the boundaries between the same two ranks share a line in each direction, however many virtual stages the ranks have.
// NCCL would mistake one transfer for another if the two ranks started them in different orders. So the ranks compare the
// orders in which their programs start them. If they differ anywhere in the job, or a rank has no program, all lines stay as
// they are. All ranks must call it, with the lines of LinesOf.
//
// A shared line adds no deadlock: when a transfer waits on it, both ranks have started all its earlier transfers. An evaluation
// runs the forward actions of the same programs, in their order.
absl::Status ShareLines(const ParallelLayout& layout, const LaneTable& lanes, const Program& program, Communicator& host,
                        Lines& lines);

// Returns InvalidArgument if the device cannot run this number of lines independently of each other, of its ops and of its
// copies. Then work of one queue could wait for another queue's, and ranks could wait for each other without end. `setting`:
// the value of CUDA_DEVICE_MAX_CONNECTIONS, which says how many queues a device has.
absl::Status CheckQueues(const Lines& lines, const char* setting);

// Gives all members of each line its ncclUniqueId. All ranks must call it.
absl::Status ExchangeIds(Communicator& host, Lines& lines);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_NCCL_LINE_H_
