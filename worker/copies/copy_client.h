// CopyClient sends shards to another rank's node and reads shards from that node. It closes the connection after each shard
// that it sends, because the other side closes connections that are idle for long. Only one thread may call it, except End,
// which any thread may call.
#ifndef LYNX_WORKER_COPIES_COPY_CLIENT_H_
#define LYNX_WORKER_COPIES_COPY_CLIENT_H_

#include <memory>
#include <mutex>
#include <span>

#include "absl/status/status.h"
#include "worker/copies/copy_link.h"

namespace lynx::worker {

class CopyClient {
 public:
  CopyClient(PeerAddress address, CopyEnds ends, int64_t pacing_bytes_per_second)
      : address_(std::move(address)), ends_(std::move(ends)), pacing_bytes_per_second_(pacing_bytes_per_second) {}

  // Sends the whole file of a shard. The other side may overwrite the file of the same shard of step `replaced_step` (-1: there
  // is no such file). Returns Unavailable, or the error of the other side. ResourceExhausted: the other side has no room.
  // FailedPrecondition: a newer generation has begun. DataLoss: the data differs from the record.
  absl::Status Put(const CopyKey& key, int64_t replaced_step, int fd, const ShardRecord& record);
  // Fills `out` with the shard's bytes from `offset` on. Errors: NotFound, DataLoss or Unavailable.
  absl::Status Get(const CopyKey& key, int64_t offset, std::span<char> out);
  // Ends the connection. A call that waits at this moment, and every later call, returns Unavailable.
  void End();

 private:
  absl::Status Connect();
  absl::Status Drop(const absl::Status& failure);
  absl::Status PutConnected(const CopyRequest& request, int fd, const std::string& sha256);
  absl::Status GetConnected(const CopyRequest& request, std::span<char> out);

  const PeerAddress address_;
  const CopyEnds ends_;
  const int64_t pacing_bytes_per_second_;
  std::mutex mutex_;
  std::shared_ptr<CopyLink> link_;  // only the owner's thread replaces it, with mutex_ held
  bool ended_ = false;              // guarded by mutex_
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPY_CLIENT_H_
