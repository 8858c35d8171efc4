#include "worker/rank/peers/link_meter.h"

#include <gtest/gtest.h>

#include "tests/worker/rank/peers/no_transfers.h"

namespace lynx::worker {
namespace {

class Told : public NoTransfers {
 public:
  std::vector<LinkUse> LinkUses() const override { return uses; }

  std::vector<LinkUse> uses;
};

TEST(LinkMeter, TellsWhatWasSinceItWasLastRead) {
  Told communicator;
  communicator.uses = {{.peer = 2, .bytes = 100, .busy = Nanos(50)}};
  LinkMeter meter(communicator);
  communicator.uses = {{.peer = 1, .bytes = 7, .busy = Nanos(8)}, {.peer = 2, .bytes = 130, .busy = Nanos(90)}};
  EXPECT_EQ(meter.SinceLast(),
            (std::vector<LinkUse>{{.peer = 1, .bytes = 7, .busy = Nanos(8)}, {.peer = 2, .bytes = 30, .busy = Nanos(40)}}));
  communicator.uses[1].busy = Nanos(80);
  EXPECT_EQ(meter.SinceLast(), (std::vector<LinkUse>{{.peer = 1}, {.peer = 2}})) << "never less than nothing";
}

TEST(LinkMeter, TellsOfABoundedNumber) {
  Told communicator;
  LinkMeter meter(communicator);
  for (int32_t peer = 0; peer < 100; ++peer) communicator.uses.push_back({.peer = peer, .bytes = 1});
  EXPECT_EQ(meter.SinceLast().size(), kMaxLinkUses);
}

}  // namespace
}  // namespace lynx::worker
