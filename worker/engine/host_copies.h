// HostCopies: a rank's copies to and from its host pool, which run beside ops. On the CPU they run on a thread of their own. On
// a device they run on two of its queues, one for each direction, so that neither direction waits for the other.
//
// A copy starts after everything that was called on the backend before it. Only the backend's thread uses it. Nothing is
// allocated after construction.
#ifndef LYNX_WORKER_ENGINE_HOST_COPIES_H_
#define LYNX_WORKER_ENGINE_HOST_COPIES_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "common/moment.h"
#include "worker/backend/backend.h"
#include "worker/engine/copy_thread.h"

namespace lynx {

enum class CopyDirection : uint8_t { kToHost, kToDevice };

class HostCopies {
 public:
  using Ticket = int64_t;

  // Start number i must be waited for before start number i + `most_open`. The backend outlives the result.
  static absl::StatusOr<std::unique_ptr<HostCopies>> Make(int32_t most_open, Backend& backend);
  // Finishes what was started.
  virtual ~HostCopies() = default;

  // `copies` and the memory that they point to must not change until the copies are done. Memory of the host must be pinned.
  virtual Ticket Start(CopyDirection direction, std::span<const HostCopy> copies) = 0;
  // What is called on the backend from now on runs after the copies. Returns when they were done. Call it once for each ticket.
  virtual Moment Wait(Ticket ticket) = 0;
};

}  // namespace lynx

#endif  // LYNX_WORKER_ENGINE_HOST_COPIES_H_
