#include "worker/rank/resume.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/status.h"
#include "worker/rank/checkpoint_writer.h"

namespace lynx {
namespace {

constexpr int64_t kInitialStates = -1;

// Rank 0's view of the directory.
class Search {
 public:
  static absl::StatusOr<Search> Begin(const RankConfig& config, const CheckpointIdentity& run) {
    Search search(config);
    const absl::Status claimed = ClaimDirectory(config.checkpoint_directory, run);
    if (absl::IsAlreadyExists(claimed)) return ReplacedError(config, claimed);
    LYNX_RETURN_IF_ERROR(claimed);
    LYNX_ASSIGN_OR_RETURN(std::vector<CheckpointSummary> found,
                          ListCheckpoints(config.checkpoint_directory, &search.reasons_));
    for (const std::string& reason : search.reasons_) search.Tell(reason);
    for (CheckpointSummary& summary : found) {
      (summary.identity.job == run.job ? search.own_ : search.foreign_).push_back(std::move(summary));
    }
    return search;
  }

  // The step to load next, or kInitialStates; an error when there is none and should be.
  absl::StatusOr<int64_t> Next() const {
    if (next_ < own_.size()) {
      const int64_t step = own_[next_].identity.step;
      LYNX_RETURN_IF_ERROR(CheckWayAhead(step));
      return step;
    }
    // What cannot be read may be this job's, unless this generation is its first.
    const bool first = config_->generation == Generation(1);
    if (config_->resume_step < 0 && own_.empty() && (first || reasons_.empty())) {
      LYNX_RETURN_IF_ERROR(CheckWayAhead(0));
      return kInitialStates;
    }
    const std::string where =
        absl::StrCat("checkpoint of job ", config_->job.value, " in ", config_->checkpoint_directory);
    if (reasons_.empty()) {
      return absl::NotFoundError(absl::StrCat("there is no ", where, ", though one of step ", config_->resume_step,
                                              " was published; bring it back, or submit the job again"));
    }
    return absl::DataLossError(absl::StrCat("no ", where, " is whole: ", absl::StrJoin(reasons_, "; "),
                                            "; restore one from a copy, or submit the job again"));
  }

  void PassOver(const absl::Status& reason) {
    reasons_.push_back(std::string(reason.message()));
    Tell(absl::StrCat(own_[next_].path, ": ", reasons_.back()));
    ++next_;
  }

  const CheckpointSummary& Current() const { return own_[next_]; }

 private:
  explicit Search(const RankConfig& config) : config_(&config) {}

  // FailedPrecondition when another job's checkpoint is in the way of one that this run will write.
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

  static void Tell(const std::string& reason) {
    std::fprintf(stderr, "a checkpoint is passed over: %s\n", reason.c_str());
  }

  const RankConfig* config_;
  std::vector<CheckpointSummary> own_, foreign_;  // newest first
  std::vector<std::string> reasons_;              // why those that are passed over are
  size_t next_ = 0;                               // of own_
};

// A damaged checkpoint, or one that not every rank can see; anything else would befall an older one as well.
bool IsLoss(const absl::Status& status) { return absl::IsDataLoss(status) || absl::IsNotFound(status); }

// The step to try next, on every rank what rank 0's search says.
absl::StatusOr<int64_t> AgreeOnStep(const std::optional<Search>& search, const Seat& seat) {
  int64_t own = kInitialStates;
  if (search.has_value()) {
    LYNX_ASSIGN_OR_RETURN(own, search->Next());
  }
  LYNX_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, GatherValues(own, seat));
  return steps[0];
}

// How each rank fared with its part of the checkpoint.
absl::StatusOr<std::vector<absl::Status>> LoadStep(const RankConfig& config, CheckpointIdentity identity,
                                                   int64_t step, const Seat& seat, ModelState& state) {
  identity.step = step;
  const int32_t tp_rank = CoordinatesOf(config.context.layout, config.rank).tp;
  const ReadShare share{seat.rank, seat.ranks};
  return GatherStatuses(LoadCheckpoint(config.checkpoint_directory, identity, config.context, tp_rank, state, share),
                        seat);
}

// On rank 0: news for the server.
void ReportNewer(const RankConfig& config, const CheckpointSummary& found, ReportFile& reports) {
  if (found.identity.step <= config.resume_step) return;
  reports.Append(CheckpointReport{.step = found.identity.step, .path = found.path, .bytes = found.bytes});
}

}  // namespace

absl::Status ReplacedError(const RankConfig& config, const absl::Status& reason) {
  return absl::FailedPreconditionError(absl::StrCat("this run (generation ", config.generation.value,
                                                    ") has been replaced: ", std::string(reason.message())));
}

absl::StatusOr<int64_t> LoadResumePoint(const RankConfig& config, const CheckpointIdentity& run, const Seat& seat,
                                        ModelState& state, ReportFile& reports) {
  std::optional<Search> search;
  if (seat.rank == 0) {
    LYNX_ASSIGN_OR_RETURN(search, Search::Begin(config, run));
  }
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const int64_t step, AgreeOnStep(search, seat));
    if (step == kInitialStates) return 0;
    LYNX_ASSIGN_OR_RETURN(const std::vector<absl::Status> loaded, LoadStep(config, run, step, seat, state));
    const absl::Status failure = FirstFailure(loaded);
    const auto may_pass = [](const absl::Status& status) { return status.ok() || IsLoss(status); };
    if (!std::all_of(loaded.begin(), loaded.end(), may_pass)) return failure;
    if (failure.ok()) {
      if (search.has_value()) ReportNewer(config, search->Current(), reports);
      return step;
    }
    if (search.has_value()) search->PassOver(failure);
  }
}

}  // namespace lynx
