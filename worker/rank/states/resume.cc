#include "worker/rank/states/resume.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/status.h"
#include "worker/checkpoint/offline.h"
#include "worker/rank/states/checkpoint_writer.h"

namespace lynx::worker {
namespace {

constexpr int64_t kInitialStates = -1;

// The checkpoint that all ranks load next. Rank 0 sends it to the other ranks as plain bytes.
struct NextLoad {
  int64_t step = kInitialStates;
  int64_t start = 0;       // 1: load from checkpoint.from; 0: load from the job's own directory
  int64_t generation = 0;  // the generation that wrote the checkpoint
};

StartWith StartWithOf(const CheckpointSpec& checkpoint) {
  return checkpoint.weights_only ? StartWith::kWeights : StartWith::kAll;
}

// Returns the number of steps that are done after `next` has been loaded.
int64_t StepsDone(const CheckpointSpec& checkpoint, const NextLoad& next) {
  return next.start == 1 && StartWithOf(checkpoint) == StartWith::kWeights ? 0 : next.step;
}

// Rank 0 searches the checkpoint directory for states to resume from, or for the checkpoint with which the job begins.
class Search {
 public:
  static absl::StatusOr<Search> Begin(const RankConfig& config, const CheckpointIdentity& run) {
    Search search(config);
    const absl::Status claimed = ClaimDirectory(config.checkpoint_directory, run);
    if (absl::IsAlreadyExists(claimed)) return ReplacedError(config, claimed);
    LYNX_RETURN_IF_ERROR(claimed);
    LYNX_ASSIGN_OR_RETURN(std::vector<CheckpointSummary> found, ListCheckpoints(config.checkpoint_directory, &search.reasons_));
    for (const std::string& reason : search.reasons_) search.Tell(reason);
    for (CheckpointSummary& summary : found) {
      (summary.identity.job == run.job ? search.candidates_ : search.foreign_).push_back(std::move(summary));
    }
    // An unreadable checkpoint may belong to an earlier generation of this job. If so, the job is not new. In the first
    // generation there is no earlier one.
    const bool first = config.generation == Generation(1);
    search.anew_ = config.resume_step < 0 && search.candidates_.empty() && (first || search.reasons_.empty());
    search.starts_ = search.anew_ && !config.spec.checkpoint.from.empty();
    if (search.starts_) LYNX_RETURN_IF_ERROR(search.FindStarts());
    return search;
  }

  // Returns what to load next; kInitialStates means nothing, because the job is new. Returns an error if the job should have a
  // checkpoint but no usable one is left, or if CheckWayAhead or CheckStepsLeft fails.
  absl::StatusOr<NextLoad> Next() const {
    if (next_ < candidates_.size()) {
      const CheckpointIdentity& identity = candidates_[next_].identity;
      const NextLoad next{identity.step, starts_ ? 1 : 0, identity.generation.value};
      LYNX_RETURN_IF_ERROR(CheckWayAhead(StepsDone(config_->spec.checkpoint, next)));
      if (starts_) LYNX_RETURN_IF_ERROR(CheckStepsLeft(next));
      return next;
    }
    if (anew_ && !starts_) {
      LYNX_RETURN_IF_ERROR(CheckWayAhead(0));
      return NextLoad{};
    }
    const std::string where =
        starts_ ? absl::StrCat("checkpoint in ", config_->spec.checkpoint.from)
                : absl::StrCat("checkpoint of job ", config_->job.value, " in ", config_->checkpoint_directory);
    if (reasons_.empty()) {
      return absl::NotFoundError(absl::StrCat("there is no ", where, ", though one of step ", config_->resume_step,
                                              " was published; bring it back, or submit the job again"));
    }
    return absl::DataLossError(absl::StrCat("no ", where, " is whole: ", absl::StrJoin(reasons_, "; "),
                                            "; restore one from a copy, or submit the job again"));
  }

  void PassOver(const absl::Status& reason) {
    reasons_.push_back(std::string(reason.message()));
    Tell(absl::StrCat(candidates_[next_].path, ": ", reasons_.back()));
    ++next_;
  }

  const CheckpointSummary& Current() const { return candidates_[next_]; }

 private:
  explicit Search(const RankConfig& config) : config_(&config) {}

  absl::Status FindStarts() {
    absl::StatusOr<FoundCheckpoints> found = FindCheckpoints(config_->spec.checkpoint.from);
    if (!found.ok()) return Annotate(found.status(), "checkpoint.from");
    for (const std::string& reason : found->damaged) Tell(reason);
    candidates_ = std::move(found->checkpoints);
    reasons_ = std::move(found->damaged);
    return absl::OkStatus();
  }

  // Returns FailedPrecondition if this run will write a checkpoint of a step that already has a checkpoint of another job.
  absl::Status CheckWayAhead(int64_t steps_done) const {
    for (const CheckpointSummary& other : foreign_) {
      const int64_t step = other.identity.step;
      if (step <= steps_done || !WritesCheckpoint(config_->spec, step)) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(other.path, " is a checkpoint of another run, of job ", other.identity.job.value,
                       ", and this run will come to write one of that step; give each run its own "
                       "checkpoint.directory, or remove what is there"));
    }
    return absl::OkStatus();
  }

  // Returns FailedPrecondition if the checkpoint already has all steps of this run, so that the run would have nothing to do.
  absl::Status CheckStepsLeft(const NextLoad& start) const {
    const int64_t steps = config_->spec.train.steps;
    if (StepsDone(config_->spec.checkpoint, start) < steps) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("train.steps is ", steps, ", and ", Current().path, " has done as many; ask for more steps"));
  }

  static void Tell(const std::string& reason) { std::fprintf(stderr, "a checkpoint is passed over: %s\n", reason.c_str()); }

  const RankConfig* config_;
  std::vector<CheckpointSummary> candidates_;  // checkpoints to resume from, or to begin with; newest first
  std::vector<CheckpointSummary> foreign_;     // checkpoints of other jobs in the job's own directory
  std::vector<std::string> reasons_;           // for each rejected checkpoint, the reason
  bool anew_ = false;                          // true if the job has never had a checkpoint here
  bool starts_ = false;                        // true if checkpoint.from names the candidates
  size_t next_ = 0;                            // index of the next candidate
};

// True if the checkpoint is damaged, or if not every rank can see it. Then an older checkpoint is tried. Any other error would
// also happen with an older checkpoint.
bool IsLoss(const absl::Status& status) { return absl::IsDataLoss(status) || absl::IsNotFound(status); }

// Returns the result of rank 0's search on every rank: what to load next. `copies`: there is an in-memory checkpoint, so it is
// no error if no checkpoint on disk is whole.
absl::StatusOr<NextLoad> Agree(const std::optional<Search>& search, bool copies, const RankGroup& group) {
  NextLoad own;
  if (search.has_value()) {
    const absl::StatusOr<NextLoad> next = search->Next();
    if (!next.ok() && !(copies && IsLoss(next.status()))) return next.status();
    if (next.ok()) own = *next;
  }
  LYNX_ASSIGN_OR_RETURN(const std::vector<NextLoad> all, GatherValues(own, group));
  return all[0];
}

// True if the ranks should use the in-memory checkpoint and not the one on disk: it must be of a later step. Also, the
// checkpoint on disk must not be from a newer generation. If a generation has written a checkpoint, later steps of older
// generations are never used again.
bool Newer(const WholeCopies& copies, int64_t steps_done, const NextLoad& disk) {
  const bool older_line = disk.start == 0 && copies.identity.generation.value < disk.generation;
  return copies.identity.step > steps_done && !older_line;
}

// Loads this rank's part of the checkpoint. Returns the statuses of all ranks.
absl::StatusOr<std::vector<absl::Status>> LoadStep(const RankConfig& config, CheckpointIdentity identity, const NextLoad& next,
                                                   const RankGroup& group, ModelState& state) {
  identity.step = next.step;
  const int32_t tp_rank = CoordinatesOf(config.context.layout, config.rank).tp;
  const ReadShare share{group.rank, group.ranks};
  const CheckpointSpec& checkpoint = config.spec.checkpoint;
  return GatherStatuses(
      next.start == 1
          ? LoadStart(checkpoint.from, next.step, StartWithOf(checkpoint), identity, config.context, tp_rank, state, share)
          : LoadCheckpoint(config.checkpoint_directory, identity, config.context, tp_rank, state, share),
      group);
}

// Reports a checkpoint that the server may not know. Called on rank 0.
void ReportNewer(const RankConfig& config, const CheckpointSummary& found, ReportFile& reports) {
  if (found.identity.step <= config.resume_step) return;
  reports.Append(CheckpointReport{.step = found.identity.step, .path = found.path, .bytes = found.bytes});
}

}  // namespace

absl::Status ReplacedError(const RankConfig& config, const absl::Status& reason) {
  return absl::FailedPreconditionError(
      absl::StrCat("this run (generation ", config.generation.value, ") has been replaced: ", std::string(reason.message())));
}

absl::StatusOr<ResumePoint> LoadResumePoint(const RankConfig& config, const CheckpointIdentity& run, const RankGroup& group,
                                            CopyResume* copies, ModelState& state, ReportFile& reports) {
  std::optional<Search> search;
  if (group.rank == 0) {
    LYNX_ASSIGN_OR_RETURN(search, Search::Begin(config, run));
  }
  while (true) {
    const bool any_copies = copies != nullptr && copies->current().has_value();
    LYNX_ASSIGN_OR_RETURN(const NextLoad next, Agree(search, any_copies, group));
    if (any_copies && Newer(*copies->current(), StepsDone(config.spec.checkpoint, next), next)) {
      const int64_t step = copies->current()->identity.step;
      LYNX_ASSIGN_OR_RETURN(const bool loaded, copies->Load(run, state));
      if (loaded) return ResumePoint{step, true};
      continue;
    }
    if (next.step == kInitialStates) {
      if (copies == nullptr || !copies->touched()) return ResumePoint{};
      return absl::DataLossError("the copies in memory could not be loaded, and there is no checkpoint to go on from");
    }
    LYNX_ASSIGN_OR_RETURN(const std::vector<absl::Status> loaded, LoadStep(config, run, next, group, state));
    const absl::Status failure = FirstFailure(loaded);
    const auto may_pass = [](const absl::Status& status) { return status.ok() || IsLoss(status); };
    if (!std::all_of(loaded.begin(), loaded.end(), may_pass)) return failure;
    if (failure.ok()) {
      if (search.has_value() && next.start == 0) ReportNewer(config, search->Current(), reports);
      return ResumePoint{StepsDone(config.spec.checkpoint, next), false};
    }
    if (search.has_value()) search->PassOver(failure);
  }
}

}  // namespace lynx::worker
