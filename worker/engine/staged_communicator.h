// StagedCommunicator: transfers of a device's memory through memory of this process and a communicator that moves
// that. A start waits until the device has made what is sent; what comes back is there for all that is called on the
// backend after the wait. Sums of the world stay on the host, where they are made.
//
// Routes, order and errors are the inner communicator's, and so are threads; the backend is used by the thread of
// starts and waits. Staging memory is kept for the next step's transfers. Borrows both.
#ifndef LYNX_WORKER_ENGINE_STAGED_COMMUNICATOR_H_
#define LYNX_WORKER_ENGINE_STAGED_COMMUNICATOR_H_

#include <cstdint>
#include <map>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/collectives/communicator.h"

namespace lynx {

class StagedCommunicator : public Communicator {
 public:
  // For `rank` of a world laid out so.
  StagedCommunicator(const ParallelLayout& layout, int32_t rank, Communicator& inner, Backend& backend)
      : layout_(layout), rank_(rank), inner_(inner), backend_(backend) {}

  absl::StatusOr<TransferTicket> StartAllReduce(const Route& route, Elements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartAllGather(const Route& route, Elements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartReduceScatter(const Route& route, Elements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartSend(const Route& neighbour, ConstElements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartRecv(const Route& neighbour, Elements data, int64_t count) override;
  absl::StatusOr<TransferTimes> Wait(TransferTicket ticket) override;

  absl::Status Barrier() override { return inner_.Barrier(); }
  void Abort(const absl::Status& reason) override { inner_.Abort(reason); }
  absl::Status Failure() const override { return inner_.Failure(); }
  void SetIdleTimeout(Nanos idle_timeout) override { inner_.SetIdleTimeout(idle_timeout); }
  int64_t BytesSent() const override { return inner_.BytesSent(); }
  Nanos ThreadCpuTime() const override { return inner_.ThreadCpuTime(); }
  std::vector<LinkUse> LinkUses() const override { return inner_.LinkUses(); }

 private:
  using Staging = std::vector<char>;
  // A transfer under way: its staging memory, and where its result goes; null: there is none.
  struct Pending {
    Staging staging;
    void* result = nullptr;
  };

  int64_t MembersIn(Group group) const;
  // Staging memory of `bytes`, with what the device has at `from` unless that is null.
  absl::StatusOr<Staging> Stage(const void* from, int64_t bytes);
  absl::StatusOr<TransferTicket> Keep(absl::StatusOr<TransferTicket> ticket, Staging staging, void* result);

  const ParallelLayout layout_;
  const int32_t rank_;
  Communicator& inner_;
  Backend& backend_;
  std::map<int64_t, Pending> pending_;   // by ticket
  std::multimap<size_t, Staging> free_;  // by capacity
};

}  // namespace lynx

#endif  // LYNX_WORKER_ENGINE_STAGED_COMMUNICATOR_H_
