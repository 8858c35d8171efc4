#include "worker/collectives/bounded_call.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "common/status.h"

namespace lynx::worker {
namespace {

constexpr auto kStopPeriod = std::chrono::milliseconds(1);

std::atomic<int64_t> left_behind = 0;

}  // namespace

struct BoundedCall::State {
  std::function<absl::Status()> call;
  std::function<void()> undo;
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false, left = false;
  absl::Status status;

  void Run() {
    absl::Status result = call();
    std::unique_lock lock(mutex);
    status = std::move(result);
    done = true;
    ended.notify_all();
    if (!left) return;
    lock.unlock();
    if (status.ok()) undo();
    --left_behind;
  }
};

BoundedCall::BoundedCall(std::function<absl::Status()> call, std::function<void()> undo) : state_(std::make_shared<State>()) {
  state_->call = std::move(call);
  state_->undo = std::move(undo);
  // The kernel must deliver signals to the threads that the program has made for them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([state = state_] { state->Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

BoundedCall::~BoundedCall() {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->done) {
      state_->left = true;
      ++left_behind;
      thread_.detach();
    }
  }
  if (!thread_.joinable()) return;
  thread_.join();
  if (!told_ && state_->status.ok()) state_->undo();
}

absl::Status BoundedCall::Wait(const std::function<absl::Status()>& stop) {
  std::unique_lock lock(state_->mutex);
  while (!state_->done) {
    state_->ended.wait_for(lock, kStopPeriod);
    if (state_->done) break;
    lock.unlock();
    LYNX_RETURN_IF_ERROR(stop());
    lock.lock();
  }
  told_ = true;
  return state_->status;
}

int64_t BoundedCall::LeftBehind() { return left_behind; }

}  // namespace lynx::worker
