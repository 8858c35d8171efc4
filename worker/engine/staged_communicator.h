// StagedCommunicator transfers device memory through host memory. It uses a communicator that transfers host memory. A call
// that starts a transfer waits until the device has computed the data to send. All work that is called on the backend after
// Wait sees the received data. The sums over all ranks are always in host memory and need no staging.
//
// Routes, order, errors and threads are those of the inner communicator. The thread that starts transfers and waits for them
// uses the backend. Staging memory is kept for the transfers of the next step. Borrows the inner communicator and the backend.
#ifndef LYNX_WORKER_ENGINE_STAGED_COMMUNICATOR_H_
#define LYNX_WORKER_ENGINE_STAGED_COMMUNICATOR_H_

#include <cstdint>
#include <map>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/collectives/communicator.h"

namespace lynx::worker {

class StagedCommunicator : public Communicator {
 public:
  // `layout`, `rank`: the layout of the world and this rank in it.
  StagedCommunicator(const ParallelLayout& layout, int32_t rank, Communicator& inner, Backend& backend)
      : layout_(layout), rank_(rank), inner_(inner), backend_(backend) {}

  absl::StatusOr<TransferTicket> StartAllReduce(const Route& route, Elements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartAllGather(const Route& route, Elements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartReduceScatter(const Route& route, Elements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartAllToAll(const Route& route, ConstElements send, Elements receive,
                                               int64_t count) override;
  absl::StatusOr<TransferTicket> StartSend(const Route& neighbour, ConstElements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartRecv(const Route& neighbour, Elements data, int64_t count) override;
  absl::StatusOr<TransferTimes> Wait(TransferTicket ticket) override;

  absl::Status Barrier() override { return inner_.Barrier(); }
  void Abort(const absl::Status& reason) override { inner_.Abort(reason); }
  absl::Status Failure() const override { return inner_.Failure(); }
  void SetIdleTimeout(Nanos idle_timeout) override { inner_.SetIdleTimeout(idle_timeout); }
  void SetProgressLimit(Nanos limit) override { inner_.SetProgressLimit(limit); }
  int64_t BytesSent() const override { return inner_.BytesSent(); }
  Nanos ThreadCpuTime() const override { return inner_.ThreadCpuTime(); }
  std::vector<LinkUse> LinkUses() const override { return inner_.LinkUses(); }

 private:
  using Staging = std::vector<char>;
  // A transfer in progress: its staging memory, the address to which its result must be copied (null: no copy is needed), and
  // the byte of the staging memory at which the result begins.
  struct Pending {
    Staging staging;
    void* result = nullptr;
    int64_t result_at = 0;
  };

  int64_t MembersIn(Group group) const;
  // Returns staging memory of `bytes` bytes. If `from` is not null, fills its first `filled` bytes from the device's memory at
  // `from`.
  absl::StatusOr<Staging> Stage(const void* from, int64_t filled, int64_t bytes);
  absl::StatusOr<Staging> Stage(const void* from, int64_t bytes) { return Stage(from, bytes, bytes); }
  absl::StatusOr<TransferTicket> Keep(absl::StatusOr<TransferTicket> ticket, Staging staging, void* result,
                                      int64_t result_at = 0);

  const ParallelLayout layout_;
  const int32_t rank_;
  Communicator& inner_;
  Backend& backend_;
  std::map<int64_t, Pending> pending_;   // the key is the ticket
  std::multimap<size_t, Staging> free_;  // staging memory that is not in use, by its capacity in bytes
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_STAGED_COMMUNICATOR_H_
