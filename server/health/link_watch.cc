// See link_watch.h.
#include "server/health/link_watch.h"

#include <algorithm>

#include "common/check.h"

namespace lynx::server {
namespace {

constexpr double kShareOfStep = 0.1;
constexpr double kLeastChange = 2;  // a factor; other users of the network cause changes by smaller factors now and then

}  // namespace

void LinkWatch::Add(int32_t rank, Nanos duration, const std::vector<LinkUse>& links) {
  LYNX_CHECK(rank >= 0 && rank < ranks_);
  if (rank == 0) steps_.Add(duration);
  for (const LinkUse& use : links) {
    if (use.peer < 0 || use.peer >= ranks_ || use.peer == rank) continue;
    Link& link = links_[{rank, use.peer}];
    link.busy.Add(use.busy);
    link.bytes = use.bytes;
  }
}

std::vector<LinkWatch::Change> LinkWatch::Changes() const {
  std::vector<Change> changes;
  if (!steps_.complete()) return changes;
  const double felt = kShareOfStep * Seconds(std::max(steps_.First(), steps_.Newest()));
  for (const auto& [ends, link] : links_) {
    if (!link.busy.complete()) continue;
    const Change change{
        .from = ends.first, .to = ends.second, .bytes = link.bytes, .before = link.busy.First(), .now = link.busy.Latest()};
    const auto differs = [&](Nanos now) {
      const auto [less, more] = std::minmax({Seconds(change.before), Seconds(now)});
      return more - less > felt && more > kLeastChange * less;
    };
    if (differs(link.busy.Newest()) && differs(change.now)) changes.push_back(change);
  }
  return changes;
}

void LinkWatch::Rebase() {
  steps_.Rebase();
  for (auto& [ends, link] : links_) link.busy.Rebase();
}

}  // namespace lynx::server
