// HostCopies: a rank's copies to and from its host pool, which go on while ops run: on a thread of their own, or on a device
// on its queues, one out and one back in, so that neither direction waits for the other.
//
// A copy reads what was there, and writes, once all is done that was called on the backend before. Used by the backend's
// thread, and allocates nothing after construction.
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

  // Of `most_open` copies in a row the first is waited for before the next one starts. The backend outlives it.
  static absl::StatusOr<std::unique_ptr<HostCopies>> Make(int32_t most_open, Backend& backend);
  // Finishes what was started.
  virtual ~HostCopies() = default;

  // `copies` and what they point to stay as they are until it is done. The host's side is pinned.
  virtual Ticket Start(CopyDirection direction, std::span<const HostCopy> copies) = 0;
  // What is called on the backend from now on comes after it. When it was done. Once per ticket.
  virtual Moment Wait(Ticket ticket) = 0;
};

}  // namespace lynx

#endif  // LYNX_WORKER_ENGINE_HOST_COPIES_H_
