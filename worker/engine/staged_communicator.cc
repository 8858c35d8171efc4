#include "worker/engine/staged_communicator.h"

#include <utility>

#include "common/status.h"

namespace lynx::worker {

int64_t StagedCommunicator::MembersIn(Group group) const {
  return static_cast<int64_t>(MembersOf(layout_, rank_, group).ranks.size());
}

absl::StatusOr<StagedCommunicator::Staging> StagedCommunicator::Stage(const void* from, int64_t filled, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  Staging staging;
  if (const auto kept = free_.lower_bound(size); kept != free_.end()) staging = std::move(free_.extract(kept).mapped());
  staging.resize(size);
  if (from == nullptr) return staging;
  backend_.Copy(from, Bytes(filled), staging.data());
  LYNX_RETURN_IF_ERROR(backend_.Finish());
  return staging;
}

absl::StatusOr<TransferTicket> StagedCommunicator::Keep(absl::StatusOr<TransferTicket> ticket, Staging staging, void* result,
                                                        int64_t result_at) {
  if (ticket.ok()) pending_[ticket->id] = {std::move(staging), result, result_at};
  return ticket;
}

absl::StatusOr<TransferTicket> StagedCommunicator::StartAllReduce(const Route& route, Elements data, int64_t count) {
  if (route.group == Group::kWorld) return inner_.StartAllReduce(route, data, count);
  LYNX_ASSIGN_OR_RETURN(Staging staging, Stage(data.data, count * ElementBytes(data.type)));
  void* const staged = staging.data();
  return Keep(inner_.StartAllReduce(route, {staged, data.type}, count), std::move(staging), data.data);
}

absl::StatusOr<TransferTicket> StagedCommunicator::StartAllGather(const Route& route, Elements data, int64_t count) {
  if (route.group == Group::kWorld) return inner_.StartAllGather(route, data, count);
  LYNX_ASSIGN_OR_RETURN(Staging staging, Stage(data.data, MembersIn(route.group) * count * ElementBytes(data.type)));
  void* const staged = staging.data();
  return Keep(inner_.StartAllGather(route, {staged, data.type}, count), std::move(staging), data.data);
}

absl::StatusOr<TransferTicket> StagedCommunicator::StartReduceScatter(const Route& route, Elements data, int64_t count) {
  LYNX_ASSIGN_OR_RETURN(Staging staging, Stage(data.data, MembersIn(route.group) * count * ElementBytes(data.type)));
  void* const staged = staging.data();
  return Keep(inner_.StartReduceScatter(route, {staged, data.type}, count), std::move(staging), data.data);
}

// The staging memory has the slots to send, and then the slots to receive.
absl::StatusOr<TransferTicket> StagedCommunicator::StartAllToAll(const Route& route, ConstElements send, Elements receive,
                                                                 int64_t count) {
  const int64_t bytes = MembersIn(route.group) * count * ElementBytes(send.type);
  LYNX_ASSIGN_OR_RETURN(Staging staging, Stage(send.data, bytes, 2 * bytes));
  const Elements sent(staging.data(), send.type), received(staging.data() + bytes, receive.type);
  return Keep(inner_.StartAllToAll(route, sent, received, count), std::move(staging), receive.data, bytes);
}

absl::StatusOr<TransferTicket> StagedCommunicator::StartSend(const Route& neighbour, ConstElements data, int64_t count) {
  LYNX_ASSIGN_OR_RETURN(Staging staging, Stage(data.data, count * ElementBytes(data.type)));
  const Elements staged(staging.data(), data.type);
  return Keep(inner_.StartSend(neighbour, staged, count), std::move(staging), nullptr);
}

absl::StatusOr<TransferTicket> StagedCommunicator::StartRecv(const Route& neighbour, Elements data, int64_t count) {
  LYNX_ASSIGN_OR_RETURN(Staging staging, Stage(nullptr, count * ElementBytes(data.type)));
  void* const staged = staging.data();
  return Keep(inner_.StartRecv(neighbour, {staged, data.type}, count), std::move(staging), data.data);
}

absl::StatusOr<TransferTimes> StagedCommunicator::Wait(TransferTicket ticket) {
  LYNX_ASSIGN_OR_RETURN(const TransferTimes times, inner_.Wait(ticket));
  const auto at = pending_.find(ticket.id);
  if (at == pending_.end()) return times;  // the sums over all ranks are not staged
  Pending done = std::move(at->second);
  pending_.erase(at);
  if (done.result != nullptr) {
    const int64_t bytes = static_cast<int64_t>(done.staging.size()) - done.result_at;
    backend_.Copy(done.staging.data() + done.result_at, Bytes(bytes), done.result);
  }
  const size_t capacity = done.staging.capacity();
  free_.emplace(capacity, std::move(done.staging));
  return times;
}

}  // namespace lynx::worker
