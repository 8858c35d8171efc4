// ShardWriter writes a rank's shard of a checkpoint while the next steps run. Training waits only until the states are copied.
// A thread of low priority writes the copy to disk, makes it durable and verifies it.
//
//   Start (copies) -> Done? ... Done -> Finish (returns the result) -> Start ...
//
// The copy is as large as the shard, and its memory is kept for the next shard. If the copy would need more new memory than
// half of the machine's available memory, nothing is copied, and Start writes the shard before it returns.
//
// The rank's compute thread owns it. The destructor abandons a shard that is being written; it waits only for the disk call
// that is in progress.
#ifndef LYNX_WORKER_RANK_STATES_SHARD_WRITER_H_
#define LYNX_WORKER_RANK_STATES_SHARD_WRITER_H_

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/units.h"
#include "worker/checkpoint/safetensors_file.h"

namespace lynx::worker {

class ShardWriter {
 public:
  using WriteFile = std::function<absl::Status(const SafetensorsHeader& header, const TensorContent& content)>;
  // Returns the machine's available memory. It is AvailableMemory unless a test replaces it.
  using Available = std::function<Bytes()>;

  explicit ShardWriter(Available available);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Begins to write a shard. `content` is read before Start returns. `write` writes the file that the header describes, on the
  // thread. The content that `write` gets returns Cancelled when the thread must stop.
  void Start(SafetensorsHeader header, const TensorContent& content, WriteFile write);
  // True if Finish would return at once. Call it after Start.
  bool Done() const { return done_.load(std::memory_order_acquire); }
  // Waits until the shard is written. Returns the result of `write`, or the reason why the states could not be copied.
  absl::Status Finish();
  // True if the last Start copied the states.
  bool copied() const { return copied_; }

 private:
  absl::Status Copy(const SafetensorsHeader& header, const TensorContent& content);
  absl::StatusOr<std::span<const char>> TensorOfCopy(const SafetensorsHeader& header, size_t tensor) const;

  const Available available_;
  std::vector<char> copy_;
  bool copied_ = false;
  bool told_ = false;  // true if the lack of memory for a copy was reported
  std::atomic<bool> done_ = true;
  std::atomic<bool> give_up_ = false;
  absl::Status status_;  // the result of the thread; valid when done_
  std::thread thread_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_STATES_SHARD_WRITER_H_
