// CopyWriter: copies of a rank's states in memory, beside training. After a step the states are written to the node's memory,
// which is what training waits for; a thread of low priority then digests them, completes the copy there and sends it to a
// rank of another node.
//
//   step -> AfterStep (writes) -> step: Votes ... all are idle: the copy is whole everywhere, or failed -> AfterStep ...
//
// The ranks agree with the sums of each step: a copy begins after the same step on all of them, and only when the one before is
// over on all. So two files for each shard are enough: the newest copy that all know to be whole, and the one that is being
// written, in the place of the one before.
//
// Owned by the rank's compute thread; borrows what it is given.
#ifndef LYNX_WORKER_RANK_STATES_COPY_WRITER_H_
#define LYNX_WORKER_RANK_STATES_COPY_WRITER_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "common/clock.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/contract/rank_config.h"
#include "worker/engine/world_sum.h"
#include "worker/model/model_state.h"
#include "worker/rank/records/report_file.h"
#include "worker/rank/states/peer_copies.h"

namespace lynx {

class CopyWriter {
 public:
  // `copies`: null, none are made. `run`: the job's identity, whatever its step.
  CopyWriter(const RankConfig& config, const CheckpointIdentity& run, PeerCopies* copies, ModelState& state,
             ReportFile& reports, const Clock& clock);
  // Gives up a copy that is under way.
  ~CopyWriter();
  CopyWriter(const CopyWriter&) = delete;
  CopyWriter& operator=(const CopyWriter&) = delete;

  bool makes() const { return copies_ != nullptr && copies_->makes(); }
  // For Engine::SetCopyVotes.
  CopyVotes Votes() const;
  // After each step, with what all ranks said by its end. Begins a copy of the states after `steps_done` if one is due and all
  // want it. What goes wrong is told and reported once, and is no error.
  void AfterStep(int64_t steps_done, const CopyVotes& all);

  // There is a checkpoint of the very states with which the run ends: the job's copies here are worth nothing any more.
  void Drop();

  int64_t copied_steps() const { return whole_.value_or(0); }
  int64_t skipped() const { return skipped_; }

 private:
  CopyKey KeyOf(int64_t step) const;
  void Conclude(const CopyVotes& all);
  void Begin(int64_t steps_done);
  absl::StatusOr<OwnedFd> WriteStates(int64_t steps_done, std::optional<int64_t> replaced);
  absl::Status CompleteAndSend(int64_t steps_done, std::optional<int64_t> replaced, int fd);
  void Failed(int64_t steps_done, const absl::Status& failure);
  void EndThread();

  const RankConfig& config_;
  const CheckpointIdentity run_;
  PeerCopies* const copies_;
  CopyClient* const partner_;  // null: nothing is sent
  ModelState& state_;
  ReportFile& reports_;
  const Clock& clock_;

  std::optional<int64_t> whole_;    // steps done of the newest copy that all know to be whole
  std::optional<int64_t> spare_;    // of the one whose files may be written over
  std::optional<int64_t> pending_;  // of the one that is under way, or over with not all knowing
  int64_t not_before_step_ = 0;     // after a failure
  Nanos began_, waited_;            // of the newest copy: when, and how long training did
  bool replaced_ = false;           // a newer generation has begun
  bool told_ = false;               // of a failure
  bool first_whole_ = true;
  int64_t skipped_ = 0;

  std::thread thread_;
  std::atomic<bool> idle_ = true;
  std::atomic<int64_t> took_ns_ = 0;  // of the thread, until idle_
  absl::Status status_;               // of this rank's part, until idle_
};

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_STATES_COPY_WRITER_H_
