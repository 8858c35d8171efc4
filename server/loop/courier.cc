// See courier.h.
#include "server/loop/courier.h"

#include <utility>

namespace lynx {

void Courier::Post(Errand errand) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  errands_.push_back(std::move(errand));
  if (errands_.size() == 1) wake_.notify_one();
}

size_t Courier::Length() const {
  const std::lock_guard lock(mutex_);
  return errands_.size() + taken_;
}

void Courier::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Courier::Main() {
  while (true) {
    std::deque<Errand> errands;
    {
      std::unique_lock lock(mutex_);
      taken_ = 0;
      wake_.wait(lock, [this] { return stopping_ || !errands_.empty(); });
      if (errands_.empty()) return;
      errands = std::exchange(errands_, {});
      taken_ = errands.size();
    }
    for (Errand& errand : errands) std::exchange(errand, nullptr)();
  }
}

}  // namespace lynx
