// CopyResume resumes from the newest in-memory checkpoint. The ranks tell each other what their nodes have, and choose the same
// step (copies/copy_choice.h). Each node verifies the shards that it has. Then each rank loads what it needs, from its own node
// or from another one. Damaged shards are reported and not used.
//
// Collective; runs on the rank's compute thread.
#ifndef LYNX_WORKER_RANK_STATES_COPY_RESUME_H_
#define LYNX_WORKER_RANK_STATES_COPY_RESUME_H_

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/copies/copy_choice.h"
#include "worker/model/model_state.h"
#include "worker/rank/states/peer_copies.h"

namespace lynx::worker {

class CopyResume {
 public:
  // Collective. Returns errors of the communicator, and InvalidArgument if a node's list of copies cannot be parsed.
  static absl::StatusOr<std::unique_ptr<CopyResume>> Begin(const RankConfig& config, PeerCopies& copies, const RankGroup& group,
                                                           ReportFile& reports);

  // The newest in-memory checkpoint that is whole without the rejected shards; nullopt if there is none. It is the same on
  // every rank.
  const std::optional<WholeCopies>& current() const { return current_; }
  // Loads the current in-memory checkpoint into `state`. Returns true if it was loaded. If it could not be loaded, returns
  // false and rejects the damaged shards, or all its shards if it is not known which are damaged. Then current() may be
  // another checkpoint, or the same one from other nodes; touched() says whether `state` may have changed. Returns
  // FailedPrecondition if the checkpoint belongs to another run. Other errors are those of the communicator.
  absl::StatusOr<bool> Load(const CheckpointIdentity& run, ModelState& state);
  bool touched() const { return touched_; }

  // Records that the generation continues after `step` steps, from any source. In-memory checkpoints of older generations after
  // this step are then not used any more.
  void MarkResumed(int64_t step);

 private:
  CopyResume(const RankConfig& config, PeerCopies& copies, const RankGroup& group, ReportFile& reports)
      : config_(config), copies_(copies), seat_(group), reports_(reports) {}

  void Choose();
  // Verifies the shards on this rank's node. Returns the damaged shards of the current in-memory checkpoint on all nodes. The
  // result is the same on every rank.
  absl::StatusOr<std::set<PlacedCopy>> Verify();
  void Tell(const std::string& reason);

  const RankConfig& config_;
  PeerCopies& copies_;
  const RankGroup seat_;
  ReportFile& reports_;
  std::vector<NodeCopies> nodes_;
  std::set<PlacedCopy> damaged_;
  std::optional<WholeCopies> current_;
  bool touched_ = false;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_STATES_COPY_RESUME_H_
