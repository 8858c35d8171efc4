// Copy resume: the newest states that the nodes' memories hold together. The ranks tell one another what their nodes have,
// choose the same step (copies/copy_choice.h), verify it, each node what it has, and load it, each rank what it needs, from its
// own node or another's. What is damaged is told and passed over.
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

namespace lynx {

class CopyResume {
 public:
  // Errors are the communicator's.
  static absl::StatusOr<std::unique_ptr<CopyResume>> Begin(const RankConfig& config, PeerCopies& copies, const Seat& seat,
                                                           ReportFile& reports);

  // The newest that was not passed over; nothing: there is none. The same on every rank.
  const std::optional<WholeCopies>& current() const { return current_; }
  // Whether the current copies are loaded into `state`; if not, they are passed over, and where `state` may have changed,
  // touched() holds. FailedPrecondition when they are of another run; the communicator's errors.
  absl::StatusOr<bool> Load(const CheckpointIdentity& run, ModelState& state);
  bool touched() const { return touched_; }

  // The generation goes on after so many steps, from wherever: what older ones did after that does not count any more.
  void MarkResumed(int64_t step);

 private:
  CopyResume(const RankConfig& config, PeerCopies& copies, const Seat& seat, ReportFile& reports)
      : config_(config), copies_(copies), seat_(seat), reports_(reports) {}

  void Choose();
  // Damaged shards of the current copies, by node; on every rank.
  absl::StatusOr<std::set<PlacedCopy>> Verify();
  void Tell(const std::string& reason);

  const RankConfig& config_;
  PeerCopies& copies_;
  const Seat seat_;
  ReportFile& reports_;
  std::vector<NodeCopies> nodes_;
  std::set<PlacedCopy> damaged_;
  std::optional<WholeCopies> current_;
  bool touched_ = false;
};

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_STATES_COPY_RESUME_H_
