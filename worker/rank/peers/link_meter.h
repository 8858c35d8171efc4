// LinkMeter counts how much a communicator's links have been used since its last call. Only one thread may use it.
#ifndef LYNX_WORKER_RANK_PEERS_LINK_METER_H_
#define LYNX_WORKER_RANK_PEERS_LINK_METER_H_

#include <vector>

#include "common/link_use.h"
#include "worker/collectives/communicator.h"

namespace lynx::worker {

class LinkMeter {
 public:
  // Begins to count now. Borrows the communicator.
  explicit LinkMeter(const Communicator& communicator) : communicator_(communicator), last_(communicator.LinkUses()) {}

  // Returns the use of at most kMaxLinkUses links: those to the lowest ranks.
  std::vector<LinkUse> SinceLast();

 private:
  const Communicator& communicator_;
  std::vector<LinkUse> last_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PEERS_LINK_METER_H_
