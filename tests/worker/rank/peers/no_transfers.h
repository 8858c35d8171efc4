// NoTransfers is a Communicator that cannot transfer anything. It is for tests of code that only reads or sets values of a
// communicator. Test support.
#ifndef LYNX_TESTS_WORKER_RANK_PEERS_NO_TRANSFERS_H_
#define LYNX_TESTS_WORKER_RANK_PEERS_NO_TRANSFERS_H_

#include "worker/collectives/communicator.h"

namespace lynx::worker {

class NoTransfers : public Communicator {
 public:
  absl::StatusOr<TransferTicket> StartAllReduce(const Route&, Elements, int64_t) override { return None(); }
  absl::StatusOr<TransferTicket> StartAllGather(const Route&, Elements, int64_t) override { return None(); }
  absl::StatusOr<TransferTicket> StartReduceScatter(const Route&, Elements, int64_t) override { return None(); }
  absl::StatusOr<TransferTicket> StartAllToAll(const Route&, ConstElements, Elements, int64_t) override { return None(); }
  absl::StatusOr<TransferTicket> StartSend(const Route&, ConstElements, int64_t) override { return None(); }
  absl::StatusOr<TransferTicket> StartRecv(const Route&, Elements, int64_t) override { return None(); }
  absl::StatusOr<TransferTimes> Wait(TransferTicket) override { return None(); }
  absl::Status Barrier() override { return None(); }
  void Abort(const absl::Status&) override {}
  absl::Status Failure() const override { return absl::OkStatus(); }
  void SetIdleTimeout(Nanos) override {}
  int64_t BytesSent() const override { return 0; }
  Nanos ThreadCpuTime() const override { return Nanos(0); }

 private:
  static absl::Status None() { return absl::UnimplementedError("none"); }
};

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_RANK_PEERS_NO_TRANSFERS_H_
