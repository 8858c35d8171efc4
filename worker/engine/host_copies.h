// HostCopies makes a rank's copies to and from its host pool, which run at the same time as ops. On the CPU they run on a
// thread of their own. On a device they run on two of its queues, one for each direction, so that neither direction waits for
// the other.
//
// A copy starts after all work that was called on the backend before it. Only the backend's thread may use HostCopies. No
// memory is allocated after construction.
#ifndef LYNX_WORKER_ENGINE_HOST_COPIES_H_
#define LYNX_WORKER_ENGINE_HOST_COPIES_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "common/moment.h"
#include "worker/backend/backend.h"
#include "worker/engine/copy_thread.h"

namespace lynx::worker {

enum class CopyDirection : uint8_t { kToHost, kToDevice };

class HostCopies {
 public:
  using Ticket = int64_t;

  // `most_open`: the largest number of tickets that are started and not yet waited for. Before ticket number i + `most_open`
  // is started, ticket number i must have been waited for. The backend must live longer than the result.
  static absl::StatusOr<std::unique_ptr<HostCopies>> Make(int32_t most_open, Backend& backend);
  // Waits until all copies that were started are done.
  virtual ~HostCopies() = default;

  // Starts the copies. `copies` and the memory that they point to must not change until the copies are done. The host's memory
  // must be pinned.
  virtual Ticket Start(CopyDirection direction, std::span<const HostCopy> copies) = 0;
  // Work that is called on the backend from now on runs after the copies. Returns the moment when the copies were done. Call it
  // once for each ticket.
  virtual Moment Wait(Ticket ticket) = 0;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_HOST_COPIES_H_
