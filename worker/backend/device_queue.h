// DeviceQueue: an order of work on a device of its own, beside that of the backend's ops: transfers that go on while ops
// run. Marks tie the orders together: a queue follows a mark of the backend before it reads what ops have made or writes
// where they were, and the backend follows a mark of the queue before its ops use what came.
//
// Issuing never waits for the device. Errors are told by the backend's Finish; after one nothing more is issued. Used by
// the backend's thread.
#ifndef LYNX_WORKER_BACKEND_DEVICE_QUEUE_H_
#define LYNX_WORKER_BACKEND_DEVICE_QUEUE_H_

#include "common/moment.h"
#include "common/units.h"

namespace lynx {

class DeviceQueue {
 public:
  // Waits for what was issued.
  virtual ~DeviceQueue() = default;

  // What is issued from now on comes after the mark, of the backend or of one of its queues.
  virtual void Follow(Moment moment) = 0;
  // When all that was issued so far is done.
  virtual Moment Mark() = 0;
  // Within the device's memory, or to or from pinned memory of the host, which stays as it is until a later mark is
  // reached.
  virtual void Copy(const void* from, Bytes bytes, void* to) = 0;
  // What the device's library knows it by: a cudaStream_t.
  virtual void* native() = 0;
};

}  // namespace lynx

#endif  // LYNX_WORKER_BACKEND_DEVICE_QUEUE_H_
