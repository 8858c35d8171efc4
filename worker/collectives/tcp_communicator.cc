#include "worker/collectives/tcp_communicator.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/connection_secret.h"
#include "common/status.h"
#include "planner/problem/stage_context.h"
#include "worker/collectives/group.h"
#include "worker/collectives/wire.h"

namespace lynx::worker {
namespace {

absl::Status CheckOptions(const CommunicatorOptions& options) {
  const ParallelLayout& layout = options.layout;
  if (layout.tp < 1 || layout.pp < 1 || layout.dp < 1) {
    return absl::InvalidArgumentError(absl::StrCat("layout ", LayoutText(layout), " has a size below 1"));
  }
  if (layout.cp != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout ", LayoutText(layout), " has context parallelism, for which there are no groups yet"));
  }
  if (layout.ep < 1 || RanksOfStage(layout) % layout.ep != 0) {
    return absl::InvalidArgumentError(absl::StrCat("layout ", LayoutText(layout), " has expert groups of ", layout.ep,
                                                   " ranks, which do not divide the ", RanksOfStage(layout),
                                                   " ranks of a stage"));
  }
  if (ExpertGroups(layout, options.experts) && PipelineOf(layout).bidirectional()) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout ", LayoutText(layout), " has a bidirectional pipeline, in which there are no groups for experts"));
  }
  if (options.rank < 0 || options.rank >= layout.ranks()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " is not in 0..", layout.ranks() - 1, " of ", LayoutText(layout)));
  }
  if (static_cast<int64_t>(options.peers.size()) != layout.ranks()) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", options.peers.size(), " peer addresses for ", layout.ranks(),
                                                   " ranks of ", LayoutText(layout)));
  }
  if (!IsConnectionSecret(options.secret)) {
    return absl::InvalidArgumentError("the secret of the ranks' connections is not 64 hexadecimal digits");
  }
  if (options.job.value.size() > kMaxJobIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("job id of ", options.job.value.size(), " bytes; at most ", kMaxJobIdBytes, " are possible"));
  }
  return absl::OkStatus();
}

// Returns the ranks that are reached over a network. Ranks of the same host need no network, even if they belong to different
// nodes.
std::vector<int32_t> RanksElsewhere(const CommunicatorOptions& options) {
  std::vector<int32_t> ranks;
  const std::string& own = options.peers[static_cast<size_t>(options.rank)].host;
  for (size_t r = 0; r < options.peers.size(); ++r) {
    if (options.peers[r].host != own) ranks.push_back(static_cast<int32_t>(r));
  }
  return ranks;
}

}  // namespace

TcpCommunicator::TcpCommunicator(const CommunicatorOptions& options, std::vector<Link> links)
    : layout_(options.layout), rank_(options.rank), lanes_(options.layout, options.rank, options.experts) {
  if (links.empty()) {
    board_.ReleaseBuffers();
    return;
  }
  thread_ = std::make_unique<CommunicationThread>(CommunicationThreadOptions{.layout = options.layout,
                                                                             .experts = options.experts,
                                                                             .rank = options.rank,
                                                                             .idle_timeout = options.idle_timeout,
                                                                             .silence_limit = options.silence_limit,
                                                                             .progress_limit = options.progress_limit,
                                                                             .connect_timeout = options.connect_timeout,
                                                                             .elsewhere = RanksElsewhere(options)},
                                                  std::move(links), &board_);
}

absl::StatusOr<TransferTicket> TcpCommunicator::StartRing(const Route& route, OperationKind kind, Elements data,
                                                          int64_t count) {
  LYNX_CHECK(count >= 0 && (data.data != nullptr || count == 0));
  const int32_t lane = lanes_.Ring(route);
  if (lanes_.at(lane).members == 1) return board_.PostCompleted();
  return board_.Post({0, lane, kind, data, count});
}

absl::StatusOr<TransferTicket> TcpCommunicator::StartAllReduce(const Route& route, Elements data, int64_t count) {
  return StartRing(route, OperationKind::kAllReduce, data, count);
}

absl::StatusOr<TransferTicket> TcpCommunicator::StartAllGather(const Route& route, Elements data, int64_t count) {
  return StartRing(route, OperationKind::kAllGather, data, count);
}

absl::StatusOr<TransferTicket> TcpCommunicator::StartReduceScatter(const Route& route, Elements data, int64_t count) {
  return StartRing(route, OperationKind::kReduceScatter, data, count);
}

absl::StatusOr<TransferTicket> TcpCommunicator::StartAllToAll(const Route& route, ConstElements send, Elements receive,
                                                              int64_t count) {
  LYNX_CHECK(route.group == Group::kExpert && send.type == receive.type);
  LYNX_CHECK(count >= 0 && ((send.data != nullptr && receive.data != nullptr) || count == 0));
  const int32_t lane = lanes_.Ring(route);
  if (lanes_.at(lane).members > 1) return board_.Post({0, lane, OperationKind::kAllToAll, receive, count, send.data});
  if (count > 0) std::memcpy(receive.data, send.data, static_cast<size_t>(count * ElementBytes(send.type)));
  return board_.PostCompleted();
}

absl::StatusOr<TransferTicket> TcpCommunicator::StartTransfer(const Route& neighbour, Direction direction, Elements data,
                                                              int64_t count) {
  LYNX_CHECK(count >= 0 && (data.data != nullptr || count == 0));
  const int32_t lane = lanes_.Neighbour(neighbour, direction);
  if (lane < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(RankText(layout_, rank_), " has no ", GroupName(neighbour.group), " in ", LayoutText(layout_)));
  }
  return board_.Post({0, lane, OperationKind::kTransfer, data, count});
}

absl::StatusOr<TransferTicket> TcpCommunicator::StartSend(const Route& neighbour, ConstElements data, int64_t count) {
  // The cast is safe, because the communication thread only reads the buffer of a send.
  return StartTransfer(neighbour, Direction::kSendOnly, {const_cast<void*>(data.data), data.type}, count);
}

absl::StatusOr<TransferTicket> TcpCommunicator::StartRecv(const Route& neighbour, Elements data, int64_t count) {
  return StartTransfer(neighbour, Direction::kReceiveOnly, data, count);
}

absl::StatusOr<TransferTimes> TcpCommunicator::Wait(TransferTicket ticket) { return board_.Await(ticket); }

absl::Status TcpCommunicator::Barrier() {
  // A barrier is the sum of one element per rank. The sum is complete only when every rank has added its own element.
  barrier_value_ = 1;
  absl::StatusOr<TransferTicket> ticket = StartRing(Group::kWorld, OperationKind::kBarrier, &barrier_value_, 1);
  if (!ticket.ok()) return ticket.status();
  return board_.Await(*ticket).status();
}

void TcpCommunicator::Abort(const absl::Status& reason) {
  LYNX_CHECK(!reason.ok());
  board_.Fail(
      {reason, absl::UnavailableError(absl::StrCat(RankText(layout_, rank_), " gave up: ", std::string(reason.message())))});
}

void TcpCommunicator::SetIdleTimeout(Nanos idle_timeout) {
  if (thread_ != nullptr) thread_->SetIdleTimeout(idle_timeout);
}

void TcpCommunicator::SetProgressLimit(Nanos limit) {
  if (thread_ != nullptr) thread_->SetProgressLimit(limit);
}

int64_t TcpCommunicator::BytesSent() const { return thread_ == nullptr ? 0 : thread_->bytes_sent(); }

Nanos TcpCommunicator::ThreadCpuTime() const { return thread_ == nullptr ? Nanos(0) : thread_->CpuTime(); }

std::vector<LinkUse> TcpCommunicator::LinkUses() const {
  return thread_ == nullptr ? std::vector<LinkUse>() : thread_->LinkUses();
}

absl::StatusOr<std::unique_ptr<Communicator>> ConnectTcp(const CommunicatorOptions& options) {
  UniqueFd listener(options.listen_fd);
  LYNX_RETURN_IF_ERROR(CheckOptions(options));
  if (options.layout.ranks() == 1) return std::make_unique<TcpCommunicator>(options, std::vector<Link>());
  LYNX_ASSIGN_OR_RETURN(std::vector<Link> links, ConnectLinks(options, std::move(listener)));
  return std::make_unique<TcpCommunicator>(options, std::move(links));
}

}  // namespace lynx::worker
