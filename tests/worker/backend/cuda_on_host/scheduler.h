// Scheduler: decides when the work of the devices' streams is done. Streams are queues. The work at the head of a queue
// runs on any OS thread that finds that it may run; in the whole process one piece of work runs at a time.
//
// An order says when work is done that nobody waits for. A program that lacks an event between two streams gives other
// bits in one of the orders, and always the same bits. Work that somebody waits for is done, and only that work.
// Waiting means a synchronization, a copy to memory that is not pinned, or another stream's event that is itself waited
// for.
//
// Thread-safe.
#ifndef LYNX_TESTS_CUDA_ON_HOST_SCHEDULER_H_
#define LYNX_TESTS_CUDA_ON_HOST_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "cuda_runtime.h"

namespace lynx::worker::cuda_on_host {

enum class Order : uint8_t {
  kEager,       // all work as soon as possible; most of it is done when the call returns
  kLate,        // work is done only when somebody waits for it
  kFirstLate,   // each device's first stream (that of the ops) is late, all others are eager
  kFirstEager,  // the reverse of kFirstLate
};
const char* OrderName(Order order);  // "Late"
// Sets the order of all streams from now on.
void SetOrder(Order order);

// A GPU: streams, and memory that the host cannot reach except while work of the device runs. Each OS thread has its
// own.
class Device;

// A piece of work in a stream.
struct Work {
  // Whether the work may run. `wanted`: somebody waits for it, so it must ask for the work that it depends on (see
  // Want). Null: it may always run.
  std::function<bool(bool wanted)> ready;
  std::function<void()> run;
};

// Holds the one lock of the scheduler during its lifetime. At the end, does all work that may run.
class Locked {
 public:
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
};

// --- call with the lock held
// Returns the number of the work in its stream.
int64_t Enqueue(cudaStream_t stream, Work work);
// Records that somebody waits for the stream's work up to and including this number.
void Want(cudaStream_t stream, int64_t number);
bool Done(cudaStream_t stream, int64_t number);
Device& DeviceOf(cudaStream_t stream);
// Makes the device's memory reachable until the lock is released or another device's memory is opened.
void Open(Device& device);
// Asks for the work and waits until it is done.
void WaitFor(cudaStream_t stream, int64_t number);

// --- building blocks of the runtime's calls
void* TakeDeviceMemory(size_t bytes);  // of the calling thread's device; null if there is not enough
void FreeDeviceMemory(void* memory);
size_t DeviceMemoryTaken();
void* TakePinnedMemory(size_t bytes);
void FreePinnedMemory(void* memory);
cudaStream_t MakeStream();
void FreeStream(cudaStream_t stream);
void Synchronize(cudaStream_t stream);
void CopyAsync(cudaStream_t stream, const void* from, size_t bytes, void* to);

enum class Direction : uint8_t { kForwards, kBackwards };
// Runs all threads of a kernel on the calling OS thread.
void RunKernel(dim3 grid, dim3 block, Direction direction, const std::function<void()>& thread);

}  // namespace lynx::worker::cuda_on_host

#endif  // LYNX_TESTS_CUDA_ON_HOST_SCHEDULER_H_
