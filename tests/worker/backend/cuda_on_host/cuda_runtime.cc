#include "cuda_runtime.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

#include "common/check.h"

thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

struct CudaOnHostStream {};

namespace lynx::cuda_on_host {
namespace {

constexpr size_t kStack = 128 * 1024;
constexpr int kLanes = 32;
constexpr unsigned kMostThreads = 1024;

enum class State : uint8_t { kReady, kAtBlockBarrier, kAtWarpBarrier, kDone };

// Entered once by its context, and then left and entered again by jumps, which need no system call.
struct Fiber {
  jmp_buf here;
  bool entered = false;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStack);
  State state = State::kReady;
  dim3 index;
  int exchanges = 0;  // of its warp that it took part in: their words alternate between two places
};

struct Warp {
  std::array<std::array<uint64_t, kLanes>, 2> words{};
};

// Device memory that an OS thread has allocated. The host cannot reach it but while something of the device's runs.
class DeviceMemory {
 public:
  // Opens the memory for its lifetime. They may nest.
  class Access {
   public:
    explicit Access(DeviceMemory& memory) : memory_(memory) {
      if (memory_.open_++ == 0) memory_.Protect(PROT_READ | PROT_WRITE);
    }
    ~Access() {
      if (--memory_.open_ == 0) memory_.Protect(PROT_NONE);
    }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    DeviceMemory& memory_;
  };

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

 private:
  static constexpr size_t kPage = 4096;

  void Protect(int protection) {
    for (const auto& [memory, bytes] : mapped_) LYNX_CHECK(mprotect(memory, bytes, protection) == 0);
  }

  std::map<void*, size_t> mapped_;
  int open_ = 0;
};

thread_local DeviceMemory device_memory;

// One OS thread's GPU: the fibers of the block that runs.
class Machine {
 public:
  void Run(dim3 grid, dim3 block, const std::function<void()>& thread) {
    LYNX_CHECK(running_ == nullptr);
    const DeviceMemory::Access access(device_memory);
    const unsigned threads = block.x * block.y * block.z;
    LYNX_CHECK(threads >= 1 && threads <= kMostThreads);
    while (fibers_.size() < threads) fibers_.push_back(std::make_unique<Fiber>());
    threads_ = static_cast<int>(threads);
    thread_ = &thread;
    gridDim = grid;
    blockDim = block;
    const unsigned blocks = grid.x * grid.y * grid.z;
    for (unsigned i = 0; i < blocks; ++i) {
      const unsigned at = backwards_ ? blocks - 1 - i : i;
      blockIdx = dim3(at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y);
      RunBlock();
    }
    backwards_ = !backwards_;
  }

  void Stop(State state) {
    running_->state = state;
    if (_setjmp(running_->here) == 0) _longjmp(scheduler_, 1);
  }

  const uint64_t* Exchange(uint64_t word) {
    Fiber& fiber = *running_;
    auto& words = warps_[number_ / kLanes].words[fiber.exchanges++ % 2];
    words[number_ % kLanes] = word;
    Stop(State::kAtWarpBarrier);
    return words.data();
  }

  int lane() const { return number_ % kLanes; }

 private:
  static void Enter();

  // Until the fiber stops.
  __attribute__((noinline)) void Resume(Fiber& fiber) {
    if (_setjmp(scheduler_) != 0) return;
    if (fiber.entered) _longjmp(fiber.here, 1);
    fiber.entered = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.get();
    context.uc_stack.ss_size = kStack;
    makecontext(&context, &Machine::Enter, 0);
    setcontext(&context);
  }

  void RunBlock() {
    for (int i = 0; i < threads_; ++i) {
      Fiber& fiber = *fibers_[i];
      const auto number = static_cast<unsigned>(i);
      fiber.index = dim3(number % blockDim.x, number / blockDim.x % blockDim.y, number / blockDim.x / blockDim.y);
      fiber.state = State::kReady;
      fiber.exchanges = 0;
    }
    while (!AllDone()) {
      bool moved = false;
      for (int i = 0; i < threads_; ++i) {
        number_ = backwards_ ? threads_ - 1 - i : i;
        Fiber& fiber = *fibers_[number_];
        if (fiber.state != State::kReady) continue;
        moved = true;
        running_ = &fiber;
        threadIdx = fiber.index;
        Resume(fiber);
      }
      running_ = nullptr;
      moved |= Release();
      LYNX_CHECK(moved && "a barrier that some threads never come to");
    }
  }

  bool AllDone() const {
    return std::all_of(fibers_.begin(), fibers_.begin() + threads_,
                       [](const auto& fiber) { return fiber->state == State::kDone; });
  }

  // Lets go of the barriers to which all have come.
  bool Release() {
    bool released = ReleaseRange(0, threads_, State::kAtBlockBarrier);
    for (int warp = 0; warp < threads_; warp += kLanes) {
      released |= ReleaseRange(warp, std::min(warp + kLanes, threads_), State::kAtWarpBarrier);
    }
    return released;
  }

  bool ReleaseRange(int begin, int end, State barrier) {
    for (int i = begin; i < end; ++i) {
      if (fibers_[i]->state != barrier) return false;
    }
    for (int i = begin; i < end; ++i) fibers_[i]->state = State::kReady;
    return true;
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::array<Warp, kMostThreads / kLanes> warps_;
  jmp_buf scheduler_;
  const std::function<void()>* thread_ = nullptr;
  Fiber* running_ = nullptr;
  int threads_ = 0, number_ = 0;
  bool backwards_ = false;
};

thread_local Machine machine;

void Machine::Enter() {
  for (;;) {  // a thread of one kernel after another
    (*machine.thread_)();
    machine.Stop(State::kDone);
  }
}

std::atomic<int64_t> calls_left = 0;  // until one fails; 0: none does

}  // namespace

void FailFromCall(int64_t k) { calls_left = k; }
bool Fails() {
  if (calls_left == 0) return false;
  if (calls_left == 1) return true;  // and every later one
  --calls_left;
  return false;
}

void RunKernel(dim3 grid, dim3 block, const std::function<void()>& thread) { machine.Run(grid, block, thread); }
const uint64_t* Exchange(uint64_t word) { return machine.Exchange(word); }
int Lane() { return machine.lane(); }
void OnDevice(const std::function<void()>& run) {
  const DeviceMemory::Access access(device_memory);
  run();
}
void BlockBarrier() { machine.Stop(State::kAtBlockBarrier); }

}  // namespace lynx::cuda_on_host

void __syncthreads() { lynx::cuda_on_host::BlockBarrier(); }

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorInvalidValue";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "invalid argument";
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (lynx::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidValue; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  if (lynx::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  *properties = {.name = "CUDA on the host"};
  return cudaSuccess;
}

namespace {

// As much as a small GPU has: more is refused, as it would be there.
constexpr size_t kDeviceBytes = size_t{8} << 30;

cudaError_t ResultOf(void* memory) { return memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation; }

}  // namespace

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (lynx::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  if (bytes > kDeviceBytes) return cudaErrorMemoryAllocation;
  *memory = lynx::cuda_on_host::device_memory.Take(bytes);
  return ResultOf(*memory);
}
cudaError_t cudaFree(void* memory) {
  lynx::cuda_on_host::device_memory.Free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = kDeviceBytes;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t) {
  if (lynx::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  lynx::cuda_on_host::OnDevice([&] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  if (lynx::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  lynx::cuda_on_host::OnDevice([&] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return ResultOf(*memory);
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (lynx::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  *stream = new CudaOnHostStream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return lynx::cuda_on_host::Fails() ? cudaErrorInvalidValue : cudaSuccess;
}
