#include "worker/rank/peers/link_meter.h"

#include <algorithm>
#include <utility>

namespace lynx::worker {

std::vector<LinkUse> LinkMeter::SinceLast() {
  std::vector<LinkUse> now = communicator_.LinkUses();
  if (now.size() > kMaxLinkUses) now.resize(kMaxLinkUses);
  std::vector<LinkUse> since = now;
  for (LinkUse& use : since) {
    const auto before = std::find_if(last_.begin(), last_.end(), [&](const LinkUse& other) { return other.peer == use.peer; });
    if (before == last_.end()) continue;
    use.bytes = std::max<int64_t>(0, use.bytes - before->bytes);
    // Time in which the peer did not read is not busy time. The kernel sometimes counts such time first and subtracts it later,
    // so the difference may be negative.
    use.busy = std::max(Nanos(0), use.busy - before->busy);
  }
  last_ = std::move(now);
  return since;
}

}  // namespace lynx::worker
