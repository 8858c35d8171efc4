#include "worker/engine/staged_communicator.h"

#include <utility>

#include "common/status.h"

namespace lynx::worker {

int64_t StagedCommunicator::MembersIn(Group group) const {
  return static_cast<int64_t>(MembersOf(layout_, rank_, group).ranks.size());
}

absl::StatusOr<StagedCommunicator::Staging> StagedCommunicator::Stage(const void* from, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  Staging staging;
  if (const auto kept = free_.lower_bound(size); kept != free_.end()) staging = std::move(free_.extract(kept).mapped());
  staging.resize(size);
  if (from == nullptr) return staging;
  backend_.Copy(from, Bytes(bytes), staging.data());
  LYNX_RETURN_IF_ERROR(backend_.Finish());
  return staging;
}

absl::StatusOr<TransferTicket> StagedCommunicator::Keep(absl::StatusOr<TransferTicket> ticket, Staging staging, void* result) {
  if (ticket.ok()) pending_[ticket->id] = {std::move(staging), result};
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
    backend_.Copy(done.staging.data(), Bytes(static_cast<int64_t>(done.staging.size())), done.result);
  }
  const size_t capacity = done.staging.capacity();
  free_.emplace(capacity, std::move(done.staging));
  return times;
}

}  // namespace lynx::worker
