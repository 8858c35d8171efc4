#include "planner/cost/simulate.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"
#include "planner/cost/core_sharing.h"
#include "planner/program/hidden_time.h"

namespace lynx {
namespace {

constexpr int32_t kNone = -1;

// One transfer. It begins when its last member has started it and the previous transfer on its link has ended.
struct Transfer {
  int32_t members_missing = 0;
  int32_t microbatch = kNoMicrobatch;
  Nanos ready;  // the latest of the starts so far
  Nanos duration;
  Nanos begin, end;                                            // set once members_missing is 0
  absl::InlinedVector<std::pair<int32_t, int32_t>, 2> starts;  // (stage, action) of each member that has started the transfer
};

// The transfers of one group in one direction, in order.
struct Channel {
  int32_t members = 1;
  int32_t link = 0;             // the link that carries the transfers
  std::vector<int32_t> issued;  // for each member, the number of transfers that it has started
  std::vector<Transfer> transfers;
};

// A pipeline rank's place in a channel.
struct Member {
  int32_t channel = kNone;
  int32_t place = 0;
};

struct InFlightTransfer {
  Nanos begin, end;
};

struct StageState {
  int32_t next = 0;  // index of the next action
  Nanos now;
  bool computing = false;                   // true while the next action runs on cores that other stages share
  Nanos work;                               // time that the running compute action takes if no other stage computes on its
                                            // cores
  std::vector<InFlightTransfer> in_flight;  // collectives and transfers between stages
  std::vector<InFlightTransfer> copies;     // copies to and from the host
  std::vector<int32_t> start_of_wait;       // for each wait, the index of its start; kNone for other actions
  std::vector<std::pair<int32_t, int32_t>> transfer_of;  // for each start, its channel and its position in the channel
};

class Simulator {
 public:
  Simulator(const std::vector<Program>& programs, const std::vector<StageContext>& contexts, const StageCosts& costs);
  absl::StatusOr<Simulation> Run();

 private:
  void AddChannels();
  absl::Status PairWaitsWithStarts();
  absl::Status CheckNeighbour(int32_t stage, int32_t index) const;
  // Adds the stage to ready_ if it can run.
  void Enqueue(int32_t stage);
  // Runs actions until no stage can run. The next action is always that of the stage that can begin it first.
  absl::Status RunAll();
  bool Finished(int32_t stage) const { return states_[stage].next == static_cast<int32_t>(programs_[stage].size()); }
  bool Blocked(int32_t stage) const;
  absl::Status RunNext(int32_t stage);
  absl::Status Start(int32_t stage, const Action& action);
  void Complete(Channel& channel, Transfer& transfer);
  void Wait(int32_t stage, const Action& action);
  void BeginCompute(int32_t stage, const Action& action);
  void EndCompute(int32_t stage, Nanos at);
  const Transfer& TransferOfWait(int32_t stage, int32_t wait) const;
  // Returns when the copy ends. A copy in the other direction shares the host link with it.
  Nanos EndOfCopy(int32_t stage, const Transfer& copy) const;
  // Returns for how long after `now` at least one of the transfers is in flight, without a gap. Removes transfers that have
  // ended.
  static Nanos InFlightFor(std::vector<InFlightTransfer>& transfers, Nanos now);
  void SplitRecomputation(int32_t stage);
  absl::Status Deadlock() const;
  std::string MissingText(int32_t stage) const;
  Member MemberOf(int32_t stage, const Action& action) const;

  const std::vector<Program>& programs_;
  const std::vector<StageContext>& contexts_;
  const StageCosts& costs_;
  const int32_t stages_;  // number of pipeline ranks
  const PipelineShape pipeline_;
  std::vector<StageState> states_;
  std::vector<Channel> channels_;
  std::vector<Nanos> links_;             // for each link, the time when it is free
  std::optional<SharedCompute> shared_;  // set if stages slow each other down
  // Stages that can run, in the order in which their next actions begin; among equal times, in the order of their numbers.
  using Ready = std::pair<Nanos, int32_t>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
  Simulation result_;
};

Simulator::Simulator(const std::vector<Program>& programs, const std::vector<StageContext>& contexts, const StageCosts& costs)
    : programs_(programs), contexts_(contexts), costs_(costs), stages_(static_cast<int32_t>(programs.size())),
      pipeline_(contexts.at(0).pipeline()), states_(programs.size()) {
  LYNX_CHECK(programs.size() == contexts.size() && costs.stages() == stages_);
  for (const StageContext& context : contexts) LYNX_CHECK(context.layout.pp == stages_);
  AddChannels();
  if (costs.sharing().BetweenStages()) shared_.emplace(costs.sharing(), stages_);
  result_.stages.resize(stages_);
  for (int32_t stage = 0; stage < stages_; ++stage) {
    result_.stages[stage].spans.resize(programs[stage].size());
    states_[stage].transfer_of.assign(programs[stage].size(), {kNone, kNone});
  }
}

// Adds the channels in this order: the tensor groups of all ranks; the data groups of all ranks; the world; a forward boundary
// after each virtual stage; a backward boundary before each virtual stage; for each rank, its copies to the host and its copies
// from the host. In a bidirectional pipeline, there is one data group for each piece of the model, with the two ranks that hold
// the piece. All boundaries from one rank to another share a link; every other channel has its own link.
void Simulator::AddChannels() {
  const auto add = [&](int32_t members, int32_t link) {
    if (link == kNone) {
      link = static_cast<int32_t>(links_.size());
      links_.emplace_back();
    }
    channels_.push_back({members, link, std::vector<int32_t>(static_cast<size_t>(members)), {}});
  };
  for (int32_t stage = 0; stage < stages_; ++stage) add(1, kNone);
  for (int32_t stage = 0; stage < stages_; ++stage) add(pipeline_.pipes(), kNone);
  add(stages_, kNone);
  std::map<std::pair<int32_t, int32_t>, int32_t> between;
  for (const bool forward : {true, false}) {
    for (int32_t stage = 0; stage < pipeline_.stages(); ++stage) {
      const int32_t next = pipeline_.Next(stage);
      const int32_t low = pipeline_.RankOf(stage), high = next == kNoStage ? low : pipeline_.RankOf(next);
      const auto [link, added] =
          between.try_emplace(forward ? std::pair(low, high) : std::pair(high, low), static_cast<int32_t>(links_.size()));
      if (added) links_.emplace_back();
      add(2, link->second);
    }
  }
  for (int32_t copies = 0; copies < 2 * stages_; ++copies) add(1, kNone);
}

Member Simulator::MemberOf(int32_t stage, const Action& action) const {
  const int32_t forward_boundaries = 2 * stages_ + 1;
  const int32_t backward_boundaries = forward_boundaries + pipeline_.stages();
  const int32_t copies = backward_boundaries + pipeline_.stages();
  const ActionInfo& info = InfoOf(action.kind);
  const int32_t boundaries = info.part == StepPart::kForward ? forward_boundaries : backward_boundaries;
  switch (info.group) {
    case Group::kExpertData: return {stages_ + stage, 0};
    case Group::kData:
      if (!pipeline_.bidirectional()) return {stages_ + stage, 0};
      return {stages_ + pipeline_.PieceOf(action.stage), pipeline_.PipeOf(action.stage)};
    case Group::kWorld: return {2 * stages_, stage};
    case Group::kNextStage: return {boundaries + action.stage, 0};
    case Group::kPreviousStage: return {boundaries + pipeline_.Previous(action.stage), 1};
    case Group::kHost: return {copies + (info.flow == Flow::kOut ? 0 : stages_) + stage, 0};
    case Group::kNone:
    case Group::kExpert:  // on the same line as the tensor-parallel group
    case Group::kTensor: break;
  }
  return {stage, 0};
}

// Checks an action of a transfer. Its virtual stage must be on this rank. If the transfer is between ranks, the neighbour of
// the virtual stage must be on another rank.
absl::Status Simulator::CheckNeighbour(int32_t stage, int32_t index) const {
  const Action& action = programs_[stage][index];
  const Group group = InfoOf(action.kind).group;
  const auto fail = [&](const std::string& what) {
    return absl::FailedPreconditionError(
        absl::StrCat("stage ", stage, " of ", stages_, ": ", ActionText(action), " (action ", index, ") ", what));
  };
  if (contexts_[stage].FindSlice(action.stage) == nullptr) return fail("is of a virtual stage that is elsewhere");
  if (group != Group::kNextStage && group != Group::kPreviousStage) return absl::OkStatus();
  const int32_t neighbour = group == Group::kNextStage ? pipeline_.Next(action.stage) : pipeline_.Previous(action.stage);
  if (neighbour == kNoStage) return fail("has no neighbour stage to meet");
  if (pipeline_.RankOf(neighbour) == stage) return fail("has its neighbour stage on the same rank");
  return absl::OkStatus();
}

// Finds the start of each wait. The search in `open` is fast: few transfers of one kind and segment are in flight at the same
// time, and the oldest one is usually waited for first.
absl::Status Simulator::PairWaitsWithStarts() {
  // for each kind and segment, the starts whose wait has not been found yet
  std::vector<std::vector<int32_t>> open(size_t{kActionKindCount} * kSegmentCount);
  for (int32_t stage = 0; stage < stages_; ++stage) {
    const Program& program = programs_[stage];
    for (std::vector<int32_t>& starts : open) starts.clear();
    states_[stage].start_of_wait.assign(program.size(), kNone);
    for (int32_t i = 0; i < static_cast<int32_t>(program.size()); ++i) {
      const Action& action = program[i];
      const ActionInfo& info = InfoOf(action.kind);
      if (info.phase == Phase::kWhole) continue;
      LYNX_RETURN_IF_ERROR(CheckNeighbour(stage, i));
      const ActionKind start_kind = info.phase == Phase::kStart ? action.kind : info.counterpart;
      std::vector<int32_t>& starts =
          open[static_cast<size_t>(start_kind) * kSegmentCount + static_cast<size_t>(action.segment)];
      if (info.phase == Phase::kStart) {
        starts.push_back(i);
        continue;
      }
      const auto found = std::find_if(starts.begin(), starts.end(), [&](int32_t start) {
        const Action& s = program[start];
        return s.stage == action.stage && s.microbatch == action.microbatch && s.layer == action.layer;
      });
      if (found == starts.end()) {
        return absl::FailedPreconditionError(absl::StrCat("stage ", stage, ": ", ActionText(action), " (action ", i,
                                                          ") waits for a transfer that nothing before it starts"));
      }
      states_[stage].start_of_wait[i] = *found;
      starts.erase(found);
    }
  }
  return absl::OkStatus();
}

const Transfer& Simulator::TransferOfWait(int32_t stage, int32_t wait) const {
  const auto [channel, position] = states_[stage].transfer_of[states_[stage].start_of_wait[wait]];
  return channels_[channel].transfers[position];
}

bool Simulator::Blocked(int32_t stage) const {
  const int32_t next = states_[stage].next;
  return states_[stage].start_of_wait[next] != kNone && TransferOfWait(stage, next).members_missing > 0;
}

void Simulator::Enqueue(int32_t stage) {
  if (!Finished(stage) && !states_[stage].computing && !Blocked(stage)) ready_.emplace(states_[stage].now, stage);
}

absl::Status Simulator::RunAll() {
  for (int32_t stage = 0; stage < stages_; ++stage) Enqueue(stage);
  while (true) {
    // When compute on shared cores ends is known only at that time, because another stage may begin earlier and slow it down.
    const std::optional<SharedCompute::End> done = shared_ ? shared_->Next() : std::nullopt;
    if (done && (ready_.empty() || done->at <= ready_.top().first)) {
      shared_->Finish(*done);
      EndCompute(done->stage, done->at);
      Enqueue(done->stage);
      continue;
    }
    if (ready_.empty()) break;
    const int32_t stage = ready_.top().second;
    ready_.pop();
    do {
      LYNX_RETURN_IF_ERROR(RunNext(stage));
    } while (!shared_ && !Finished(stage) && !Blocked(stage) &&
             (ready_.empty() || std::pair(states_[stage].now, stage) < ready_.top()));
    Enqueue(stage);
  }
  return absl::OkStatus();
}

absl::Status Simulator::Start(int32_t stage, const Action& action) {
  StageState& state = states_[stage];
  const auto [index, member] = MemberOf(stage, action);
  Channel& channel = channels_[index];
  const int32_t position = channel.issued[member]++;
  if (position == static_cast<int32_t>(channel.transfers.size())) {
    channel.transfers.push_back({.members_missing = channel.members, .microbatch = action.microbatch});
  }
  Transfer& transfer = channel.transfers[position];
  if (transfer.microbatch != action.microbatch) {
    const auto [peer, other] = transfer.starts.front();
    return absl::FailedPreconditionError(absl::StrCat("stage ", stage, ": ", ActionText(action), " meets ",
                                                      ActionText(programs_[peer][other]), " of stage ", peer,
                                                      ": sends and receives are in different orders"));
  }
  transfer.ready = std::max(transfer.ready, state.now);
  transfer.duration = std::max(transfer.duration, costs_.Of(stage).TransferTime(action));
  transfer.starts.push_back({stage, state.next});
  state.transfer_of[state.next] = {index, position};
  if (--transfer.members_missing == 0) Complete(channel, transfer);
  return absl::OkStatus();
}

void Simulator::Complete(Channel& channel, Transfer& transfer) {
  Nanos& link_free = links_[channel.link];
  transfer.begin = std::max(transfer.ready, link_free);
  const auto [first_stage, first_action] = transfer.starts.front();
  const bool copy = InfoOf(programs_[first_stage][first_action].kind).group == Group::kHost;
  transfer.end = copy ? EndOfCopy(first_stage, transfer) : transfer.begin + transfer.duration;
  link_free = transfer.end;
  for (const auto& [stage, action] : transfer.starts) {
    result_.stages[stage].spans[action].transfer_begin = transfer.begin;
    result_.stages[stage].spans[action].transfer_end = transfer.end;
    // A stage that already waits for this transfer can run again.
    const int32_t next = states_[stage].next;
    if (next != action && !Finished(stage) && states_[stage].start_of_wait[next] == action) Enqueue(stage);
    if (transfer.duration.value == 0) continue;
    (copy ? states_[stage].copies : states_[stage].in_flight).push_back({transfer.begin, transfer.end});
  }
}

// A stage starts its copies in the order of time. So the other direction is busy from the begin of this copy until the end of
// the last copy in the other direction.
Nanos Simulator::EndOfCopy(int32_t stage, const Transfer& copy) const {
  const bool to_host = InfoOf(programs_[stage][copy.starts.front().second].kind).flow == Flow::kOut;
  const Action opposite{.kind = to_host ? ActionKind::kReloadStart : ActionKind::kOffloadStart};
  const auto [other, member] = MemberOf(stage, opposite);
  const Nanos busy = std::max(Nanos(0), links_[channels_[other].link] - copy.begin);
  return copy.begin + costs_.Of(stage).CopyTime(copy.duration, to_host, busy);
}

void Simulator::Wait(int32_t stage, const Action& action) {
  StageState& state = states_[stage];
  StageTimes& times = result_.stages[stage];
  const Nanos waited = std::max(Nanos(0), TransferOfWait(stage, state.next).end - state.now);
  const Group group = InfoOf(action.kind).group;
  (group == Group::kNextStage || group == Group::kPreviousStage ? times.stall : times.communication_exposed) += waited;
  state.now += waited;
}

Nanos Simulator::InFlightFor(std::vector<InFlightTransfer>& transfers, Nanos now) {
  std::erase_if(transfers, [&](const InFlightTransfer& t) { return t.end <= now; });
  Nanos until = now;
  for (bool grew = true; grew;) {
    grew = false;
    for (const InFlightTransfer& t : transfers) {
      if (t.begin > until || t.end <= until) continue;
      until = t.end;
      grew = true;
    }
  }
  return until - now;
}

void Simulator::BeginCompute(int32_t stage, const Action& action) {
  StageState& state = states_[stage];
  const CostModel& costs = costs_.Of(stage);
  const Nanos beside_transfers =
      costs.OverlappedTime(costs.ComputeTime(action, contexts_[stage]), InFlightFor(state.in_flight, state.now));
  state.work = costs.BesideCopies(beside_transfers, InFlightFor(state.copies, state.now));
  if (!shared_) return EndCompute(stage, state.now + state.work);
  state.computing = true;
  shared_->Begin(stage, state.now, state.work);
}

void Simulator::EndCompute(int32_t stage, Nanos at) {
  StageState& state = states_[stage];
  StageTimes& times = result_.stages[stage];
  const Nanos taken = at - state.now;
  switch (programs_[stage][state.next].kind) {
    case ActionKind::kForward: times.forward += taken; break;
    case ActionKind::kBackward: times.backward += taken; break;
    case ActionKind::kWeight: times.weight += taken; break;
    case ActionKind::kOptimizer: times.optimizer += taken; break;
    case ActionKind::kRecompute: break;  // see SplitRecomputation
    default: LYNX_CHECK(false);
  }
  times.core_wait += taken - state.work * 1000 / costs_.sharing().OwnSlowdown(stage);
  state.computing = false;
  state.now = at;
  times.spans[state.next].end = at;
  ++state.next;
}

absl::Status Simulator::RunNext(int32_t stage) {
  StageState& state = states_[stage];
  const Action& action = programs_[stage][state.next];
  ActionSpan& span = result_.stages[stage].spans[state.next];
  span.begin = state.now;
  switch (InfoOf(action.kind).phase) {
    case Phase::kStart: LYNX_RETURN_IF_ERROR(Start(stage, action)); break;
    case Phase::kWait: Wait(stage, action); break;
    case Phase::kWhole: BeginCompute(stage, action); return absl::OkStatus();
  }
  span.end = state.now;
  ++state.next;
  return absl::OkStatus();
}

void Simulator::SplitRecomputation(int32_t stage) {
  const Program& program = programs_[stage];
  StageTimes& times = result_.stages[stage];
  const std::vector<int32_t> hiding = HidingStarts(program, states_[stage].start_of_wait);
  for (size_t i = 0; i < program.size(); ++i) {
    if (program[i].kind != ActionKind::kRecompute) continue;
    ActionSpan& span = times.spans[i];
    if (hiding[i] != kNone) span.hidden = HiddenPart(span.begin, span.end, times.spans[hiding[i]].transfer_end);
    times.recompute_hidden += span.hidden;
    times.recompute_exposed += span.end - span.begin - span.hidden;
  }
}

std::string Simulator::MissingText(int32_t stage) const {
  const StageState& state = states_[stage];
  const Action& wait = programs_[stage][state.next];
  const Group group = InfoOf(wait.kind).group;
  if (group == Group::kNextStage) return absl::StrCat("stage ", pipeline_.RankOf(pipeline_.Next(wait.stage)));
  if (group == Group::kPreviousStage) return absl::StrCat("stage ", pipeline_.RankOf(pipeline_.Previous(wait.stage)));
  if (group == Group::kData) return absl::StrCat("stage ", stages_ - 1 - stage);  // the other rank that holds the piece
  const Transfer& transfer = TransferOfWait(stage, state.next);
  std::vector<std::string> missing;
  for (int32_t other = 0; other < stages_; ++other) {
    const bool started =
        std::any_of(transfer.starts.begin(), transfer.starts.end(), [&](const auto& start) { return start.first == other; });
    if (!started) missing.push_back(absl::StrCat("stage ", other));
  }
  return absl::StrJoin(missing, ", ");
}

absl::Status Simulator::Deadlock() const {
  std::vector<std::string> waiting;
  for (int32_t stage = 0; stage < stages_; ++stage) {
    if (Finished(stage)) continue;
    waiting.push_back(absl::StrCat("stage ", stage, " waits at ", ActionText(programs_[stage][states_[stage].next]),
                                   " (action ", states_[stage].next, ") for ", MissingText(stage)));
  }
  return absl::FailedPreconditionError(absl::StrCat("deadlock: ", absl::StrJoin(waiting, "; ")));
}

absl::StatusOr<Simulation> Simulator::Run() {
  LYNX_RETURN_IF_ERROR(PairWaitsWithStarts());
  LYNX_RETURN_IF_ERROR(RunAll());
  for (int32_t stage = 0; stage < stages_; ++stage) {
    if (!Finished(stage)) return Deadlock();
    SplitRecomputation(stage);
    result_.stages[stage].end = states_[stage].now;
    result_.step = std::max(result_.step, states_[stage].now);
  }
  return std::move(result_);
}

}  // namespace

absl::StatusOr<Simulation> Simulate(const std::vector<Program>& programs, const std::vector<StageContext>& contexts,
                                    const StageCosts& costs) {
  return Simulator(programs, contexts, costs).Run();
}

absl::StatusOr<Simulation> Simulate(const std::vector<Program>& programs, const std::vector<StageContext>& contexts,
                                    const CostModel& costs) {
  return Simulate(programs, contexts, StageCosts(costs, static_cast<int32_t>(programs.size())));
}

}  // namespace lynx
