// DeviceQueue: a second order of work on a device, for transfers that go on while the backend's ops run. Marks connect the two
// orders. A queue follows a mark of the backend before it reads what ops have written, or writes memory that ops have used. The
// backend follows a mark of the queue before its ops use what was transferred.
//
// Issuing work never waits for the device. The backend's Finish returns errors; after an error nothing more is issued. Only the
// backend's thread uses a queue.
#ifndef LYNX_WORKER_BACKEND_DEVICE_QUEUE_H_
#define LYNX_WORKER_BACKEND_DEVICE_QUEUE_H_

#include "common/moment.h"
#include "common/units.h"

namespace lynx::worker {

class DeviceQueue {
 public:
  // Waits for everything that was issued.
  virtual ~DeviceQueue() = default;

  // What is issued from now on runs after `moment`, a mark of the backend or of one of its queues.
  virtual void Follow(Moment moment) = 0;
  // The moment when everything issued so far is done.
  virtual Moment Mark() = 0;
  // Copies within the device's memory, or from or to pinned host memory. The source must not change until a later mark is
  // reached.
  virtual void Copy(const void* from, Bytes bytes, void* to) = 0;
  // The handle by which the device's library knows the queue: a cudaStream_t.
  virtual void* native() = 0;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_BACKEND_DEVICE_QUEUE_H_
