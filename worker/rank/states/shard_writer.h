// ShardWriter: writes a rank's shard of a checkpoint beside the steps that follow it. The states are copied, which is
// what training waits for; a thread of low priority writes the copy, makes it durable and verifies it.
//
//   Start (copies) -> Done? ... Done -> Finish (says how it went) -> Start ...
//
// The copy is as large as the shard and is kept for the next one. Where it would take more than half of the memory
// that the machine has left, nothing is copied, and the shard is written before Start returns.
//
// Owned by the rank's compute thread. The destructor gives up a shard that is being written; it waits for the one
// call to the disk that is under way.
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

namespace lynx {

class ShardWriter {
 public:
  using WriteFile = std::function<absl::Status(const SafetensorsHeader& header, const TensorContent& content)>;
  // What the machine has left; AvailableMemory unless a test says otherwise.
  using Available = std::function<Bytes()>;

  explicit ShardWriter(Available available);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // `write` writes the file that the header describes; it runs on the thread, and `content` gives Cancelled when it
  // shall give up. `content` of this call is read before it returns.
  void Start(SafetensorsHeader header, const TensorContent& content, WriteFile write);
  // After Start: whether Finish returns at once.
  bool Done() const { return done_.load(std::memory_order_acquire); }
  // Waits; what `write` returned, or why the states could not be copied.
  absl::Status Finish();
  // Whether the last Start copied the states.
  bool copied() const { return copied_; }

 private:
  absl::Status Copy(const SafetensorsHeader& header, const TensorContent& content);
  absl::StatusOr<std::span<const char>> TensorOfCopy(const SafetensorsHeader& header, size_t tensor) const;

  const Available available_;
  std::vector<char> copy_;
  bool copied_ = false;
  bool told_ = false;  // that there is no memory for a copy
  std::atomic<bool> done_ = true;
  std::atomic<bool> give_up_ = false;
  absl::Status status_;  // of the thread until done_
  std::thread thread_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_STATES_SHARD_WRITER_H_
