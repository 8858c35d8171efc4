// See convert_worker.h.
#include "proto/convert_worker.h"

#include <utility>

#include "common/connection_secret.h"
#include "common/status.h"
#include "planner/problem/batch_split.h"
#include "planner/problem/model_families.h"
#include "proto/bounds.h"
#include "proto/convert.h"
#include "proto/field_visitors.h"
#include "worker/contract/rank_config_fields.h"

namespace lynx {
namespace {

absl::Status CheckPeers(const std::vector<PeerAddress>& peers, int32_t ranks, const std::string& path) {
  if (peers.empty()) return absl::OkStatus();
  const size_t count = static_cast<size_t>(ranks);
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "peers"), peers.size(), count, count, "entries"));
  for (size_t i = 0; i < count; ++i) {
    const std::string at = FieldPath(path, "peers", static_cast<int64_t>(i));
    LYNX_RETURN_IF_ERROR(CheckNumericHost(FieldPath(at, "host"), peers[i].host));
  }
  return absl::OkStatus();
}

// Checks the context against the specification and the rank. Sets the fields of the context that follow from these two.
absl::Status CompleteContext(RankConfig& config, const std::string& path) {
  StageContext& context = config.context;
  context.model = config.spec.model;
  context.model.plan_only &= ~kLeftOutFeatures;  // ranks and their checkpoints have only features that are trained
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "rank"), config.rank, 0, context.layout.ranks() - 1));
  const BatchSplit split{config.spec.train.global_batch, context.layout.dp, context.micro_batch};
  if (!split.Possible()) {
    return BadField(FieldPath(path, "micro_batch"), absl::StrCat(context.micro_batch),
                    absl::StrCat("a global batch of ", split.global_batch, " gives dp ", split.replicas,
                                 " replicas fewer samples than one microbatch"));
  }
  if (split.microbatches() != context.microbatches) {
    return BadField(FieldPath(path, "microbatches"), absl::StrCat(context.microbatches),
                    absl::StrCat("must be ", split.microbatches(), ", which a global batch of ", split.global_batch,
                                 " needs with dp ", split.replicas, " and microbatches of ", split.micro_batch));
  }
  context.pipeline_rank = CoordinatesOf(context.layout, config.rank).stage;
  const PipelineShape pipeline = context.pipeline();
  const auto chunks = static_cast<size_t>(pipeline.chunks);
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "slices"), context.slices.size(), chunks, chunks, "entries"));
  for (int32_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
    StageSlice& slice = context.slices[static_cast<size_t>(chunk)];
    const std::string at = FieldPath(path, "slices", chunk);
    const int32_t stage = pipeline.StageOn(context.pipeline_rank, chunk);
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "stage"), slice.stage, stage, stage));
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "end_layer"), slice.end_layer, 0, config.spec.model.layers));
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(at, "first_layer"), slice.first_layer, 0, slice.end_layer));
    slice = SliceOf(context.layout, stage, slice.first_layer, slice.end_layer);
  }
  return absl::OkStatus();
}

absl::Status CheckDevice(const RankDevice& device, const std::string& path) {
  if (device.kind == DeviceKind::kAny) return BadField(FieldPath(path, "device_kind"), "any", "must be cpu (1) or cuda (2)");
  const size_t least = device.kind == DeviceKind::kCuda ? 1 : 0;
  return CheckSize(FieldPath(path, "device_uuid"), device.uuid.size(), least, least * 128,
                   least == 0 ? "characters for a CPU" : "characters for a GPU");
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

v1::RankAssignment ToProto(RankConfig config) {
  v1::RankAssignment message;
  MessageWriter writer(message);
  Describe(writer, config);
  *message.mutable_spec() = ToProto(config.spec);
  *message.mutable_layout() = ToProto(config.context.layout);
  message.set_program(ProgramText(config.program));
  return message;
}

absl::StatusOr<RankConfig> RankConfigFromProto(const v1::RankAssignment& message, const std::string& path) {
  RankConfig config;
  const auto place = [&] { return path; };
  MessageReader reader(message, place);
  Describe(reader, config);
  LYNX_RETURN_IF_ERROR(reader.status());
  LYNX_RETURN_IF_ERROR(CheckName(FieldPath(path, "job_id"), config.job.value));
  absl::StatusOr<JobSpec> spec = FromProto(message.spec());
  if (!spec.ok()) return Annotate(spec.status(), FieldPath(path, "spec"));
  config.spec = *std::move(spec);
  LYNX_ASSIGN_OR_RETURN(config.context.layout, FromProto(message.layout(), FieldPath(path, "layout")));
  LYNX_RETURN_IF_ERROR(CompleteContext(config, path));
  LYNX_RETURN_IF_ERROR(CheckDevice(config.device, path));
  LYNX_ASSIGN_OR_RETURN(config.program, ProgramOf(message, config.context, path));
  LYNX_RETURN_IF_ERROR(CheckDigest(FieldPath(path, "plan_digest"), config.plan_digest));
  if (!IsConnectionSecret(config.connection_secret)) {  // the error must not contain the secret
    return absl::InvalidArgumentError(absl::StrCat(FieldPath(path, "connection_secret"),
                                                   " is not 64 hexadecimal digits (it has ", config.connection_secret.size(),
                                                   " characters); server and nodes must be of the same release"));
  }
  LYNX_RETURN_IF_ERROR(CheckPeers(config.peers, config.context.layout.ranks(), path));
  if (!config.checkpoint_directory.empty()) {
    LYNX_RETURN_IF_ERROR(CheckAbsolutePath(FieldPath(path, "checkpoint_directory"), config.checkpoint_directory));
  }
  return config;
}

}  // namespace lynx
