// Simulates further servers on the same store. The leader may be stopped, as by SIGSTOP. When its lease has ended, another
// server leads, which may be stopped too. When a stopped server continues, it finishes what it had begun. It can commit only if
// the store still has its epoch, and answers only if it still leads.
#include <algorithm>
#include <utility>

#include "tests/sim/world.h"

namespace lynx::server::sim {
namespace {

constexpr size_t kServers = 3;
// Times in seconds. A lease lasts for kLease after its newest renewal. When a leader is stopped, this renewal is up to kRenewal
// old. The other servers look at the lease every kLook.
constexpr double kLease = 3, kRenewal = 1, kLook = 0.5;

}  // namespace

void World::StopLeader() {
  if (faults_over_) return;
  Random& random = *stops_;
  common_.timeline.After(Seconds(random.Between(5, 50)), [this] { StopLeader(); });
  // At least one server must be running to lead, and the store must be there for a takeover.
  if (controller_ == nullptr || store_away_ || sleepers_.size() + 1 >= kServers) return;
  if (random.Chance(0.5)) {
    stop_in_commit_ = true;  // the server is stopped in the commit of the next event
    return;
  }
  Sleep({}, /*committed=*/true);
}

void World::Sleep(std::vector<Effect> unfinished, bool committed) {
  stop_in_commit_ = false;
  ++common_.outcome.stops;
  common_.outcome.both_stopped += sleepers_.empty() ? 0 : 1;
  common_.Tell(sleepers_.empty() ? "the leader is stopped" : "the leader is stopped, beside another server");
  const int64_t epoch = epoch_;
  sleepers_.push_back({.controller = std::move(controller_),
                       .epoch = epoch,
                       .unfinished = std::move(unfinished),
                       .committed = committed,
                       .requests = std::exchange(requests_, {})});
  common_.timeline.After(Seconds(kLease - stops_->Between(0, kRenewal) + stops_->Between(0, kLook)), [this, epoch] {
    if (controller_ != nullptr || epoch_ != epoch) return;
    ++common_.outcome.takeovers;
    TakeOver(epoch);
  });
  common_.timeline.After(Seconds(stops_->Between(0.1, 20)), [this, epoch] { WakeUp(epoch); });
}

void World::TakeOver(int64_t epoch) {
  if (controller_ != nullptr || epoch_ != epoch) return;
  if (store_away_) return common_.timeline.After(Seconds(kLook), [this, epoch] { TakeOver(epoch); });
  common_.Tell("another server leads, or the same one begins again");
  BreakAllStreams();
  StartServer();
}

void World::BreakAllStreams(bool server_notices) {
  for (auto it = streams_.begin(); it != streams_.end();) {
    const int64_t stream = (it++)->first;
    BreakStream(stream, server_notices);
  }
}

void World::WakeUp(int64_t epoch) {
  const auto found = std::find_if(sleepers_.begin(), sleepers_.end(), [&](const Sleeper& one) { return one.epoch == epoch; });
  if (found == sleepers_.end()) return;
  Sleeper woken = std::move(*found);
  sleepers_.erase(found);
  const bool fenced = woken.epoch != epoch_ || controller_ != nullptr;
  common_.Tell(fenced ? "a stopped server goes on, and another leads" : "the stopped server goes on, and leads");
  if (!fenced) {
    controller_ = std::move(woken.controller);
    requests_.insert(woken.requests.begin(), woken.requests.end());
    if (!woken.committed) Commit(woken.unfinished);
    for (Effect& effect : woken.unfinished) {
      if (!IsDurable(effect)) CarryOne(effect);
    }
    common_.timeline.After(Seconds(0.5), [this, epoch] {
      if (controller_ != nullptr && epoch == epoch_) Tick();
    });
    for (const auto& [job, events_then] : woken.questions) CheckAnswer(*controller_, job, events_then);
    for (EventBody& event : woken.backlog) Give(std::move(event));
    return;
  }
  // From here on, a correct server can do nothing: its commit is refused, and its process ends. Only a server with a mistake
  // goes on.
  const WorldMistake mistake = common_.options.world_mistake;
  if (mistake == WorldMistake::kStaleRead) {
    for (const auto& [job, events_then] : woken.questions) CheckAnswer(*woken.controller, job, events_then);
    forgetful_ = std::move(woken.controller);
    return;
  }
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

// If the client's call reaches a server that is stopped, the call waits there.
bool World::GiveToSleeper(const JobSubmitted& submitted, size_t client) {
  if (sleepers_.empty() || (!Sleeps() && !stops_->Chance(0.5))) return false;
  Sleeper& sleeper =
      Sleeps() ? sleepers_.back() : sleepers_[static_cast<size_t>(stops_->Below(static_cast<int64_t>(sleepers_.size())))];
  sleeper.requests[submitted.request] = client;
  sleeper.backlog.push_back(submitted);
  return true;
}

void World::Read() {
  Random& random = *reads_;
  common_.timeline.After(Seconds(random.Between(0.5, 10)), [this] { Read(); });
  const ClientJob& client = clients_[static_cast<size_t>(random.Below(static_cast<int64_t>(clients_.size())))];
  if (!client.acknowledged.has_value() || !store_.contains(*client.acknowledged)) return;
  const JobId& job = *client.acknowledged;
  const int64_t events_now = store_.at(job).events;
  if (forgetful_ != nullptr && random.Chance(0.5)) return CheckAnswer(*forgetful_, job, events_now);
  if (!sleepers_.empty() && (Sleeps() || random.Chance(0.5))) {
    sleepers_[static_cast<size_t>(random.Below(static_cast<int64_t>(sleepers_.size())))].questions.emplace_back(job,
                                                                                                                events_now);
    return;
  }
  if (controller_ != nullptr && !paused_) CheckAnswer(*controller_, job, events_now);
}

void World::CheckAnswer(const Controller& server, const JobId& job, int64_t events_then) {
  ++common_.outcome.reads;
  const JobRecord* const known = server.Find(job);
  const int64_t events = known == nullptr ? 0 : known->events;
  if (events >= events_then) return;
  common_.Violation(absl::StrCat("somebody who asked for job ", job.value, " was told of ", events, " events, and there were ",
                                 events_then, " when they asked"));
}

}  // namespace lynx::server::sim
