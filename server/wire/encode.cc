// Encoding of the server's answers and desired states. See messages.h.
#include "proto/convert_worker.h"
#include "server/wire/messages.h"

namespace lynx::server {
namespace {

// The configuration that a rank gets when it must start.
RankConfig ConfigOf(const RankAssignment& assignment, const ConnectionKey& key) {
  const Plan& plan = *assignment.plan;
  const int32_t stage = CoordinatesOf(plan.layout, assignment.key.rank).stage;
  const StagePlan& part = plan.stages[static_cast<size_t>(stage)];
  RankConfig config{.job = assignment.key.job,
                    .generation = assignment.key.generation,
                    .rank = assignment.key.rank,
                    .spec = *assignment.spec,
                    .context = plan.ContextOf(stage),
                    .program = part.program,
                    .arena = part.arena,
                    .plan_digest = plan.digest,
                    .connection_secret = key.SecretOf(assignment.key.job, assignment.key.generation),
                    .checkpoint_directory = assignment.checkpoint_directory,
                    .resume_step = assignment.resume_step,
                    .check = assignment.check,
                    .encryption = assignment.encryption,
                    .device = {assignment.device_kind, assignment.device, assignment.device_uuid},
                    .cores = assignment.cores};
  // The plan may be for another skew than the job states (SkewOf in live_job.h). The skew affects only predicted times, so the
  // ranks get the job's skew. Then all plans of the job accept the same checkpoints.
  config.context.model.moe.skew = assignment.spec->model.moe.skew;
  for (const RankAddress& peer : *assignment.peers) config.peers.push_back({peer.host, peer.port});
  return config;
}

// The full assignment is sent only from the time when all peers are known until the rank has started. At other times only the
// rank's key, device and `yield` are sent, because desired states are sent with every acknowledgement and programs are long.
v1::RankAssignment EncodeAssignment(const RankAssignment& assignment, const ConnectionKey& key) {
  v1::RankAssignment m;
  if (assignment.peers != nullptr && !assignment.started) m = ToProto(ConfigOf(assignment, key));
  m.set_job_id(assignment.key.job.value);
  m.set_generation(assignment.key.generation.value);
  m.set_rank(assignment.key.rank);
  m.set_device(assignment.device);
  m.set_yield(assignment.yield);
  return m;
}

Nanos Eta(const JobRecord& job) {
  if (IsFinal(job.state)) return Nanos(0);
  const int64_t left = job.spec->train.steps - job.progress.steps_done;
  constexpr int64_t kMost = int64_t{1} << 62;
  if (left <= 0 || job.progress.step == Nanos(0)) return Nanos(0);
  return left > kMost / job.progress.step.value ? Nanos(kMost) : job.progress.step * left;
}

}  // namespace

v1::AgentDesired Encode(const AgentDesired& desired, Nanos heartbeat) {
  v1::AgentDesired m;
  for (const LayerShape& shape : desired.shapes) *m.add_shapes() = ToProto(shape);
  m.set_heartbeat_ns(heartbeat.value);
  return m;
}

v1::WorkerDesired Encode(const WorkerDesired& desired, Nanos heartbeat, const ConnectionKey& key) {
  v1::WorkerDesired m;
  for (const RankAssignment& rank : desired.ranks) *m.add_ranks() = EncodeAssignment(rank, key);
  for (const ReportAck& ack : desired.acks) {
    v1::ReportAck& to = *m.add_acks();
    to.set_job_id(ack.key.job.value);
    to.set_generation(ack.key.generation.value);
    to.set_rank(ack.key.rank);
    to.set_sequence(ack.sequence);
    to.set_released(ack.released);
  }
  for (const JobId& job : desired.ended) m.add_ended_jobs(job.value);
  m.set_heartbeat_ns(heartbeat.value);
  return m;
}

v1::WorkerDesired Encode(const LeaseRenewal& renewal) {
  v1::WorkerDesired m;
  v1::LeaseRenewal& to = *m.mutable_renewal();
  to.set_report(renewal.report);
  to.set_server_up_ns(renewal.server_up.value);
  to.set_isolated_ns(renewal.isolated.value);
  to.set_cut_off_ns(renewal.cut_off.value);
  to.set_more_witnesses(renewal.more_witnesses);
  for (const RankAddress& witness : renewal.witnesses) {
    v1::PeerAddress& address = *to.add_witnesses();
    address.set_host(witness.host);
    address.set_port(witness.port);
  }
  return m;
}

v1::JobState Encode(JobState state) {
  return static_cast<v1::JobState>(static_cast<int>(state) + static_cast<int>(v1::JOB_STATE_QUEUED));
}

v1::JobEvent Encode(const JobEvent& event) {
  v1::JobEvent m;
  m.set_sequence(event.sequence);
  m.set_time_unix_ns(event.time.value);
  m.set_state(Encode(event.state));
  m.set_kind(event.kind);
  m.set_reason(event.reason);
  return m;
}

void SetFigures(const JobRecord& job, v1::Job& message) {
  message.set_held(job.held);
  for (const JobId& id : job.waits_for) message.add_waits_for(id.value);
  message.set_trained_ns(job.trained.value);
  message.set_preemptions(job.preemptions);
  for (const NodeId& node : job.excluded) message.add_excluded_nodes(node.value);
  message.set_node_check_due(job.check_due);
  for (const MemoryLimit& limit : job.memory_limits) {
    v1::MemoryLimit& to = *message.add_memory_limits();
    to.set_device_model(limit.device_model);
    to.set_limit_bytes(limit.limit.value);
    to.set_times(limit.times);
  }
  message.set_device_kind(ToProto(job.device_kind));
  v1::Progress& progress = *message.mutable_progress();
  progress.set_steps_done(job.progress.steps_done);
  progress.set_steps_total(job.spec->train.steps);
  progress.set_loss(job.progress.loss);
  progress.set_first_loss(job.progress.first_loss);
  progress.set_gradient_norm(job.progress.gradient_norm);
  progress.set_lr(job.progress.lr);
  progress.set_tokens_per_second(job.progress.tokens_per_second);
  progress.set_step_ns(job.progress.step.value);
  progress.set_eta_ns(Eta(job).value);
  progress.set_first_step_time_unix_ns(job.progress.first_step_time.value);
  progress.set_validation_loss(job.progress.validation_loss);
  progress.set_validation_step(job.progress.validation_step);
  progress.set_expert_skew(job.progress.expert_skew);
  progress.set_expert_dropped_ratio(job.progress.expert_dropped);
  progress.set_expert_in_rounds_ratio(job.progress.expert_in_rounds);
  progress.set_expert_rounds(job.progress.expert_rounds);
  for (size_t stage = 0; stage < job.measured.size(); ++stage) {
    const StageMeasurement& from = job.measured[stage];
    v1::StageMeasurement& to = *message.add_measured();
    to.set_stage(static_cast<int32_t>(stage));
    to.set_steps(from.steps);
    to.set_step_ns(from.step.value);
    to.set_forward_ns(from.forward.value);
    to.set_backward_ns(from.backward.value);
    to.set_weight_ns(from.weight.value);
    to.set_optimizer_ns(from.optimizer.value);
    to.set_recompute_hidden_ns(from.recompute_hidden.value);
    to.set_recompute_exposed_ns(from.recompute_exposed.value);
    to.set_tensor_wait_ns(from.tensor_wait.value);
    to.set_stall_ns(from.stall.value);
    to.set_data_parallel_wait_ns(from.data_parallel_wait.value);
    to.set_norm_wait_ns(from.norm_wait.value);
    to.set_core_wait_ns(from.core_wait.value);
    to.set_arena_peak_bytes(from.arena_peak.value);
    to.set_state_bytes(from.states.value);
  }
}

void GetFigures(const v1::Job& message, JobRecord& job) {
  job.held = message.held();
  for (const std::string& id : message.waits_for()) job.waits_for.push_back(JobId(id));
  job.trained = Nanos(message.trained_ns());
  job.preemptions = message.preemptions();
  for (const std::string& node : message.excluded_nodes()) job.excluded.push_back(NodeId(node));
  job.check_due = message.node_check_due();
  for (const v1::MemoryLimit& from : message.memory_limits()) {
    job.memory_limits.push_back(
        {.device_model = from.device_model(), .limit = Bytes(from.limit_bytes()), .times = from.times()});
  }
  job.device_kind = FromProto(message.device_kind(), "device_kind").value_or(DeviceKind::kAny);
  const v1::Progress& progress = message.progress();
  job.progress = {.steps_done = progress.steps_done(),
                  .loss = progress.loss(),
                  .first_loss = progress.first_loss(),
                  .gradient_norm = progress.gradient_norm(),
                  .lr = progress.lr(),
                  .tokens_per_second = progress.tokens_per_second(),
                  .step = Nanos(progress.step_ns()),
                  .first_step_time = Nanos(progress.first_step_time_unix_ns()),
                  .validation_loss = progress.validation_loss(),
                  .validation_step = progress.validation_step(),
                  .expert_skew = progress.expert_skew(),
                  .expert_dropped = progress.expert_dropped_ratio(),
                  .expert_in_rounds = progress.expert_in_rounds_ratio(),
                  .expert_rounds = progress.expert_rounds()};
  job.measured.clear();
  for (const v1::StageMeasurement& from : message.measured()) {
    job.measured.push_back({.steps = from.steps(),
                            .step = Nanos(from.step_ns()),
                            .forward = Nanos(from.forward_ns()),
                            .backward = Nanos(from.backward_ns()),
                            .weight = Nanos(from.weight_ns()),
                            .optimizer = Nanos(from.optimizer_ns()),
                            .recompute_hidden = Nanos(from.recompute_hidden_ns()),
                            .recompute_exposed = Nanos(from.recompute_exposed_ns()),
                            .tensor_wait = Nanos(from.tensor_wait_ns()),
                            .stall = Nanos(from.stall_ns()),
                            .data_parallel_wait = Nanos(from.data_parallel_wait_ns()),
                            .norm_wait = Nanos(from.norm_wait_ns()),
                            .core_wait = Nanos(from.core_wait_ns()),
                            .arena_peak = Bytes(from.arena_peak_bytes()),
                            .states = Bytes(from.state_bytes())});
  }
}

v1::Job Encode(const JobRecord& job, const Plan* plan, PlanPrograms programs) {
  v1::Job m;
  m.set_id(job.id.value);
  m.set_owner(job.owner);
  *m.mutable_spec() = ToProto(*job.spec);
  m.set_state(Encode(job.state));
  m.set_reason(job.reason);
  m.set_submitted_unix_ns(job.submitted.value);
  m.set_started_unix_ns(job.started.value);
  m.set_ended_unix_ns(job.ended.value);
  m.set_generation(job.generation.value);
  m.set_restarts(job.restarts);
  SetFigures(job, m);
  if (plan != nullptr) *m.mutable_plan() = ToProto(*plan, programs);
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    v1::RankPlacement& rank = *m.add_placement();
    rank.set_rank(static_cast<int32_t>(r));
    rank.set_node(job.ranks[r].where.node.value);
    rank.set_device(job.ranks[r].where.device);
  }
  m.set_checkpoint_path(job.checkpoint_path);
  if (job.checkpoint_step >= 0) m.set_checkpoint_step(job.checkpoint_step);
  m.set_expected_start_unix_ns(job.expected_start.value);
  for (const PendingReason& reason : job.pending) {
    v1::PendingReason& to = *m.add_pending();
    to.set_kind(reason.kind);
    to.set_text(reason.text);
  }
  return m;
}

v1::Node Encode(const NodeView& node, ProfileShapes shapes) {
  v1::Node m;
  m.set_name(node.name.value);
  m.set_address(node.address);
  m.set_agent_attached(node.agent_attached);
  m.set_worker_attached(node.worker_attached);
  for (const Device& device : node.devices) {
    v1::Device& to = *m.add_devices();
    to.set_index(device.index);
    to.set_kind(EnumName(device.kind));
    to.set_model(device.model);
    to.set_memory_bytes(device.memory.value);
    for (const int32_t core : device.cores) to.add_cores(core);
    to.set_uuid(device.uuid);
    to.set_detail(device.detail);
  }
  m.set_network_domain(node.network_domain);
  m.set_agent_version(node.agent_version);
  m.set_worker_version(node.worker_version);
  m.set_devices_used(node.devices_used);
  m.set_last_seen_unix_ns(node.last_seen.value);
  if (node.profile != nullptr) *m.mutable_profile() = ToProto(*node.profile, shapes);
  for (const JobId& job : node.jobs) m.add_jobs(job.value);
  for (const ReportedCondition& condition : node.conditions) {
    v1::NodeCondition& to = *m.add_conditions();
    to.set_kind(condition.kind);
    to.set_device(condition.device);
    to.set_withdrawn(condition.withdrawn);
    to.set_message(condition.message);
    to.set_since_unix_ns(condition.since.value);
  }
  if (node.cordon.has_value()) {
    v1::Cordon& cordon = *m.mutable_cordon();
    cordon.set_reason(node.cordon->reason);
    cordon.set_drain(node.cordon->drain);
    cordon.set_deadline_unix_ns(node.cordon->deadline.value);
    cordon.set_since_unix_ns(node.cordon->since.value);
  }
  return m;
}

v1::Queue Encode(const QueueView& queue) {
  v1::Queue m;
  m.set_name(queue.config.name);
  m.set_weight(queue.config.weight);
  m.set_quota_devices(queue.config.quota);
  m.set_user_quota_devices(queue.config.user_quota);
  m.set_no_borrowing(!queue.config.may_borrow);
  m.set_waiting(queue.waiting);
  m.set_running(queue.running);
  m.set_devices_used(queue.devices);
  m.mutable_managers()->Add(queue.config.managers.begin(), queue.config.managers.end());
  return m;
}

v1::LogLine Encode(const LogLine& line) {
  v1::LogLine m;
  m.set_rank(line.rank);
  m.set_generation(line.generation.value);
  m.set_text(line.text);
  m.set_sequence(line.sequence);
  return m;
}

v1::JobCurves Encode(const JobCurves& curves) {
  v1::JobCurves m;
  for (const StepPoint& point : curves.steps()) {
    v1::StepPoint& to = *m.add_steps();
    to.set_generation(point.generation.value);
    to.set_first_step(point.first_step);
    to.set_steps(point.steps);
    to.set_time_unix_ns(point.time.value);
    to.set_loss(point.loss);
    to.set_tokens_per_second(point.tokens_per_second);
    to.set_step_ns(point.step.value);
    to.set_expert_skew(point.expert_skew);
    to.set_expert_dropped_ratio(point.expert_dropped);
    to.set_expert_in_rounds_ratio(point.expert_in_rounds);
  }
  for (const EvaluationPoint& point : curves.evaluations()) {
    v1::EvaluationPoint& to = *m.add_evaluations();
    to.set_steps_done(point.steps_done);
    to.set_loss(point.loss);
  }
  return m;
}

JobCurves Decode(const v1::JobCurves& message) {
  std::vector<StepPoint> steps;
  for (const v1::StepPoint& point : message.steps()) {
    steps.push_back({.generation = Generation(point.generation()),
                     .first_step = point.first_step(),
                     .steps = point.steps(),
                     .time = Nanos(point.time_unix_ns()),
                     .loss = point.loss(),
                     .tokens_per_second = point.tokens_per_second(),
                     .step = Nanos(point.step_ns()),
                     .expert_skew = point.expert_skew(),
                     .expert_dropped = point.expert_dropped_ratio(),
                     .expert_in_rounds = point.expert_in_rounds_ratio()});
  }
  std::vector<EvaluationPoint> evaluations;
  for (const v1::EvaluationPoint& point : message.evaluations()) evaluations.push_back({point.steps_done(), point.loss()});
  return JobCurves(std::move(steps), std::move(evaluations));
}

v1::StepTrace Encode(const StepTrace& trace) {
  v1::StepTrace message;
  message.set_generation(trace.generation.value);
  message.set_step(trace.step);
  message.set_plan_digest(trace.plan_digest);
  for (const std::vector<int64_t>& times : trace.stages) {
    message.add_stages()->mutable_times()->Add(times.begin(), times.end());
  }
  return message;
}

StepTrace Decode(const v1::StepTrace& message) {
  StepTrace trace{.generation = Generation(message.generation()), .step = message.step(), .plan_digest = message.plan_digest()};
  for (const v1::StageTimes& stage : message.stages()) trace.stages.emplace_back(stage.times().begin(), stage.times().end());
  return trace;
}

}  // namespace lynx::server
