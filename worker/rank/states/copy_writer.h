// CopyWriter writes in-memory checkpoints of a rank's states while training continues. After a step, training waits only until
// the states are written to the node's memory. Then a thread of low priority computes the digest, completes the copy on this
// node and sends it to a rank of another node.
//
//   step -> AfterStep (writes) -> step: Votes ... all are idle: the checkpoint is whole everywhere, or failed -> AfterStep ...
//
// The ranks exchange their votes with the sums of each step. An in-memory checkpoint begins after the same step on all ranks,
// and only when all ranks have finished the previous one. So two files for each shard are enough. One belongs to the newest
// in-memory checkpoint that all ranks know to be whole. The other one is being written; it overwrites the file of an earlier
// checkpoint.
//
// The rank's compute thread owns it. It borrows its arguments.
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

namespace lynx::worker {

class CopyWriter {
 public:
  // `copies`: null if the rank makes no in-memory checkpoints. `run`: the job's identity; its step is not used.
  CopyWriter(const RankConfig& config, const CheckpointIdentity& run, PeerCopies* copies, ModelState& state,
             ReportFile& reports, const Clock& clock);
  // Abandons the in-memory checkpoint that is in progress, if there is one.
  ~CopyWriter();
  CopyWriter(const CopyWriter&) = delete;
  CopyWriter& operator=(const CopyWriter&) = delete;

  bool makes() const { return copies_ != nullptr && copies_->makes(); }
  // Returns the votes of this rank, for Engine::SetCopyVotes.
  CopyVotes Votes() const;
  // Call it after each step with the combined votes of all ranks at the end of that step. Begins an in-memory checkpoint of the
  // states after `steps_done` steps if one is due and all ranks want it. Writes each failure to stderr, and reports the first
  // one. A failure is not an error.
  void AfterStep(int64_t steps_done, const CopyVotes& all);

  // Removes the job's copies on this node. Call it when a checkpoint on disk has the run's final states, because the copies are
  // not needed any more.
  void Drop();

  int64_t copied_steps() const { return whole_.value_or(0); }
  int64_t skipped() const { return skipped_; }

 private:
  CopyKey KeyOf(int64_t step) const;
  void Conclude(const CopyVotes& all);
  void Begin(int64_t steps_done);
  absl::StatusOr<UniqueFd> WriteStates(int64_t steps_done, std::optional<int64_t> replaced);
  absl::Status CompleteAndSend(int64_t steps_done, std::optional<int64_t> replaced, int fd);
  void Failed(int64_t steps_done, const absl::Status& failure);
  void EndThread();

  const RankConfig& config_;
  const CheckpointIdentity run_;
  PeerCopies* const copies_;
  CopyClient* const partner_;  // null if this rank sends no shard
  ModelState& state_;
  ReportFile& reports_;
  const Clock& clock_;

  // Number of steps done at the newest in-memory checkpoint that all ranks know to be whole.
  std::optional<int64_t> whole_;
  // Number of steps done at the in-memory checkpoint whose file may be overwritten.
  std::optional<int64_t> spare_;
  // Number of steps done at the in-memory checkpoint that is in progress, or that may not be finished on all ranks.
  std::optional<int64_t> pending_;
  int64_t not_before_step_ = 0;  // no checkpoint begins before this step; set after a failure
  // When the newest in-memory checkpoint began, and how long training waited for it.
  Nanos began_, waited_;
  bool replaced_ = false;  // true if a newer generation has begun
  bool told_ = false;      // true if a failure was reported
  bool first_whole_ = true;
  int64_t skipped_ = 0;

  std::thread thread_;
  std::atomic<bool> idle_ = true;
  std::atomic<int64_t> took_ns_ = 0;  // time that the thread needed; valid when idle_
  absl::Status status_;               // the outcome of this rank's part; valid when idle_
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_STATES_COPY_WRITER_H_
