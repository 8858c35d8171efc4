// LinkMeter: what a communicator's links have done since they were last read. Used by one thread.
#ifndef LYNX_WORKER_RANK_PEERS_LINK_METER_H_
#define LYNX_WORKER_RANK_PEERS_LINK_METER_H_

#include <vector>

#include "common/link_use.h"
#include "worker/collectives/communicator.h"

namespace lynx {

class LinkMeter {
 public:
  // What was before counts for nothing. Borrows it.
  explicit LinkMeter(const Communicator& communicator) : communicator_(communicator), last_(communicator.LinkUses()) {}

  // At most kMaxLinkUses, those to the lowest ranks.
  std::vector<LinkUse> SinceLast();

 private:
  const Communicator& communicator_;
  std::vector<LinkUse> last_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_PEERS_LINK_METER_H_
