#include "worker/rank/checkpoint_writer.h"

#include <cstdio>

#include "common/status.h"
#include "worker/rank/agreement.h"

namespace lynx {

CheckpointWriter::CheckpointWriter(const RankConfig& config, Communicator& communicator, ModelState& state,
                                   ReportFile& reports)
    : config_(config),
      coordinates_(CoordinatesOf(config.context.layout, config.rank)),
      communicator_(communicator),
      state_(state),
      reports_(reports) {}

absl::Status CheckpointWriter::Write(int64_t steps_done) {
  const CheckpointIdentity identity{.job = config_.job,
                                    .generation = config_.generation,
                                    .step = steps_done,
                                    .seed = config_.spec.train.seed,
                                    .model = config_.context.model,
                                    .layout = config_.context.layout};
  const int32_t ranks = config_.context.layout.ranks();
  LYNX_ASSIGN_OR_RETURN(const std::vector<absl::Status> written,
                        GatherStatuses(WriteOwnShard(identity), config_.rank, ranks, communicator_));
  if (const absl::Status failure = FirstFailure(written); !failure.ok()) {
    // No shard is being written any more, and none will be before rank 0 takes part in another step.
    if (config_.rank == 0) GiveUp(identity, failure);
    return absl::OkStatus();
  }
  const absl::Status own = config_.rank == 0 ? Publish(identity) : absl::OkStatus();
  LYNX_ASSIGN_OR_RETURN(const std::vector<absl::Status> published,
                        GatherStatuses(own, config_.rank, ranks, communicator_));
  if (absl::IsAlreadyExists(published[0])) {
    return absl::FailedPreconditionError(absl::StrCat("this run (generation ", config_.generation.value,
                                                      ") has been replaced: ", std::string(published[0].message())));
  }
  return absl::OkStatus();
}

absl::Status CheckpointWriter::WriteOwnShard(const CheckpointIdentity& identity) {
  if (coordinates_.dp != 0) return absl::OkStatus();
  const absl::Status status =
      WriteShard(config_.checkpoint_directory, identity, config_.context, coordinates_.tp, state_).status();
  if (!status.ok()) {
    std::fprintf(stderr, "step %lld: cannot write this rank's shard of the checkpoint: %s\n",
                 static_cast<long long>(identity.step), std::string(status.message()).c_str());
  }
  return status;
}

absl::Status CheckpointWriter::Publish(const CheckpointIdentity& identity) {
  const absl::StatusOr<Bytes> bytes =
      PublishCheckpoint(config_.checkpoint_directory, identity, config_.spec.checkpoint.keep);
  if (bytes.ok()) {
    reports_.Append(CheckpointReport{
        .step = identity.step, .path = CheckpointPath(config_.checkpoint_directory, identity.step), .bytes = *bytes});
  } else {
    GiveUp(identity, bytes.status());
  }
  return bytes.status();
}

void CheckpointWriter::GiveUp(const CheckpointIdentity& identity, const absl::Status& reason) {
  DiscardCheckpoint(config_.checkpoint_directory, identity);
  reports_.Append(CheckpointFailure{.step = identity.step, .reason = std::string(reason.message())});
}

}  // namespace lynx
