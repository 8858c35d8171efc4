#include "worker/engine/host_copies.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

class ThreadCopies : public HostCopies {
 public:
  explicit ThreadCopies(int32_t most_open) : thread_(most_open) {}

  Ticket Start(CopyDirection, std::span<const HostCopy> copies) override { return thread_.Start(copies); }
  Moment Wait(Ticket ticket) override { return thread_.Wait(ticket); }

 private:
  CopyThread thread_;
};

class QueueCopies : public HostCopies {
 public:
  QueueCopies(int32_t most_open, std::unique_ptr<DeviceQueue> out, std::unique_ptr<DeviceQueue> in, Backend& backend)
      : backend_(backend), out_(std::move(out)), in_(std::move(in)), done_(static_cast<size_t>(std::max(most_open, 1))) {}

  Ticket Start(CopyDirection direction, std::span<const HostCopy> copies) override {
    LYNX_CHECK(open_++ < static_cast<int64_t>(done_.size()));
    DeviceQueue& queue = direction == CopyDirection::kToHost ? *out_ : *in_;
    queue.Follow(backend_.Mark());
    for (const HostCopy& copy : copies) queue.Copy(copy.from, copy.bytes, copy.to);
    const Ticket ticket = next_++;
    At(ticket) = queue.Mark();
    return ticket;
  }

  Moment Wait(Ticket ticket) override {
    LYNX_CHECK(ticket < next_ && open_-- > 0);
    backend_.Follow(At(ticket));
    return At(ticket);
  }

 private:
  Moment& At(Ticket ticket) { return done_[static_cast<size_t>(ticket) % done_.size()]; }

  Backend& backend_;
  const std::unique_ptr<DeviceQueue> out_, in_;
  std::vector<Moment> done_;
  Ticket next_ = 0;
  int64_t open_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HostCopies>> HostCopies::Make(int32_t most_open, Backend& backend) {
  if (backend.host_addressable()) return std::make_unique<ThreadCopies>(most_open);
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> out, backend.MakeQueue());
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> in, backend.MakeQueue());
  return std::make_unique<QueueCopies>(most_open, std::move(out), std::move(in), backend);
}

}  // namespace lynx::worker
