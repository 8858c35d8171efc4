// Decides when the work of the devices' streams is done. Each stream has a queue of work. Any OS thread runs the first work of
// a queue when it finds that this work may run. In the whole process only one piece of work runs at a time.
//
// The order says when work is done for which nobody waits. If a program needs an event between two streams and lacks it, one of
// the orders gives a wrong result, the same one each time. If somebody waits for work, this work is done, and no other work.
// Two things wait for work: a synchronization, and an event of another stream for which somebody waits. A copy from or to
// memory that is not pinned ends the process: on a device that can address that memory, it could use it after its end.
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
  kEager,       // all work is done as soon as possible; most of it is done when the call returns
  kLate,        // work is done only when somebody waits for it
  kFirstLate,   // the first stream of each device (that of the ops) is late, all other streams are eager
  kFirstEager,  // the first stream of each device is eager, all other streams are late
};
const char* OrderName(Order order);  // for example "Late"
// Sets the order of all streams, from now on.
void SetOrder(Order order);

// A GPU: its streams, and its memory, which the host can reach only while work of the device runs. Each OS thread has a device
// of its own.
class Device;

// A piece of work in a stream.
struct Work {
  // Returns true if the work may run. `wanted`: somebody waits for this work, so it must ask for the work on which it depends
  // (see Want). Null: the work may always run.
  std::function<bool(bool wanted)> ready;
  std::function<void()> run;
};

// Holds the only lock of the scheduler as long as the object lives. The destructor does all work that may run.
class Locked {
 public:
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
};

// --- Call the following functions with the lock held.
// Adds work to the stream. Returns its number in the stream.
int64_t Enqueue(cudaStream_t stream, Work work);
// Records that somebody waits for all work of the stream up to this number.
void Want(cudaStream_t stream, int64_t number);
bool Done(cudaStream_t stream, int64_t number);
Device& DeviceOf(cudaStream_t stream);
// Makes the device's memory reachable until the lock is released or until another device's memory is made reachable.
void Open(Device& device);
// Waits until `reached` returns true. It is asked with the lock held, after every call that changed anything.
void WaitUntil(const std::function<bool()>& reached);
// Asks for all work of the stream up to this number, and waits until it is done.
void WaitFor(cudaStream_t stream, int64_t number);

// --- The calls of the runtime use the following functions.
void* TakeDeviceMemory(size_t bytes);  // on the calling thread's device; returns null if there is not enough memory
void FreeDeviceMemory(void* memory);
size_t DeviceMemoryTaken();
cudaMemoryType KindOf(const void* memory);
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
