// TcpCommunicator is the Communicator over TCP connections, with one communication thread. ring.h describes the algorithm.
// communication_thread.h describes how bytes move and how the ranks learn of failures.
//
// It allocates kCommunicatorStaging bytes, and a few small records for each pending operation.
#ifndef LYNX_WORKER_COLLECTIVES_TCP_COMMUNICATOR_H_
#define LYNX_WORKER_COLLECTIVES_TCP_COMMUNICATOR_H_

#include <memory>
#include <vector>

#include "worker/collectives/communication_thread.h"
#include "worker/collectives/communicator.h"
#include "worker/collectives/lanes.h"
#include "worker/collectives/tcp_connect.h"
#include "worker/collectives/transfer_board.h"

namespace lynx::worker {

class TcpCommunicator : public Communicator {
 public:
  TcpCommunicator(const CommunicatorOptions& options, std::vector<Link> links);

  absl::StatusOr<TransferTicket> StartAllReduce(const Route& route, Elements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartAllGather(const Route& route, Elements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartReduceScatter(const Route& route, Elements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartAllToAll(const Route& route, ConstElements send, Elements receive,
                                               int64_t count) override;
  absl::StatusOr<TransferTicket> StartSend(const Route& neighbour, ConstElements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartRecv(const Route& neighbour, Elements data, int64_t count) override;
  absl::StatusOr<TransferTimes> Wait(TransferTicket ticket) override;
  absl::Status Barrier() override;
  void Abort(const absl::Status& reason) override;
  absl::Status Failure() const override { return board_.failure(); }
  void SetIdleTimeout(Nanos idle_timeout) override;
  void SetProgressLimit(Nanos limit) override;
  int64_t BytesSent() const override;
  Nanos ThreadCpuTime() const override;
  std::vector<LinkUse> LinkUses() const override;

 private:
  absl::StatusOr<TransferTicket> StartRing(const Route& route, OperationKind kind, Elements data, int64_t count);
  absl::StatusOr<TransferTicket> StartTransfer(const Route& neighbour, Direction direction, Elements data, int64_t count);

  const ParallelLayout layout_;
  const int32_t rank_;
  const LaneTable lanes_;
  TransferBoard board_;
  float barrier_value_ = 0;                      // the element that a barrier sums
  std::unique_ptr<CommunicationThread> thread_;  // null if the world has only one rank
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_TCP_COMMUNICATOR_H_
