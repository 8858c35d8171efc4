// Runs the threads of a kernel as fibers (see cuda_runtime.h).
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "common/check.h"
#include "cuda_runtime.h"
#include "scheduler.h"

thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace lynx::worker::cuda_on_host {
namespace {

constexpr size_t kStack = 128 * 1024;
constexpr int kLanes = 32;
constexpr unsigned kMaxThreads = 1024;

enum class State : uint8_t { kReady, kAtBlockBarrier, kAtWarpBarrier, kDone };

// A copy that a fiber has begun (see BeginCopy).
struct Copy {
  const void* from;
  int bytes;
  void* to;

  void Do() const {
    if (from == nullptr) {
      std::memset(to, 0, static_cast<size_t>(bytes));
    } else {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    }
  }
};

// A fiber. Its context is entered once. Later the fiber is left and entered again by jumps, which need no system call.
struct Fiber {
  jmp_buf here;
  bool entered = false;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStack);
  State state = State::kReady;
  dim3 index;
  // The number of exchanges (see Exchange) in which the fiber has taken part. Exchange number n uses Warp::words[n % 2].
  int exchanges = 0;
  std::vector<Copy> copies;  // those that are not done yet
};

struct Warp {
  std::array<std::array<uint64_t, kLanes>, 2> words{};
};

// Runs the kernels of an OS thread. It holds the fibers of the current block.
class Machine {
 public:
  void Run(dim3 grid, dim3 block, Direction direction, const std::function<void()>& thread) {
    LYNX_CHECK(running_ == nullptr);
    backwards_ = direction == Direction::kBackwards;
    const unsigned threads = block.x * block.y * block.z;
    LYNX_CHECK(threads >= 1 && threads <= kMaxThreads);
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

  void BeginCopy(const Copy& copy) {
    if (backwards_) {
      running_->copies.push_back(copy);
    } else {
      copy.Do();
    }
  }

  void WaitForCopies() {
    for (const Copy& copy : running_->copies) copy.Do();
    running_->copies.clear();
  }

  int lane() const { return number_ % kLanes; }

 private:
  static void Enter();

  // Runs the fiber until it stops.
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
    const int warps = (threads_ + kLanes - 1) / kLanes;
    while (!AllDone()) {
      bool moved = false;
      for (int i = 0; i < warps; ++i) {
        while (RunWarp((backwards_ ? warps - 1 - i : i) * kLanes)) moved = true;
      }
      running_ = nullptr;
      moved |= ReleaseRange(0, threads_, State::kAtBlockBarrier);
      LYNX_CHECK(moved && "a barrier that some threads never come to");
    }
  }

  // Runs the warp that begins with thread `begin` up to its next barrier. Returns true if one of its threads ran or the barrier
  // opened.
  bool RunWarp(int begin) {
    const int end = std::min(begin + kLanes, threads_);
    bool moved = false;
    for (int i = begin; i < end; ++i) {
      number_ = backwards_ ? end - 1 - (i - begin) : i;
      Fiber& fiber = *fibers_[number_];
      if (fiber.state != State::kReady) continue;
      moved = true;
      running_ = &fiber;
      threadIdx = fiber.index;
      Resume(fiber);
    }
    return ReleaseRange(begin, end, State::kAtWarpBarrier) || moved;
  }

  bool AllDone() const {
    return std::all_of(fibers_.begin(), fibers_.begin() + threads_,
                       [](const auto& fiber) { return fiber->state == State::kDone; });
  }

  // Opens the barrier for the threads in [begin, end) if all of them have reached it.
  bool ReleaseRange(int begin, int end, State barrier) {
    for (int i = begin; i < end; ++i) {
      if (fibers_[i]->state != barrier) return false;
    }
    for (int i = begin; i < end; ++i) fibers_[i]->state = State::kReady;
    return true;
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::array<Warp, kMaxThreads / kLanes> warps_;
  jmp_buf scheduler_;
  const std::function<void()>* thread_ = nullptr;
  Fiber* running_ = nullptr;
  int threads_ = 0, number_ = 0;
  bool backwards_ = false;
};

thread_local Machine machine;

void Machine::Enter() {
  for (;;) {  // runs one kernel thread after another
    (*machine.thread_)();
    LYNX_CHECK(machine.running_->copies.empty() && "a thread ended before its copies");
    machine.Stop(State::kDone);
  }
}

}  // namespace

void RunKernel(dim3 grid, dim3 block, Direction direction, const std::function<void()>& thread) {
  machine.Run(grid, block, direction, thread);
}
const uint64_t* Exchange(uint64_t word) { return machine.Exchange(word); }
int Lane() { return machine.lane(); }
void BeginCopy(const void* from, int bytes, void* to) {
  LYNX_CHECK(bytes == 4 || bytes == 16);
  const auto width = static_cast<uint64_t>(bytes);
  LYNX_CHECK(WordOf(from) % width == 0 && WordOf(to) % width == 0);
  machine.BeginCopy({from, bytes, to});
}
void WaitForCopies() { machine.WaitForCopies(); }
void BlockBarrier() { machine.Stop(State::kAtBlockBarrier); }

}  // namespace lynx::worker::cuda_on_host

void __syncthreads() { lynx::worker::cuda_on_host::BlockBarrier(); }
