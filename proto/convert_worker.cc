// See convert_worker.h.
#include "proto/convert_worker.h"

#include <algorithm>

#include "common/connection_secret.h"
#include "common/status.h"
#include "proto/bounds.h"
#include "proto/convert.h"

namespace lynx {
namespace {

constexpr int64_t kMaxGeneration = 1'000'000'000;
constexpr int64_t kMaxCore = 1 << 16;
constexpr int64_t kMaxDevices = 64;

absl::StatusOr<std::vector<PeerAddress>> PeersOf(const v1::RankAssignment& m, int32_t ranks, const std::string& path) {
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
                    absl::StrCat("micro_batch * microbatches * dp must be the global batch, ", spec.train.global_batch));
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

absl::StatusOr<Program> ProgramOf(const v1::RankAssignment& m, const StageContext& context, const std::string& path) {
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
  if (!IsConnectionSecret(message.connection_secret())) {  // the text does not repeat the secret
    return absl::InvalidArgumentError(absl::StrCat(FieldPath(path, "connection_secret"),
                                                   " is not 64 hexadecimal digits (it has ", message.connection_secret().size(),
                                                   " characters); server and nodes must be of the same release"));
  }
  config.connection_secret = message.connection_secret();
  LYNX_ASSIGN_OR_RETURN(config.peers, PeersOf(message, config.context.layout.ranks(), path));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "resume_step"), message.resume_step(), -1, kMaxWireSteps));
  config.resume_step = message.resume_step();
  config.check = message.check();
  if (!message.checkpoint_directory().empty()) {
    LYNX_RETURN_IF_ERROR(CheckAbsolutePath(FieldPath(path, "checkpoint_directory"), message.checkpoint_directory()));
  }
  config.checkpoint_directory = message.checkpoint_directory();
  return config;
}

}  // namespace lynx
