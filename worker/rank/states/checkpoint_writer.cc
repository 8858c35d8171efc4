#include "worker/rank/states/checkpoint_writer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "common/meminfo.h"
#include "common/status.h"
#include "worker/checkpoint/checkpoint_index.h"
#include "worker/checkpoint/shard.h"
#include "worker/contract/rank_progress.h"
#include "worker/rank/states/resume.h"

namespace lynx::worker {
namespace {

// The first and the longest pause between two attempts to write the last checkpoint. Each pause is twice the previous one, but
// at most kMaxPause.
constexpr Nanos kFirstPause{1'000'000'000};
constexpr Nanos kMaxPause{30'000'000'000};

}  // namespace

bool WritesCheckpoint(const JobSpec& spec, int64_t steps_done) {
  const int64_t every_steps = spec.checkpoint.every_steps;
  if (steps_done == spec.train.steps) return true;
  return every_steps > 0 && steps_done < spec.train.steps && steps_done % every_steps == 0;
}

CheckpointWriter::CheckpointWriter(const RankConfig& config, const CheckpointIdentity& run, const RankGroup& group,
                                   ModelState& state, ReportFile& reports)
    : config_(config), run_(run), seat_(group), coordinates_(CoordinatesOf(config.context.layout, config.rank)), state_(state),
      reports_(reports), shard_([] { return AvailableMemory(); }) {}

absl::Status CheckpointWriter::Write(int64_t steps_done) {
  LYNX_RETURN_IF_ERROR(ConcludePending());
  StartOwnShard(IdentityAt(steps_done));
  pending_ = steps_done;
  // Copying the states takes time, and writing a shard without a copy takes much more. All ranks wait here for the slowest one,
  // so that they do not wait for each other within a step.
  return seat_.communicator.Barrier();
}

absl::Status CheckpointWriter::Poll() {
  if (pending_ == 0) return absl::OkStatus();
  LYNX_ASSIGN_OR_RETURN(const std::vector<int32_t> done, GatherValues(shard_.Done() ? 1 : 0, seat_));
  if (std::find(done.begin(), done.end(), 0) != done.end()) return absl::OkStatus();
  return ConcludePending();
}

absl::Status CheckpointWriter::ConcludePending() {
  return pending_ == 0 ? absl::OkStatus() : ConcludeAt(std::exchange(pending_, 0)).status();
}

absl::StatusOr<bool> CheckpointWriter::ConcludeAt(int64_t steps_done) {
  LYNX_ASSIGN_OR_RETURN(const Outcome outcome, Conclude(IdentityAt(steps_done)));
  if (!outcome.failure.ok()) Report(steps_done, outcome.failure);
  return outcome.failure.ok();
}

absl::StatusOr<bool> CheckpointWriter::WriteNow(int64_t steps_done) {
  LYNX_RETURN_IF_ERROR(Write(steps_done));
  return ConcludeAt(std::exchange(pending_, 0));
}

absl::Status CheckpointWriter::WriteLast(int64_t steps_done) {
  LYNX_RETURN_IF_ERROR(ConcludePending());
  const CheckpointIdentity identity = IdentityAt(steps_done);
  // The waiting time is computed as the sum of the pauses and not measured, so that all ranks decide the same.
  Nanos waited;
  for (Nanos pause = kFirstPause;; pause = std::min(pause * 2, kMaxPause)) {
    StartOwnShard(identity);
    LYNX_ASSIGN_OR_RETURN(const Outcome outcome, Conclude(identity));
    if (outcome.failure.ok()) return absl::OkStatus();
    if (waited == Nanos(0)) Report(steps_done, outcome.failure);
    pause = std::min(pause, config_.last_checkpoint_patience - waited);
    if (pause <= Nanos(0)) {
      return absl::DataLossError(absl::StrCat("all ", steps_done, " steps are done, but their checkpoint could not be ",
                                              "written, nor in ", FormatDuration(waited),
                                              " of trying again: ", std::string(outcome.failure.message())));
    }
    const QuietWork sleeps(pause);
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause.value));
    waited += pause;
  }
}

CheckpointIdentity CheckpointWriter::IdentityAt(int64_t steps_done) const {
  CheckpointIdentity identity = run_;
  identity.step = steps_done;
  return identity;
}

absl::StatusOr<CheckpointWriter::Outcome> CheckpointWriter::Conclude(const CheckpointIdentity& identity) {
  LYNX_ASSIGN_OR_RETURN(const std::vector<absl::Status> written, GatherStatuses(FinishOwnShard(identity), seat_));
  // Even if a rank failed, all ranks have finished writing now. No rank writes again before rank 0 has reached the barrier
  // below.
  absl::Status failure = FirstFailure(written);
  if (failure.ok()) {
    const absl::Status own = seat_.rank == 0 ? Publish(identity) : absl::OkStatus();
    LYNX_ASSIGN_OR_RETURN(const std::vector<absl::Status> published, GatherStatuses(own, seat_));
    failure = published[0];
  }
  if (!failure.ok()) {
    if (seat_.rank == 0) DiscardCheckpoint(config_.checkpoint_directory, identity);
    // All ranks wait until rank 0 has removed the files. So no rank writes to the folder too early, and no rank waits for rank
    // 0 within a step.
    LYNX_RETURN_IF_ERROR(seat_.communicator.Barrier());
  }
  if (absl::IsAlreadyExists(failure)) return ReplacedError(config_, failure);
  if (absl::IsFailedPrecondition(failure)) return failure;
  return Outcome{failure};
}

void CheckpointWriter::StartOwnShard(const CheckpointIdentity& identity) {
  if (coordinates_.dp >= WritingReplicas(config_.context.layout)) return;
  std::vector<ParameterSlot> slots = WrittenSlots(config_.context, coordinates_.tp, coordinates_.dp, state_);
  SafetensorsHeader header = ShardHeader(identity, config_.context, coordinates_.tp, slots, /*weights_only=*/false);
  shard_.Start(std::move(header), ContentOf(state_, std::move(slots)),
               [this, identity](const SafetensorsHeader& header, const TensorContent& content) {
                 return WriteShard(config_.checkpoint_directory, identity, config_.context, coordinates_.tp, coordinates_.dp,
                                   header, content)
                     .status();
               });
}

absl::Status CheckpointWriter::FinishOwnShard(const CheckpointIdentity& identity) {
  const absl::Status status = shard_.Finish();
  if (!status.ok()) {
    std::fprintf(stderr, "step %lld: cannot write this rank's shard of the checkpoint: %s\n",
                 static_cast<long long>(identity.step), std::string(status.message()).c_str());
  }
  return status;
}

absl::Status CheckpointWriter::Publish(const CheckpointIdentity& identity) {
  const std::string& directory = config_.checkpoint_directory;
  LYNX_ASSIGN_OR_RETURN(const Bytes bytes, PublishCheckpoint(directory, identity));
  reports_.Append(CheckpointReport{.step = identity.step, .path = CheckpointPath(directory, identity.step), .bytes = bytes});
  PruneCheckpoints(directory, identity, config_.spec.checkpoint.keep);
  return absl::OkStatus();
}

void CheckpointWriter::Report(int64_t steps_done, const absl::Status& failure) {
  if (seat_.rank != 0) return;
  reports_.Append(CheckpointFailure{.step = steps_done, .reason = std::string(failure.message())});
}

}  // namespace lynx::worker
