// DeviceQueue is a second sequence of work on a device, for transfers that run at the same time as the backend's ops. Marks
// connect the two sequences. If the queue reads what ops have written, or writes memory that ops have used, it must first
// follow a mark of the backend. If ops use what was transferred, the backend must first follow a mark of the queue.
//
// No call that issues work waits for the device. The backend's Finish returns errors; after an error nothing more is issued.
// Only the backend's thread may use a queue.
#ifndef LYNX_WORKER_BACKEND_DEVICE_QUEUE_H_
#define LYNX_WORKER_BACKEND_DEVICE_QUEUE_H_

#include "common/moment.h"
#include "common/units.h"

namespace lynx::worker {

class DeviceQueue {
 public:
  // Waits for all work that was issued.
  virtual ~DeviceQueue() = default;

  // Work that is issued from now on runs after `moment`, a mark of the backend or of one of its queues.
  virtual void Follow(Moment moment) = 0;
  // Returns the moment when all work that was issued before is done.
  virtual Moment Mark() = 0;
  // Copies within the device's memory, or from or to pinned host memory. The source must not change until a later mark of the
  // queue is reached.
  virtual void Copy(const void* from, Bytes bytes, void* to) = 0;
  // Returns the handle of the queue in the device's library: a cudaStream_t.
  virtual void* native() = 0;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_BACKEND_DEVICE_QUEUE_H_
