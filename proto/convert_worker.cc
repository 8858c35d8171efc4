// See convert_worker.h.
#include "proto/convert_worker.h"

#include <algorithm>

#include "common/connection_secret.h"
#include "common/status.h"
#include "proto/bounds.h"
#include "proto/convert_links.h"
#include "proto/convert_trace.h"
#include "proto/convert.h"

namespace lynx {
namespace {

constexpr size_t kMaxReasonLength = 64 * 1024;
constexpr int64_t kMaxTokens = int64_t{1} << 50;
constexpr int64_t kMaxGeneration = 1'000'000'000;
constexpr int64_t kMaxCore = 1 << 16;
constexpr int64_t kMaxDevices = 64;
constexpr size_t kMaxPeers = 4096;

void SetStep(const StepReport& step, v1::StepReport& m) {
  m.set_step(step.step);
  m.set_loss(step.loss);
  m.set_gradient_norm(step.gradient_norm);
  m.set_lr(step.lr);
  m.set_tokens(step.tokens);
  m.set_duration_ns(step.duration.value);
  m.set_forward_ns(step.forward.value);
  m.set_backward_ns(step.backward.value);
  m.set_weight_ns(step.weight.value);
  m.set_recompute_hidden_ns(step.recompute_hidden.value);
  m.set_recompute_exposed_ns(step.recompute_exposed.value);
  m.set_tensor_wait_ns(step.tensor_wait.value);
  m.set_stall_ns(step.stall.value);
  m.set_data_parallel_wait_ns(step.data_parallel_wait.value);
  m.set_norm_wait_ns(step.norm_wait.value);
  m.set_optimizer_ns(step.optimizer.value);
  m.set_data_wait_ns(step.data_wait.value);
  m.set_checkpoint_ns(step.checkpoint.value);
  m.set_arena_peak_bytes(step.arena_peak.value);
  m.set_bytes_sent(step.bytes_sent);
  m.set_communication_cpu_ns(step.communication_cpu.value);
  m.set_core_wait_ns(step.core_wait.value);
  m.set_copied_steps(step.copied_steps);
  m.set_copies_skipped(step.copies_skipped);
  for (const LinkUse& link : step.links) *m.add_links() = ToProto(link);
}

absl::StatusOr<StepReport> StepOf(const v1::StepReport& m, const std::string& path) {
  StepReport step{.step = m.step(), .loss = m.loss(), .gradient_norm = m.gradient_norm(), .lr = m.lr(),
                  .tokens = m.tokens(), .bytes_sent = m.bytes_sent(), .copied_steps = m.copied_steps(),
                  .copies_skipped = m.copies_skipped()};
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "step"), m.step(), 0, kMaxWireSteps));
  LYNX_RETURN_IF_ERROR(CheckFinite(FieldPath(path, "lr"), m.lr()));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "tokens"), m.tokens(), 0, kMaxTokens));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "bytes_sent"), m.bytes_sent(), 0, kMaxWireBytes));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "copied_steps"), m.copied_steps(), 0, kMaxWireSteps));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "copies_skipped"), m.copies_skipped(), 0, kMaxWireSteps));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "arena_peak_bytes"), m.arena_peak_bytes(), 0, kMaxWireBytes));
  step.arena_peak = Bytes(m.arena_peak_bytes());
  struct Time {
    const char* field;
    int64_t value;
    Nanos* to;
  };
  const Time times[] = {
      {"duration_ns", m.duration_ns(), &step.duration},
      {"forward_ns", m.forward_ns(), &step.forward},
      {"backward_ns", m.backward_ns(), &step.backward},
      {"weight_ns", m.weight_ns(), &step.weight},
      {"recompute_hidden_ns", m.recompute_hidden_ns(), &step.recompute_hidden},
      {"recompute_exposed_ns", m.recompute_exposed_ns(), &step.recompute_exposed},
      {"tensor_wait_ns", m.tensor_wait_ns(), &step.tensor_wait},
      {"stall_ns", m.stall_ns(), &step.stall},
      {"data_parallel_wait_ns", m.data_parallel_wait_ns(), &step.data_parallel_wait},
      {"norm_wait_ns", m.norm_wait_ns(), &step.norm_wait},
      {"optimizer_ns", m.optimizer_ns(), &step.optimizer},
      {"data_wait_ns", m.data_wait_ns(), &step.data_wait},
      {"checkpoint_ns", m.checkpoint_ns(), &step.checkpoint},
      {"communication_cpu_ns", m.communication_cpu_ns(), &step.communication_cpu},
      {"core_wait_ns", m.core_wait_ns(), &step.core_wait},
  };
  for (const Time& time : times) {
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, time.field), time.value, 0, kMaxWireNanos));
    *time.to = Nanos(time.value);
  }
  LYNX_ASSIGN_OR_RETURN(step.links, LinkUsesFromProto(m.links(), FieldPath(path, "links")));
  return step;
}

absl::StatusOr<RankReady> ReadyOf(const v1::RankReady& m, const std::string& path) {
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "next_step"), m.next_step(), 0, kMaxWireSteps));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "arena_bytes"), m.arena_bytes(), 0, kMaxWireBytes));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "state_bytes"), m.state_bytes(), 0, kMaxWireBytes));
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "backend"), m.backend().size(), 0, 256, "characters"));
  return RankReady{m.next_step(), Bytes(m.arena_bytes()), Bytes(m.state_bytes()), m.backend(),
                   m.from_copies()};
}

absl::StatusOr<CheckpointReport> CheckpointOf(const v1::CheckpointReport& m, const std::string& path) {
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "step"), m.step(), 0, kMaxWireSteps));
  LYNX_RETURN_IF_ERROR(CheckAbsolutePath(FieldPath(path, "path"), m.path()));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "bytes"), m.bytes(), 0, kMaxWireBytes));
  return CheckpointReport{m.step(), m.path(), Bytes(m.bytes())};
}

absl::StatusOr<std::vector<PeerAddress>> PeersOf(const v1::RankAssignment& m, int32_t ranks,
                                                 const std::string& path) {
  std::vector<PeerAddress> peers;
  if (m.peers_size() == 0) return peers;
  const size_t count = static_cast<size_t>(ranks);
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "peers"), m.peers().size(), count, count, "entries"));
  for (int i = 0; i < m.peers_size(); ++i) {
    const std::string at = FieldPath(path, "peers", i);
    LYNX_RETURN_IF_ERROR(CheckNumericHost(FieldPath(at, "host"), m.peers(i).host()));
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "port"), m.peers(i).port(), 1, 65535));
    peers.push_back({m.peers(i).host(), m.peers(i).port()});
  }
  return peers;
}

absl::StatusOr<StageContext> ContextOf(const v1::RankAssignment& m, const JobSpec& spec, const std::string& path) {
  StageContext context;
  context.model = spec.model;
  LYNX_ASSIGN_OR_RETURN(context.layout, FromProto(m.layout(), FieldPath(path, "layout")));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "rank"), m.rank(), 0, context.layout.ranks() - 1));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "micro_batch"), m.micro_batch(), 1, 1 << 20));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "microbatches"), m.microbatches(), 1, 1 << 20));
  const int64_t samples = int64_t{m.micro_batch()} * m.microbatches();
  if (samples * context.layout.dp != spec.train.global_batch) {
    return BadField(FieldPath(path, "microbatches"), absl::StrCat(m.microbatches()),
                    absl::StrCat("micro_batch * microbatches * dp must be the global batch, ",
                                 spec.train.global_batch));
  }
  context.micro_batch = m.micro_batch();
  context.microbatches = m.microbatches();
  context.pipeline_rank = CoordinatesOf(context.layout, m.rank()).stage;
  const PipelineShape pipeline = context.pipeline();
  const auto chunks = static_cast<size_t>(pipeline.chunks);
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "slices"), m.slices().size(), chunks, chunks, "entries"));
  for (int i = 0; i < m.slices_size(); ++i) {
    const v1::StageSlice& slice = m.slices(i);
    const std::string at = FieldPath(path, "slices", i);
    const int32_t stage = pipeline.StageOn(context.pipeline_rank, i);
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "stage"), slice.stage(), stage, stage));
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "end_layer"), slice.end_layer(), 0, spec.model.layers));
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "first_layer"), slice.first_layer(), 0, slice.end_layer()));
    context.slices.push_back(SliceOf(context.layout, stage, slice.first_layer(), slice.end_layer()));
  }
  return context;
}

absl::StatusOr<Program> ProgramOf(const v1::RankAssignment& m, const StageContext& context,
                                  const std::string& path) {
  absl::StatusOr<Program> program = ParseProgram(m.program());
  if (!program.ok()) return Annotate(program.status(), FieldPath(path, "program"));
  for (const Action& action : *program) {
    if (context.FindSlice(action.stage) != nullptr) continue;
    return BadField(FieldPath(path, "program"), absl::StrCat("of another stage at ", ActionText(action)),
                    absl::StrCat("rank ", m.rank(), " is rank ", context.pipeline_rank, " of the pipeline"));
  }
  return program;
}

}  // namespace

void SetReport(const RankReport& report, v1::RankReport& message) {
  if (const auto* ready = std::get_if<RankReady>(&report)) {
    v1::RankReady& m = *message.mutable_ready();
    m.set_next_step(ready->next_step);
    m.set_arena_bytes(ready->arena.value);
    m.set_state_bytes(ready->states.value);
    m.set_backend(ready->backend);
    m.set_from_copies(ready->from_copies);
  } else if (const auto* step = std::get_if<StepReport>(&report)) {
    SetStep(*step, *message.mutable_step());
  } else if (const auto* skipped = std::get_if<StepSkipped>(&report)) {
    message.mutable_skipped()->set_step(skipped->step);
    message.mutable_skipped()->set_reason(skipped->reason);
  } else if (const auto* evaluation = std::get_if<EvaluationReport>(&report)) {
    v1::EvaluationReport& m = *message.mutable_evaluation();
    m.set_step(evaluation->step);
    m.set_loss(evaluation->loss);
    m.set_tokens(evaluation->tokens);
    m.set_duration_ns(evaluation->duration.value);
  } else if (const auto* trace = std::get_if<TraceReport>(&report)) {
    v1::TraceReport& m = *message.mutable_trace();
    m.set_step(trace->step);
    m.set_actions(trace->actions);
    m.set_first(trace->first);
    m.mutable_times()->Add(trace->times.begin(), trace->times.end());
  } else if (const auto* checkpoint = std::get_if<CheckpointReport>(&report)) {
    v1::CheckpointReport& m = *message.mutable_checkpoint();
    m.set_step(checkpoint->step);
    m.set_path(checkpoint->path);
    m.set_bytes(checkpoint->bytes.value);
  } else if (const auto* failed = std::get_if<CheckpointFailure>(&report)) {
    message.mutable_checkpoint_failure()->set_step(failed->step);
    message.mutable_checkpoint_failure()->set_reason(failed->reason);
  } else if (const auto* done = std::get_if<RankDone>(&report)) {
    message.mutable_done()->set_steps(done->steps);
  } else if (const auto* yielded = std::get_if<RankYielded>(&report)) {
    message.mutable_yielded()->set_steps(yielded->steps);
  } else if (const auto* copies = std::get_if<CopiesNotice>(&report)) {
    message.mutable_copies()->set_reason(copies->reason);
  } else if (const auto* failure = std::get_if<RankFailure>(&report)) {
    message.mutable_failure()->set_reason(failure->reason);
    message.mutable_failure()->set_peer_lost(failure->peer_lost);
    message.mutable_failure()->set_cause(static_cast<v1::FaultCause>(failure->cause));
    message.mutable_failure()->mutable_peers()->Add(failure->peers.begin(), failure->peers.end());
  } else if (const auto* check = std::get_if<NodeCheckReport>(&report)) {
    v1::NodeCheckReport& m = *message.mutable_node_check();
    m.set_duration_ns(check->duration.value);
    m.set_devices(check->devices);
    m.set_links(check->links);
    m.set_slowest_bytes_per_second(check->slowest_bytes_per_second);
  }
}

absl::StatusOr<RankReport> ReportOf(const v1::RankReport& message, const std::string& path) {
  switch (message.report_case()) {
    case v1::RankReport::kReady:
      return ReadyOf(message.ready(), FieldPath(path, "ready"));
    case v1::RankReport::kStep:
      return StepOf(message.step(), FieldPath(path, "step"));
    case v1::RankReport::kCheckpoint:
      return CheckpointOf(message.checkpoint(), FieldPath(path, "checkpoint"));
    case v1::RankReport::kSkipped: {
      const std::string at = FieldPath(path, "skipped");
      const v1::StepSkipped& m = message.skipped();
      LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "step"), m.step(), 0, kMaxWireSteps));
      LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(at, "reason"), m.reason().size(), 0, kMaxReasonLength, "characters"));
      return StepSkipped{m.step(), m.reason()};
    }
    case v1::RankReport::kEvaluation: {
      const std::string at = FieldPath(path, "evaluation");
      const v1::EvaluationReport& m = message.evaluation();
      LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "step"), m.step(), 0, kMaxWireSteps));
      LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "tokens"), m.tokens(), 0, kMaxTokens));
      LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "duration_ns"), m.duration_ns(), 0, kMaxWireNanos));
      return EvaluationReport{m.step(), m.loss(), m.tokens(), Nanos(m.duration_ns())};
    }
    case v1::RankReport::kTrace: {
      const std::string at = FieldPath(path, "trace");
      const v1::TraceReport& m = message.trace();
      LYNX_RETURN_IF_ERROR(CheckTracePart(at, m));
      return TraceReport{m.step(), m.actions(), m.first(), {m.times().begin(), m.times().end()}};
    }
    case v1::RankReport::kCheckpointFailure: {
      const std::string at = FieldPath(path, "checkpoint_failure");
      const v1::CheckpointFailure& m = message.checkpoint_failure();
      LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "step"), m.step(), 0, kMaxWireSteps));
      LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(at, "reason"), m.reason().size(), 0, kMaxReasonLength, "characters"));
      return CheckpointFailure{m.step(), m.reason()};
    }
    case v1::RankReport::kDone:
      LYNX_RETURN_IF_ERROR(
          CheckRange(FieldPath(path, "done.steps"), message.done().steps(), 0, kMaxWireSteps));
      return RankDone{message.done().steps()};
    case v1::RankReport::kYielded:
      LYNX_RETURN_IF_ERROR(
          CheckRange(FieldPath(path, "yielded.steps"), message.yielded().steps(), 0, kMaxWireSteps));
      return RankYielded{message.yielded().steps()};
    case v1::RankReport::kFailure:
      LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "failure.reason"), message.failure().reason().size(), 0,
                                     kMaxReasonLength, "characters"));
      LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "failure.peers"), message.failure().peers().size(), 0, kMaxPeers, "entries"));
      for (int i = 0; i < message.failure().peers_size(); ++i) {
        LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "failure.peers", i), message.failure().peers(i), 0, kMaxWireRanks - 1));
      }
      return RankFailure{message.failure().reason(), message.failure().peer_lost(), FaultCauseOfNumber(message.failure().cause()),
                         {message.failure().peers().begin(), message.failure().peers().end()}};
    case v1::RankReport::kNodeCheck: {
      const std::string at = FieldPath(path, "node_check");
      const v1::NodeCheckReport& m = message.node_check();
      LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "duration_ns"), m.duration_ns(), 0, kMaxWireNanos));
      LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "devices"), m.devices(), 0, kMaxWireRanks));
      LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "links"), m.links(), 0, kMaxWireRanks * kMaxWireRanks));
      LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "slowest_bytes_per_second"), m.slowest_bytes_per_second(), 0, kMaxWireRate));
      return NodeCheckReport{Nanos(m.duration_ns()), m.devices(), m.links(), m.slowest_bytes_per_second()};
    }
    case v1::RankReport::kCopies:
      LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "copies.reason"), message.copies().reason().size(), 0,
                                     kMaxReasonLength, "characters"));
      return CopiesNotice{message.copies().reason()};
    case v1::RankReport::REPORT_NOT_SET:
      break;
  }
  return BadField(path, "empty or of an unknown kind", "must hold one report that this version knows");
}

absl::StatusOr<RankConfig> RankConfigFromProto(const v1::RankAssignment& message, const std::string& path) {
  RankConfig config;
  LYNX_RETURN_IF_ERROR(CheckName(FieldPath(path, "job_id"), message.job_id()));
  config.job = JobId(message.job_id());
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "generation"), message.generation(), 1, kMaxGeneration));
  config.generation = Generation(message.generation());
  absl::StatusOr<JobSpec> spec = FromProto(message.spec());
  if (!spec.ok()) return Annotate(spec.status(), FieldPath(path, "spec"));
  config.spec = *std::move(spec);
  LYNX_ASSIGN_OR_RETURN(config.context, ContextOf(message, config.spec, path));
  config.rank = message.rank();
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "device"), message.device(), 0, kMaxDevices - 1));
  config.device.index = message.device();
  LYNX_ASSIGN_OR_RETURN(config.device.kind, FromProto(message.device_kind(), FieldPath(path, "device_kind")));
  if (config.device.kind == DeviceKind::kAny) {
    return BadField(FieldPath(path, "device_kind"), "any", "must be cpu (1) or cuda (2)");
  }
  const size_t least = config.device.kind == DeviceKind::kCuda ? 1 : 0;
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "device_uuid"), message.device_uuid().size(), least, least * 128,
                                 least == 0 ? "characters for a CPU" : "characters for a GPU"));
  config.device.uuid = message.device_uuid();
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "cores"), message.cores().size(), 0, 1024, "entries"));
  for (int i = 0; i < message.cores_size(); ++i) {
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "cores", i), message.cores(i), 0, kMaxCore - 1));
    config.cores.push_back(message.cores(i));
  }
  LYNX_ASSIGN_OR_RETURN(config.program, ProgramOf(message, config.context, path));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "arena_bytes"), message.arena_bytes(), 0, kMaxWireBytes));
  config.arena = Bytes(message.arena_bytes());
  LYNX_RETURN_IF_ERROR(CheckDigest(FieldPath(path, "plan_digest"), message.plan_digest()));
  config.plan_digest = message.plan_digest();
  if (!IsConnectionSecret(message.connection_secret())) {  // itself it is not told
    return absl::InvalidArgumentError(absl::StrCat(FieldPath(path, "connection_secret"), " is not 64 hexadecimal digits (it has ",
                                                   message.connection_secret().size(),
                                                   " characters); server and nodes must be of the same release"));
  }
  config.connection_secret = message.connection_secret();
  LYNX_ASSIGN_OR_RETURN(config.peers, PeersOf(message, config.context.layout.ranks(), path));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "resume_step"), message.resume_step(), -1, kMaxWireSteps));
  config.resume_step = message.resume_step();
  config.check = message.check();
  if (!message.checkpoint_directory().empty()) {
    LYNX_RETURN_IF_ERROR(
        CheckAbsolutePath(FieldPath(path, "checkpoint_directory"), message.checkpoint_directory()));
  }
  config.checkpoint_directory = message.checkpoint_directory();
  return config;
}

}  // namespace lynx
