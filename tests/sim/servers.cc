// A second server of a simulation, on the same store. The leader may be stopped, as by SIGSTOP. When its lease has run out, the
// other one leads. When the first one goes on, it finishes what it had begun: it commits, unless the epoch of the store is not
// its own any more, and answers, unless it leads no more.
#include <utility>

#include "tests/sim/world.h"

namespace lynx::server::sim {
namespace {

// In seconds. The lease holds for kLease after its newest renewal, which is up to a second old when the leader is stopped. The
// other server looks twice a second.
constexpr double kLease = 3, kRenewal = 1, kLook = 0.5;

}  // namespace

void World::StopLeader() {
  if (faults_over_) return;
  Random& random = *stops_;
  common_.timeline.After(Seconds(random.Between(10, 60)), [this] { StopLeader(); });
  if (controller_ == nullptr || sleeper_.has_value()) return;
  if (random.Chance(0.5)) {
    stop_in_commit_ = true;  // in the middle of the next event
    return;
  }
  Sleep({}, /*committed=*/true);
}

void World::Sleep(std::vector<Effect> unfinished, bool committed) {
  stop_in_commit_ = false;
  ++common_.outcome.stops;
  common_.Tell("the leader is stopped");
  sleeper_ = Sleeper{.controller = std::move(controller_),
                     .epoch = epoch_,
                     .unfinished = std::move(unfinished),
                     .committed = committed,
                     .requests = std::exchange(requests_, {})};
  const int64_t epoch = epoch_;
  common_.timeline.After(Seconds(kLease - stops_->Between(0, kRenewal) + stops_->Between(0, kLook)), [this, epoch] {
    if (controller_ != nullptr || epoch_ != epoch) return;
    ++common_.outcome.takeovers;
    common_.Tell("the other server leads");
    BreakAllStreams();
    StartServer();
  });
  common_.timeline.After(Seconds(stops_->Between(0.1, 12)), [this] { WakeUp(); });
}

void World::BreakAllStreams() {
  for (auto it = streams_.begin(); it != streams_.end();) {
    const int64_t stream = (it++)->first;
    BreakStream(stream, false);
  }
}

void World::WakeUp() {
  if (!sleeper_.has_value()) return;
  Sleeper woken = *std::exchange(sleeper_, std::nullopt);
  const bool fenced = woken.epoch != epoch_ || controller_ != nullptr;
  common_.Tell(fenced ? "the stopped server goes on, and another leads" : "the stopped server goes on, and leads");
  if (!fenced) {
    controller_ = std::move(woken.controller);
    requests_.insert(woken.requests.begin(), woken.requests.end());
    if (!woken.committed) Commit(woken.unfinished);
    for (Effect& effect : woken.unfinished) {
      if (!IsDurable(effect)) CarryOne(effect);
    }
    const int64_t epoch = epoch_;
    common_.timeline.After(Seconds(0.5), [this, epoch] {
      if (controller_ != nullptr && epoch == epoch_) Tick();
    });
    for (EventBody& event : woken.backlog) Give(std::move(event));
    return;
  }
  // From here on only a server with a mistake does anything: each commit is refused, and the process ends.
  const WorldMistake mistake = common_.options.world_mistake;
  if (mistake != WorldMistake::kAcknowledgeWithoutEpoch && mistake != WorldMistake::kTwoLeaders) return;
  const Nanos now = common_.timeline.now();
  std::vector<std::vector<Effect>> rounds;
  rounds.push_back(std::move(woken.unfinished));
  for (EventBody& event : woken.backlog) rounds.push_back(woken.controller->Step({now, now, std::move(event)}));
  std::swap(requests_, woken.requests);
  for (size_t round = 0; round < rounds.size(); ++round) {
    const bool unwritten = round > 0 || !woken.committed;
    if (mistake == WorldMistake::kTwoLeaders && unwritten) Commit(rounds[round]);
    for (Effect& effect : rounds[round]) {
      if (std::holds_alternative<Reply>(effect)) CarryOne(effect);
    }
  }
  std::swap(requests_, woken.requests);
}

// A client whose call reaches the server that is stopped: the call waits there.
bool World::GiveToSleeper(const JobSubmitted& submitted, size_t client) {
  if (!sleeper_.has_value() || (!Sleeps() && !stops_->Chance(0.5))) return false;
  sleeper_->requests[submitted.request] = client;
  sleeper_->backlog.push_back(submitted);
  return true;
}

}  // namespace lynx::server::sim
