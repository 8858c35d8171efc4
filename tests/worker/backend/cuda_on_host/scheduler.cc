#include "scheduler.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/check.h"

namespace lynx::worker::cuda_on_host {

class Device {
 public:
  void* Take(size_t bytes) {
    const size_t mapped = (bytes + kPage - 1) / kPage * kPage;
    void* const memory = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    mapped_[memory] = mapped;
    return memory;
  }
  void Free(void* memory) {
    const auto at = mapped_.find(memory);
    LYNX_CHECK(at != mapped_.end());
    munmap(memory, at->second);
    mapped_.erase(at);
  }
  bool Has(const void* memory) const {
    auto after = mapped_.upper_bound(const_cast<void*>(memory));
    if (after == mapped_.begin()) return false;
    --after;
    return static_cast<const char*>(memory) < static_cast<const char*>(after->first) + after->second;
  }
  void Protect(int protection) {
    for (const auto& [memory, bytes] : mapped_) LYNX_CHECK(mprotect(memory, bytes, protection) == 0);
  }

  size_t taken() const {
    size_t bytes = 0;
    for (const auto& [memory, mapped] : mapped_) bytes += mapped;
    return bytes;
  }

  bool backwards = false;  // true if the next kernel runs in reverse order

 private:
  static constexpr size_t kPage = 4096;

  std::map<void*, size_t> mapped_;
};

}  // namespace lynx::worker::cuda_on_host

struct CudaOnHostStream {
  lynx::worker::cuda_on_host::Device* device = nullptr;
  bool first = false;  // the first stream of its device
  std::deque<lynx::worker::cuda_on_host::Work> queue;
  int64_t done = 0;    // all work up to this number is done
  int64_t wanted = 0;  // somebody waits for all work up to this number
};

namespace lynx::worker::cuda_on_host {
namespace {

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  Order order = Order::kEager;
  std::vector<cudaStream_t> streams;
  Device* open = nullptr;
  bool wants_changed = false;
  std::map<void*, size_t> pinned;
};

State& TheState() {
  static State* const state = new State;  // lives longer than every thread
  return *state;
}

thread_local Device device;
thread_local std::unique_lock<std::mutex> held;

bool IsLate(const CudaOnHostStream& stream) {
  switch (TheState().order) {
    case Order::kEager: return false;
    case Order::kLate: return true;
    case Order::kFirstLate: return stream.first;
    case Order::kFirstEager: return !stream.first;
  }
  return false;
}

// Returns the number of the newest work in the stream.
int64_t LastOf(const CudaOnHostStream& stream) { return stream.done + static_cast<int64_t>(stream.queue.size()); }

// Runs the first work of the stream's queue if it may run. Returns true if it ran.
bool RunHead(CudaOnHostStream& stream) {
  if (stream.queue.empty()) return false;
  const bool wanted = stream.wanted > stream.done;
  if (!wanted && IsLate(stream)) return false;
  Work& head = stream.queue.front();
  if (head.ready != nullptr && !head.ready(wanted)) return false;
  Open(*stream.device);
  head.run();
  stream.queue.pop_front();
  ++stream.done;
  return true;
}

// Does all work that may run now.
void Settle() {
  State& state = TheState();
  for (bool moved = true; moved;) {
    state.wants_changed = false;
    moved = false;
    for (cudaStream_t stream : state.streams) {
      while (RunHead(*stream)) moved = true;
    }
    moved |= state.wants_changed;
  }
  state.changed.notify_all();
}

cudaMemoryType KindOfLocked(const void* memory) {
  const State& state = TheState();
  auto after = state.pinned.upper_bound(const_cast<void*>(memory));
  if (after != state.pinned.begin()) {
    --after;
    if (static_cast<const char*>(memory) < static_cast<const char*>(after->first) + after->second) return cudaMemoryTypeHost;
  }
  const bool on_device = device.Has(memory) || std::any_of(state.streams.begin(), state.streams.end(),
                                                           [&](cudaStream_t stream) { return stream->device->Has(memory); });
  return on_device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
}

void Close() {
  State& state = TheState();
  if (state.open != nullptr) state.open->Protect(PROT_NONE);
  state.open = nullptr;
}

}  // namespace

const char* OrderName(Order order) {
  switch (order) {
    case Order::kEager: return "Eager";
    case Order::kLate: return "Late";
    case Order::kFirstLate: return "FirstLate";
    case Order::kFirstEager: return "FirstEager";
  }
  return "";
}

void SetOrder(Order order) {
  const Locked locked;
  TheState().order = order;
}

Locked::Locked() {
  LYNX_CHECK(!held.owns_lock());
  held = std::unique_lock(TheState().mutex);
}

Locked::~Locked() {
  Settle();
  Close();
  held.unlock();
}

int64_t Enqueue(cudaStream_t stream, Work work) {
  LYNX_CHECK(held.owns_lock() && stream != nullptr);
  stream->queue.push_back(std::move(work));
  return LastOf(*stream);
}

void Want(cudaStream_t stream, int64_t number) {
  if (stream->wanted >= number) return;
  stream->wanted = number;
  TheState().wants_changed = true;
}

bool Done(cudaStream_t stream, int64_t number) { return stream->done >= number; }

Device& DeviceOf(cudaStream_t stream) { return *stream->device; }

void Open(Device& device) {
  State& state = TheState();
  if (state.open == &device) return;
  Close();
  device.Protect(PROT_READ | PROT_WRITE);
  state.open = &device;
}

void WaitUntil(const std::function<bool()>& reached) {
  Settle();
  while (!reached()) {
    Close();
    TheState().changed.wait(held);
  }
}

void WaitFor(cudaStream_t stream, int64_t number) {
  Want(stream, number);
  WaitUntil([&] { return Done(stream, number); });
}

void Launch(cudaStream_t stream, dim3 grid, dim3 block, std::function<void()> thread) {
  const Locked locked;
  Enqueue(stream, {.ready = nullptr, .run = [device = stream->device, grid, block, thread = std::move(thread)] {
                     const Direction direction = device->backwards ? Direction::kBackwards : Direction::kForwards;
                     device->backwards = !device->backwards;
                     RunKernel(grid, block, direction, thread);
                   }});
}

void Issue(cudaStream_t stream, std::function<void()> run) {
  const Locked locked;
  Enqueue(stream, {.ready = nullptr, .run = std::move(run)});
}

void* TakeDeviceMemory(size_t bytes) {
  const Locked locked;
  return device.Take(bytes);
}

size_t DeviceMemoryTaken() {
  const Locked locked;
  return device.taken();
}

// Waits for the device before it frees the memory, as CUDA's runtime does.
void FreeDeviceMemory(void* memory) {
  const Locked locked;
  // A copy, because other threads may add and remove streams at this time.
  std::vector<cudaStream_t> streams = TheState().streams;
  std::erase_if(streams, [](cudaStream_t stream) { return stream->device != &device; });
  for (cudaStream_t stream : streams) WaitFor(stream, LastOf(*stream));
  Close();
  device.Free(memory);
}

void* TakePinnedMemory(size_t bytes) {
  const Locked locked;
  void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory != nullptr) TheState().pinned[memory] = bytes;
  return memory;
}

void FreePinnedMemory(void* memory) {
  const Locked locked;
  TheState().pinned.erase(memory);
  std::free(memory);
}

cudaStream_t MakeStream() {
  const Locked locked;
  std::vector<cudaStream_t>& streams = TheState().streams;
  const bool first =
      std::none_of(streams.begin(), streams.end(), [](cudaStream_t stream) { return stream->device == &device; });
  auto* const stream = new CudaOnHostStream{.device = &device, .first = first};
  streams.push_back(stream);
  return stream;
}

void FreeStream(cudaStream_t stream) {
  const Locked locked;
  WaitFor(stream, LastOf(*stream));
  std::erase(TheState().streams, stream);
  delete stream;
}

void Synchronize(cudaStream_t stream) {
  const Locked locked;
  WaitFor(stream, LastOf(*stream));
}

cudaMemoryType KindOf(const void* memory) {
  const Locked locked;
  return KindOfLocked(memory);
}

void CopyAsync(cudaStream_t stream, const void* from, size_t bytes, void* to) {
  const Locked locked;
  for (const void* const memory : {from, static_cast<const void*>(to)}) {
    LYNX_CHECK((bytes == 0 || KindOfLocked(memory) != cudaMemoryTypeUnregistered) && "a copy of memory that is not pinned");
  }
  Enqueue(stream, {.ready = nullptr, .run = [to, from, bytes] { std::memcpy(to, from, bytes); }});
}

}  // namespace lynx::worker::cuda_on_host

using namespace lynx::worker::cuda_on_host;

// A recording of an event: the moment when the stream reached it.
struct Recording {
  cudaStream_t stream = nullptr;
  int64_t number = 0;
  bool reached = false;
  std::chrono::steady_clock::time_point at;
};
struct CudaOnHostEvent {
  std::shared_ptr<Recording> recording;  // the newest recording
};

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (Fails()) return cudaErrorInvalidValue;
  *event = new CudaOnHostEvent;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (Fails()) return cudaErrorInvalidValue;
  const Locked locked;
  auto recording = std::make_shared<Recording>();
  event->recording = recording;
  recording->stream = stream;
  recording->number = Enqueue(stream, {.ready = nullptr, .run = [recording] {
                                         recording->at = std::chrono::steady_clock::now();
                                         recording->reached = true;
                                       }});
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (Fails()) return cudaErrorInvalidValue;
  const Locked locked;
  return event->recording == nullptr || event->recording->reached ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (Fails()) return cudaErrorInvalidValue;
  const Locked locked;
  const std::shared_ptr<Recording> recording = event->recording;
  if (recording != nullptr && !recording->reached) WaitFor(recording->stream, recording->number);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (Fails()) return cudaErrorInvalidValue;
  const Locked locked;
  if (begin->recording == nullptr || end->recording == nullptr) return cudaErrorInvalidValue;
  if (!begin->recording->reached || !end->recording->reached) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end->recording->at - begin->recording->at).count();
  return cudaSuccess;
}
// Makes the stream wait for the recording that is the newest at the time of the call. Does nothing if the event was never
// recorded.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (Fails()) return cudaErrorInvalidValue;
  const Locked locked;
  if (event->recording == nullptr) return cudaSuccess;
  Enqueue(stream, {.ready =
                       [recording = event->recording](bool wanted) {
                         if (wanted && !recording->reached) Want(recording->stream, recording->number);
                         return recording->reached;
                       },
                   .run = [] {}});
  return cudaSuccess;
}
