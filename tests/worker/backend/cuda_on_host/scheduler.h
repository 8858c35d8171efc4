// Scheduler: when the work of the devices' streams is carried out. Streams are queues; what is at the head of one runs
// on whatever OS thread finds that it may, one piece of work of the process at a time.
//
// An order says what becomes of work that nobody waits for: a program that lacks an event between two streams gives
// other bits in one order or the other, always the same. What somebody waits for (a synchronization, a copy to memory
// that is not pinned, another stream's event that is itself waited for) is carried out, and no more than that.
//
// Thread-safe.
#ifndef LYNX_TESTS_CUDA_ON_HOST_SCHEDULER_H_
#define LYNX_TESTS_CUDA_ON_HOST_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "cuda_runtime.h"

namespace lynx::cuda_on_host {

enum class Order : uint8_t {
  kEager,       // all work as soon as what it follows is done: most is when the call returns
  kLate,        // none before somebody waits for it
  kFirstLate,   // that of each device's first stream, which is that of the ops, late; all other as soon as can be
  kFirstEager,  // the reverse
};
const char* OrderName(Order order);  // "Late"
// Sets the order of all streams from now on.
void SetOrder(Order order);

// A GPU: memory, which the host cannot reach but while something of the device's runs, and streams. Each OS thread has
// one of its own.
class Device;

// Work of a stream.
struct Work {
  // Whether it may run. `wanted`: somebody waits for it, so it wants what it follows (see Want). Null: always.
  std::function<bool(bool wanted)> ready;
  std::function<void()> run;
};

// Holds the one lock of all this for its lifetime. At its end all work is carried out that may be.
class Locked {
 public:
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
};

// --- with the lock
// The number of the work in its stream.
int64_t Enqueue(cudaStream_t stream, Work work);
// Somebody waits for the stream's work up to and with this number.
void Want(cudaStream_t stream, int64_t number);
bool Done(cudaStream_t stream, int64_t number);
Device& DeviceOf(cudaStream_t stream);
// The device's memory can be reached until the lock is given back, or another's is opened.
void Open(Device& device);
// Wants the work and waits until it is done.
void WaitFor(cudaStream_t stream, int64_t number);

// --- what the runtime's calls are made of
void* TakeDeviceMemory(size_t bytes);  // of the calling thread's device; null where there is none
void FreeDeviceMemory(void* memory);
size_t DeviceMemoryTaken();
void* TakePinnedMemory(size_t bytes);
void FreePinnedMemory(void* memory);
cudaStream_t MakeStream();
void FreeStream(cudaStream_t stream);
void Synchronize(cudaStream_t stream);
void CopyAsync(cudaStream_t stream, const void* from, size_t bytes, void* to);

enum class Direction : uint8_t { kForwards, kBackwards };
// Runs all threads of a kernel, on the calling OS thread.
void RunKernel(dim3 grid, dim3 block, Direction direction, const std::function<void()>& thread);

}  // namespace lynx::cuda_on_host

#endif  // LYNX_TESTS_CUDA_ON_HOST_SCHEDULER_H_
