// Simulates the server, its store, and the network between the server and the nodes.
#include <utility>

#include "planner/candidates/search.h"
#include "planner/search/make_plan.h"
#include "tests/sim/world.h"

namespace lynx::server::sim {
namespace {

constexpr double kServerTick = 0.5;
// Time in seconds. A stream that is cut breaks after kPatience / 2 to kPatience (see KeepAlive).
constexpr double kPatience = 6;

// The bytes that a rank needs if nothing is recomputed, and if everything is recomputed.
constexpr int64_t kMaxTaken = 900 << 20, kLeastTaken = 200 << 20;

std::shared_ptr<const Plan> PlanFor(const JobSpec& spec, int32_t devices, Bytes memory, Random& random) {
  Plan plan;
  plan.model = spec.model;
  const int32_t most = std::min(devices, spec.resources.max_ranks);
  // Sometimes the plan has one rank less than possible.
  const int32_t ranks = random.Chance(0.7) ? most : std::max<int32_t>(spec.resources.min_ranks, most - 1);
  plan.layout = random.Chance(0.5) ? ParallelLayout{1, 1, ranks} : ParallelLayout{1, ranks, 1};
  plan.micro_batch = 1;
  plan.microbatches = 4;
  plan.step = Seconds(4.0 / ranks);
  plan.digest = absl::StrCat("plan-of-", LayoutText(plan.layout));
  plan.stages.resize(static_cast<size_t>(plan.layout.pp));
  for (StagePlan& stage : plan.stages) stage.arena = std::min(Bytes(kMaxTaken), memory);
  return std::make_shared<const Plan>(std::move(plan));
}

}  // namespace

World::World(const Options& options) : common_{.options = options, .random = Random(options.seed)} {
  controller_options_.node_timeout = Seconds(20);
  controller_options_.listen_timeout = Seconds(20);
  controller_options_.measure_timeout = Seconds(5);
  controller_options_.stop_timeout = Seconds(8);
  controller_options_.yield_timeout = Seconds(15);
  controller_options_.mistake = options.mistake;
  controller_options_.wanted_shapes = [](const JobSpec& spec, const ClusterTopology& cluster) {
    return std::vector<LayerShape>{ShapeOf(spec.model, ParallelLayout{cluster.devices() > 2 ? 2 : 1}, 1)};
  };
  controller_options_.wanted_shape_of = WantedShapeOf;
}

void World::StartServer() {
  ++epoch_;
  controller_ = std::make_unique<Controller>(controller_options_);
  controller_->RestoreSettings(settings_);
  std::vector<Controller::StoredJob> jobs;
  for (const auto& [id, stored] : store_) {
    jobs.push_back({stored.record, IsFinal(stored.record.state) ? nullptr : stored.plan});
  }
  common_.Tell(absl::StrCat("server starts with ", jobs.size(), " jobs"));
  const Nanos now = common_.timeline.now();
  Carry(controller_->Restore(std::move(jobs), now, now), nullptr);
  const int64_t epoch = epoch_;
  common_.timeline.After(Seconds(kServerTick), [this, epoch] {
    if (controller_ != nullptr && epoch == epoch_) Tick();
  });
}

void World::Tick() {
  const int64_t epoch = epoch_;
  if (!Give(lynx::server::Tick{})) return;
  common_.timeline.After(Seconds(kServerTick), [this, epoch] {
    if (controller_ != nullptr && epoch == epoch_) Tick();
  });
}

void World::CrashServer(Nanos away) {
  if (controller_ == nullptr) return;
  common_.Tell("server is killed");
  controller_.reset();
  requests_.clear();
  ForgetKept();
  BreakAllStreams();
  const int64_t epoch = epoch_;
  common_.timeline.After(away, [this, epoch] { TakeOver(epoch); });
}

bool World::Give(EventBody body) {
  if (Sleeps()) sleepers_.back().backlog.push_back(std::move(body));
  if (controller_ == nullptr) return false;
  // A server whose store is away refuses new jobs and cancellations, and their clients call again.
  if (store_away_ && (paused_ || !pending_.empty() || !doubtful_.empty())) {
    if (const auto* submitted = std::get_if<JobSubmitted>(&body)) requests_.erase(submitted->request);
    if (std::holds_alternative<JobSubmitted>(body) || std::holds_alternative<CancelRequested>(body)) return true;
  }
  ++common_.outcome.events;
  const int64_t epoch = epoch_;
  const Nanos now = common_.timeline.now();
  std::vector<Effect> effects = controller_->Step({now, now, body});
  Carry(std::move(effects), &body);
  return controller_ != nullptr && epoch == epoch_;
}

// Carries out the effects. The effects that must be stored come first, in one transaction. The server may be killed before or
// after this transaction.
void World::Carry(std::vector<Effect> effects, const EventBody* cause) {
  const WorldMistake mistake = common_.options.world_mistake;
  const bool early =
      (mistake == WorldMistake::kReplyBeforeCommit && cause != nullptr && std::holds_alternative<JobSubmitted>(*cause)) ||
      mistake == WorldMistake::kOrderBeforeCommit;
  const auto carry_all = [&] {
    for (Effect& effect : effects) {
      if (!IsDurable(effect)) CarryOne(effect);
    }
  };
  if (store_away_) return Keep(std::move(effects));
  if (stop_in_commit_ && !faults_over_) {
    const bool committed = stops_->Chance(0.5);
    if (committed) Commit(effects);
    return Sleep(std::move(effects), committed);
  }
  const double risk = faults_over_ ? 0 : (cause != nullptr && std::holds_alternative<JobSubmitted>(*cause) ? 0.1 : 0.0005);
  if (early) carry_all();
  if (common_.random.Chance(risk)) return CrashServer(Seconds(common_.random.Between(0.5, 10)));
  Commit(effects);
  if (common_.random.Chance(risk)) return CrashServer(Seconds(common_.random.Between(0.5, 10)));
  if (!early) carry_all();
}

void World::Commit(const std::vector<Effect>& effects) {
  for (const Effect& effect : effects) {
    const auto* cordon = std::get_if<PutCordon>(&effect);
    if (cordon == nullptr) continue;
    settings_.cordons.erase(cordon->node);
    if (cordon->cordon.has_value()) settings_.cordons[cordon->node] = *cordon->cordon;
  }
  CheckStore(effects);
  for (const Effect& effect : effects) {
    if (const auto* insert = std::get_if<InsertJob>(&effect)) {
      for (const auto& [id, stored] : store_) {
        if (stored.record.idempotency_key == insert->job.idempotency_key) {
          common_.Violation(absl::StrCat("two jobs with the idempotency key ", insert->job.idempotency_key));
        }
      }
      store_[insert->job.id].record = insert->job;
    } else if (const auto* update = std::get_if<UpdateJob>(&effect)) {
      if (store_.contains(update->job.id)) store_[update->job.id].record = update->job;
    } else if (const auto* plan = std::get_if<InsertPlan>(&effect)) {
      store_[plan->job].plan = plan->plan;
    } else if (const auto* event = std::get_if<InsertEvent>(&effect)) {
      common_.Tell(absl::StrCat("job ", event->job.value, " ", event->event.kind, ": ", event->event.reason));
      common_.outcome.replans += event->event.kind == "replanned" ? 1 : 0;
      if (event->event.sequence != ++store_[event->job].events) {
        common_.Violation(absl::StrCat("job ", event->job.value, " has a gap in its events before ", event->event.sequence));
      }
    } else if (const auto* drop = std::get_if<DeleteJob>(&effect)) {
      store_.erase(drop->job);
    } else if (const auto* node = std::get_if<PutNode>(&effect)) {
      std::erase(settings_.nodes, node->node);
      if (!node->forgotten) settings_.nodes.push_back(node->node);
    } else if (const auto* queue = std::get_if<PutQueue>(&effect)) {
      std::erase_if(settings_.queues, [&](const QueueConfig& known) { return known.name == queue->queue.name; });
      settings_.queues.push_back(queue->queue);
    }
  }
}

// Checks that every change of a job's state is explained in the same transaction, and that no job leaves a final state.
void World::CheckStore(const std::vector<Effect>& effects) {
  for (const Effect& effect : effects) {
    const auto* update = std::get_if<UpdateJob>(&effect);
    if (update == nullptr || !store_.contains(update->job.id)) continue;
    const JobRecord& before = store_.at(update->job.id).record;
    const JobRecord& after = update->job;
    if (after.generation < before.generation) {
      common_.Violation(absl::StrCat("job ", after.id.value, " goes back to generation ", after.generation.value));
    }
    if (after.generation > before.generation) {
      std::shared_ptr<const Plan> plan = store_.at(after.id).plan;
      for (const Effect& other : effects) {
        const auto* insert = std::get_if<InsertPlan>(&other);
        if (insert != nullptr && insert->job == after.id) plan = insert->plan;
      }
      CheckNewGeneration(after, *plan);
    }
    common_.outcome.preemptions += after.preemptions - before.preemptions;
    if (before.state == after.state) continue;
    if (IsFinal(before.state)) common_.Violation(absl::StrCat("job ", after.id.value, " goes on after its end"));
    bool explained = false;
    for (const Effect& other : effects) {
      const auto* event = std::get_if<InsertEvent>(&other);
      explained = explained || (event != nullptr && event->job == after.id && event->event.state == after.state &&
                                !event->event.reason.empty());
    }
    if (!explained) {
      common_.Violation(absl::StrCat("job ", after.id.value, " became ", EnumName(after.state), " without an event"));
    }
  }
}

void World::CarryOne(Effect& effect) {
  if (auto* worker = std::get_if<SendWorker>(&effect)) {
    ToNode(worker->stream, [this, desired = worker->desired](SimNode& node) { TakeWish(node, desired); });
  } else if (auto* agent = std::get_if<SendAgent>(&effect)) {
    ToNode(agent->stream, [this, desired = agent->desired](SimNode& node) {
      for (const LayerShape& shape : desired.shapes) {
        if (std::find(node.measured.begin(), node.measured.end(), shape) != node.measured.end()) continue;
        node.measured.push_back(shape);
        common_.timeline.After(Seconds(common_.random.Between(0.2, 2)), [this, &node] { ReportAgent(node); });
      }
    });
  } else if (auto* renew = std::get_if<RenewLease>(&effect)) {
    ToNode(renew->stream, [this, lease = renew->renewal](SimNode& node) {
      if (!node.worker_up) return;
      Renewal renewal{.report = lease.report,
                      .server_up = lease.server_up,
                      .isolated = lease.isolated,
                      .cut_off = lease.cut_off,
                      .more_witnesses = lease.more_witnesses};
      for (const RankAddress& witness : lease.witnesses) renewal.witnesses.push_back(witness.host);
      node.lease->Renewed(renewal, common_.timeline.now());
    });
  } else if (auto* close = std::get_if<CloseStream>(&effect)) {
    BreakStream(close->stream, false);
  } else if (auto* plan = std::get_if<PlanJob>(&effect)) {
    MakePlan(*plan);
  } else if (auto* reply = std::get_if<Reply>(&effect)) {
    const auto found = requests_.find(reply->request);
    if (found == requests_.end()) return;
    ClientJob& client = clients_[found->second];
    requests_.erase(found);
    if (common_.random.Chance(faults_over_ ? 0 : 0.2)) return;  // the answer is lost
    const bool depends = !client.spec.scheduling.after.empty();
    const auto never_comes = [&](const ClientJob& other) {
      return other.refused && other.spec.name == client.spec.scheduling.after.front();
    };
    if (depends && absl::IsNotFound(reply->status)) {  // the job does not exist yet
      client.refused = std::any_of(clients_.begin(), clients_.end(), never_comes);
      return;
    }
    client.refused = depends && absl::IsFailedPrecondition(reply->status);
    if (client.refused) return;
    if (absl::IsUnavailable(reply->status)) return;  // the store could not write; the client calls again
    if (!reply->status.ok()) return common_.Violation(absl::StrCat("refused: ", std::string(reply->status.message())));
    if (client.acknowledged.has_value() && *client.acknowledged != reply->job) {
      common_.Violation(
          absl::StrCat("the key ", client.key, " names jobs ", client.acknowledged->value, " and ", reply->job.value));
    }
    client.acknowledged = reply->job;
  }
}

void World::MakePlan(const PlanJob& ask) {
  const int64_t epoch = epoch_;
  PlanReady ready{.job = ask.job, .attempt = ask.attempt};
  const int32_t devices = ask.request.cluster.devices();
  Bytes memory = ask.request.cluster.groups.front().memory_per_device;
  for (const NodeGroup& group : ask.request.cluster.groups) memory = std::min(memory, group.memory_per_device);
  if (memory < Bytes(kLeastTaken) || common_.random.Chance(0.03)) {
    ready.result = Infeasible{.reason = "does not fit"};
  } else {
    ready.result = PlanFor(ask.request.spec, devices, memory, common_.random);
  }
  common_.timeline.After(Seconds(common_.random.Between(0.05, 3)), [this, epoch, ready] {
    if (epoch == epoch_) Give(ready);
  });
}

// ---- the network ----

void World::Dial(SimNode& node, bool worker) {
  int64_t& own = worker ? node.worker_stream : node.agent_stream;
  const bool up = node.powered && (worker ? node.worker_up : node.agent_up);
  if (!up || own != 0) return;
  const int64_t boots = node.boots;
  if (controller_ == nullptr || paused_ || node.cut_to_server || node.cut_from_server) {
    return common_.timeline.After(Seconds(common_.random.Between(0.5, 2)), [this, &node, worker, boots] {
      if (boots == node.boots) Dial(node, worker);
    });
  }
  own = ++last_stream_;
  streams_[own] = {.node = &node, .worker = worker, .epoch = epoch_};
  KeepAlive(own);
  worker ? Report(node) : ReportAgent(node);
}

// Sends a message to the server. Messages in one direction arrive in order. While this direction is cut, they wait.
void World::ToServer(int64_t stream, EventBody body) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  found->second.to_server.push_back(std::move(body));
  common_.timeline.After(Latency(found->second.to_server_free), [this, stream] { NextToServer(stream); });
}

// Returns the time until a message that is sent now arrives. `free`: when the previous message in this direction arrives;
// becomes the arrival of the new one, which is not earlier.
Nanos World::Latency(Nanos& free) {
  const Nanos now = common_.timeline.now();
  free = std::max(free, now + Seconds(common_.random.Between(0.001, common_.random.Chance(0.05) ? 2 : 0.05)));
  return free - now;
}

void World::NextToServer(int64_t stream) {
  const auto open = streams_.find(stream);
  if (open == streams_.end() || (controller_ == nullptr && !Sleeps()) || open->second.epoch != epoch_) return;
  if (open->second.node->cut_to_server) {
    return common_.timeline.After(Latency(open->second.to_server_free), [this, stream] { NextToServer(stream); });
  }
  EventBody body = std::move(open->second.to_server.front());
  open->second.to_server.pop_front();
  Give(std::move(body));
}

void World::ToNode(int64_t stream, std::function<void(SimNode&)> deliver) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  found->second.to_node.push_back(std::move(deliver));
  common_.timeline.After(Latency(found->second.from_server_free), [this, stream] { NextToNode(stream); });
}

void World::NextToNode(int64_t stream) {
  const auto open = streams_.find(stream);
  if (open == streams_.end()) return;
  SimNode& node = *open->second.node;
  if ((open->second.worker ? node.worker_stream : node.agent_stream) != stream) return;
  if (node.cut_from_server) {
    return common_.timeline.After(Latency(open->second.from_server_free), [this, stream] { NextToNode(stream); });
  }
  const std::function<void(SimNode&)> deliver = std::move(open->second.to_node.front());
  open->second.to_node.pop_front();
  deliver(node);
}

void World::BreakStream(int64_t stream, bool server_notices) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  const Stream broken = found->second;
  streams_.erase(found);
  SimNode& node = *broken.node;
  int64_t& own = broken.worker ? node.worker_stream : node.agent_stream;
  if (own == stream) {
    own = 0;
    const int64_t boots = node.boots;
    common_.timeline.After(Seconds(common_.random.Between(0.1, 2)), [this, &node, boots, worker = broken.worker] {
      if (boots == node.boots) Dial(node, worker);
    });
  }
  if (!server_notices || broken.epoch != epoch_) return;
  common_.timeline.After(Seconds(common_.random.Between(0.001, 0.5)), [this, broken, stream] {
    if (broken.epoch != epoch_) return;
    broken.worker ? Give(WorkerGone{stream}) : Give(AgentGone{stream});
  });
}

// Looks at the stream every kPatience / 2 seconds. Breaks it if one of its directions is cut at two looks in a row.
void World::KeepAlive(int64_t stream) {
  common_.timeline.After(Seconds(kPatience / 2), [this, stream] {
    const auto open = streams_.find(stream);
    if (open == streams_.end()) return;
    SimNode& node = *open->second.node;
    if (!node.cut_to_server && !node.cut_from_server) return KeepAlive(stream);
    common_.timeline.After(Seconds(kPatience / 2), [this, stream] {
      const auto still = streams_.find(stream);
      if (still == streams_.end()) return;
      const SimNode& cut = *still->second.node;
      if (cut.cut_to_server || cut.cut_from_server) return BreakStream(stream, true);
      KeepAlive(stream);
    });
  });
}

}  // namespace lynx::server::sim
