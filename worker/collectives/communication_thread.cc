#include "worker/collectives/communication_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/collectives/socket_use.h"
#include "worker/contract/rank_progress.h"

namespace lynx::worker {
namespace {

// If a peer's data connection has ended, the peer may take this long to give the reason on its control connection.
constexpr Nanos kSuspicionLimit{1'000'000'000};
constexpr int64_t kSignsPerSilenceLimit = 20;
// The number of times that a lane may receive and send before the other lanes get their turn.
constexpr int kRoundsPerTurn = 8;
// The number of operations that a lane can hold before its queue grows.
constexpr size_t kLaneQueue = 256;

StreamPlan PlanOf(const Operation& operation, const LaneInfo& lane, int32_t step, StreamPlan used) {
  const int64_t element_bytes = ElementBytes(operation.data.type);
  switch (operation.kind) {
    case OperationKind::kAllReduce:
    case OperationKind::kBarrier:
      return PlanRingAllReduce(lane.members, lane.index, operation.count, element_bytes, std::move(used));
    case OperationKind::kAllGather:
      return PlanRingAllGather(lane.members, lane.index, operation.count, element_bytes, std::move(used));
    case OperationKind::kReduceScatter:
      return PlanRingReduceScatter(lane.members, lane.index, operation.count, element_bytes, std::move(used));
    case OperationKind::kAllToAll:
      return PlanAllToAllStep(lane.members, lane.index, step, operation.count, element_bytes, std::move(used));
    case OperationKind::kTransfer:
      return lane.direction == Direction::kSendOnly ? PlanSend(operation.count, element_bytes, std::move(used))
                                                    : PlanReceive(operation.count, element_bytes, std::move(used));
  }
  LYNX_CHECK(!"unknown operation kind");
  return {};
}

}  // namespace

CommunicationThread::CommunicationThread(const CommunicationThreadOptions& options, std::vector<Link> links,
                                         TransferBoard* board)
    : options_(options), board_(board), idle_timeout_ns_(options.idle_timeout.value),
      progress_limit_ns_(options.progress_limit.value), links_(std::move(links)),
      world_lane_(LaneTable(options.layout, options.rank, options.experts).Ring(Group::kWorld)),
      staging_(kCommunicatorStaging.value), awaited_(links_.size(), 1) {
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i].key.channel != Channel::kControl) continue;
    Peer peer;
    peer.rank = links_[i].key.peer;
    peer.control = static_cast<int32_t>(i);
    // A peer gives signs of life only after it has connected to all its own peers.
    peer.heard = MonotonicNow() + options.connect_timeout;
    peers_.push_back(peer);
  }
  const LaneTable table(options.layout, options.rank, options.experts);
  for (int32_t i = 0; i < table.size(); ++i) {
    Lane& lane = lanes_.emplace_back();
    lane.queue.reserve(kLaneQueue);
    lane.info = table.at(i);
    lane.out = FindLink(lane.info.out);
    lane.in = FindLink(lane.info.in);
    for (const LinkKey& link : lane.info.by_distance) lane.by_distance.push_back(FindLink(link));
  }
  // Blocks all signals in the new thread, so that the kernel delivers them to the threads that the program has made for
  // signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "lynx-comm");
}

CommunicationThread::~CommunicationThread() {
  board_->Stop();
  thread_.join();
}

void CommunicationThread::SetIdleTimeout(Nanos idle_timeout) {
  idle_timeout_ns_ = idle_timeout.value;
  board_->Wake();  // the thread may sleep as long as the old timeout allowed
}

void CommunicationThread::SetProgressLimit(Nanos limit) {
  progress_counts_from_ = MonotonicNow().value;
  progress_limit_ns_ = limit.value;
}

Nanos CommunicationThread::CpuTime() const {
  clockid_t clock;
  timespec spent{};
  const pthread_t handle = const_cast<std::thread&>(thread_).native_handle();
  LYNX_CHECK(pthread_getcpuclockid(handle, &clock) == 0 && clock_gettime(clock, &spent) == 0);
  return Nanos(int64_t{spent.tv_sec} * 1'000'000'000 + spent.tv_nsec);
}

int32_t CommunicationThread::FindLink(const std::optional<LinkKey>& key) const {
  if (!key) return -1;
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i].key == *key) return static_cast<int32_t>(i);
  }
  LYNX_CHECK(!"a connection is missing");
  return -1;
}

void CommunicationThread::Run() {
  while (true) {
    TakeOrders();
    if (stop_) {
      SayFarewell();
      return;
    }
    PollOnce();
  }
}

void CommunicationThread::TakeOrders() {
  board_->Take(orders_);
  stop_ |= orders_.stop;
  if (!orders_.failure_to_tell.ok() && !failed_) CloseAfterFailure(orders_.failure_to_tell);
  if (failed_) return;
  for (const Operation& operation : orders_.operations) lanes_[operation.lane].queue.push_back(operation);
  for (const Operation& operation : orders_.operations) {
    Lane& lane = lanes_[operation.lane];
    if (lane.exchange.has_value() || lane.queue.empty()) continue;
    StartNext(lane);
    Progress(lane);
    if (failed_) return;
  }
}

void CommunicationThread::StartNext(Lane& lane) {
  const Operation& operation = lane.queue.front();
  lane.number = lane.next_number++;
  lane.step = 1;
  if (operation.kind == OperationKind::kAllToAll && operation.count > 0) {
    const int64_t slot_bytes = operation.count * ElementBytes(operation.data.type), at = lane.info.index * slot_bytes;
    std::memcpy(static_cast<char*>(operation.data.data) + at, static_cast<const char*>(operation.source) + at,
                static_cast<size_t>(slot_bytes));
  }
  StartStep(lane);
}

void CommunicationThread::StartStep(Lane& lane) {
  const Operation& operation = lane.queue.front();
  char* const data = static_cast<char*>(operation.data.data);
  const char* const source = operation.source != nullptr ? static_cast<const char*>(operation.source) : data;
  if (!lane.by_distance.empty()) {
    lane.out = lane.by_distance[static_cast<size_t>(lane.step - 1)];
    lane.in = lane.by_distance[static_cast<size_t>(lane.info.members - lane.step - 1)];
  }
  lane.exchange.emplace(OperationHeader{operation.kind, lane.number, operation.count, operation.data.type},
                        PlanOf(operation, lane.info, lane.step, std::move(lane.used)), source, data, lane.info.direction);
  lane.last_progress = MonotonicNow();
}

void CommunicationThread::Progress(Lane& lane) {
  if (lane.stalled) return;
  for (int round = 0; round < kRoundsPerTurn && lane.exchange.has_value(); ++round) {
    IoResult sent, received;
    if (lane.out >= 0) {
      sent = lane.exchange->Send(links_[lane.out].stream);
      bytes_sent_.fetch_add(sent.bytes, std::memory_order_relaxed);
      if (!Accept(lane, lane.out, sent)) return;
    }
    if (lane.in >= 0) {
      received = lane.exchange->Receive(links_[lane.in].stream, staging_);
      if (!Accept(lane, lane.in, received)) return;
    }
    if (lane.exchange->done()) {
      FinishStep(lane);
      continue;
    }
    if (sent.state == IoState::kBlocked && received.state == IoState::kBlocked) return;
  }
}

bool CommunicationThread::Accept(Lane& lane, int32_t link, const IoResult& result) {
  switch (result.state) {
    case IoState::kBlocked: return true;
    case IoState::kMoved: lane.last_progress = MonotonicNow(); return true;
    case IoState::kLost:
      if (result.error == EBADMSG) {
        Forged(link, absl::StrCat(" during ", OperationText(lane)));
      } else {
        DataLinkLost(lane, link, result.error);
      }
      return false;
    case IoState::kMismatch: Mismatch(lane, link, result); return false;
  }
  return false;
}

void CommunicationThread::FinishStep(Lane& lane) {
  if (lane.step == 1) lane.started = lane.exchange->started();
  lane.used = lane.exchange->TakePlan();
  lane.exchange.reset();
  const bool last = lane.queue.front().kind != OperationKind::kAllToAll || lane.step == lane.info.members - 1;
  if (last) return FinishOperation(lane);
  ++lane.step;
  StartStep(lane);
}

void CommunicationThread::FinishOperation(Lane& lane) {
  const Operation operation = lane.queue.front();
  const TransferTimes times{lane.started, MonotonicNow()};
  lane.queue.erase(lane.queue.begin());
  if (&lane == &lanes_[static_cast<size_t>(world_lane_)]) TakeLinkUses();
  board_->Complete(operation.ticket, times);
  if (!lane.queue.empty()) StartNext(lane);
}

// Reads how much the links to other hosts were used. The communication thread reads these counters, because it is the thread
// that closes the connections.
void CommunicationThread::TakeLinkUses() {
  if (options_.elsewhere.empty()) return;
  std::vector<LinkUse> uses;
  for (const Link& link : links_) {  // sorted by peer
    if (!std::binary_search(options_.elsewhere.begin(), options_.elsewhere.end(), link.key.peer)) continue;
    if (uses.empty() || uses.back().peer != link.key.peer) uses.push_back({.peer = link.key.peer});
    const SocketUse use = UseOfSocket(link.stream.fd());
    uses.back().bytes += use.bytes;
    uses.back().busy = uses.back().busy + use.busy;
  }
  const std::lock_guard lock(link_uses_mutex_);
  link_uses_ = std::move(uses);
}

std::vector<LinkUse> CommunicationThread::LinkUses() const {
  const std::lock_guard lock(link_uses_mutex_);
  return link_uses_;
}

void CommunicationThread::PollOnce() {
  bool unread = false;  // bytes can be received without a look at a socket
  polled_.assign(1 + links_.size(), pollfd{-1, 0, 0});
  polled_[0] = {board_->wake_fd(), POLLIN, 0};
  if (!failed_) {
    for (size_t i = 0; i < links_.size(); ++i) polled_[1 + i].fd = -1;
    const auto watch = [&](int32_t link, short events) {
      polled_[1 + link].fd = links_[link].stream.fd();
      polled_[1 + link].events |= events;
    };
    for (const Peer& peer : peers_) {
      if (!peer.left) watch(peer.control, POLLIN);
    }
    for (const Lane& lane : lanes_) {
      if (!lane.exchange.has_value() || lane.stalled) continue;
      if (lane.exchange->CanSend()) watch(lane.out, POLLOUT);
      if (!lane.exchange->received()) {
        const LinkStream& in = links_[lane.in].stream;
        unread |= in.has_unread();
        AwaitBytes(lane.in, in.AwaitedOnWire(lane.exchange->Awaited()));
        watch(lane.in, POLLIN);
      }
    }
  }
  if (poll(polled_.data(), polled_.size(), unread ? 0 : PollTimeoutMs()) < 0) {
    LYNX_CHECK(errno == EINTR || errno == ENOMEM);
    return;
  }
  // If the process is stopped and continued after this line, `now` does not show the pause. The next turn notices the pause and
  // excuses the peers.
  const Nanos now = MonotonicNow();
  if (!failed_ && options_.silence_limit != Nanos(0)) GiveSignOfLife(now);
  // Control connections are read first, because a peer's own reason for its end counts more than the state of its data
  // connections.
  for (Peer& peer : peers_) {
    if (!failed_ && polled_[1 + peer.control].revents != 0) ReadControl(peer);
  }
  for (Lane& lane : lanes_) {
    if (failed_) return;
    const bool out_ready = lane.out >= 0 && polled_[1 + lane.out].revents != 0;
    const bool in_ready = lane.in >= 0 && (polled_[1 + lane.in].revents != 0 || links_[lane.in].stream.has_unread());
    if (lane.exchange.has_value() && (out_ready || in_ready)) Progress(lane);
  }
  if (!failed_) CheckDeadlines(now);
}

void CommunicationThread::AwaitBytes(int32_t link, int64_t bytes) {
  const int32_t value = static_cast<int32_t>(bytes);
  if (awaited_[link] == value) return;
  // setsockopt has no effect on a closed or failed connection, but poll() reports such a connection as readable in any case.
  setsockopt(links_[link].stream.fd(), SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value));
  awaited_[link] = value;
}

int CommunicationThread::PollTimeoutMs() const {
  if (failed_) return -1;
  constexpr int64_t kNever = INT64_MAX;
  int64_t earliest = kNever;
  for (const Peer& peer : peers_) {
    if (peer.suspect_since.value != 0) earliest = std::min(earliest, (peer.suspect_since + kSuspicionLimit).value);
  }
  if (const Nanos idle_timeout(idle_timeout_ns_.load()); idle_timeout.value > 0) {
    for (const Lane& lane : lanes_) {
      if (!lane.exchange.has_value()) continue;
      earliest = std::min(earliest, (lane.last_progress + idle_timeout).value);
    }
  }
  if (options_.silence_limit != Nanos(0)) earliest = std::min(earliest, next_sign_.value);
  if (earliest == kNever) return -1;
  const int64_t left_ms = (earliest - MonotonicNow().value) / 1'000'000 + 1;
  return static_cast<int>(std::clamp<int64_t>(left_ms, 0, 60'000));
}

void CommunicationThread::CheckDeadlines(Nanos now) {
  for (Peer& peer : peers_) {
    if (peer.suspect_since.value != 0 && now - peer.suspect_since >= kSuspicionLimit) {
      const absl::Status lost = absl::UnavailableError(peer.suspicion);
      return FailHere(lost, lost);
    }
  }
  for (const Peer& peer : peers_) {
    if (options_.silence_limit == Nanos(0) || peer.left || now - peer.heard < options_.silence_limit) continue;
    const absl::Status silent = absl::DeadlineExceededError(absl::StrCat(
        Name(peer.rank), " has given no sign of life for ", FormatDuration(options_.silence_limit), DuringText(peer)));
    return FailHere(silent, absl::UnavailableError(std::string(silent.message())));
  }
  if (CheckProgress()) return;
  const Nanos idle_timeout(idle_timeout_ns_.load());
  if (idle_timeout.value == 0) return;
  const auto idle_lane = [&](const Lane& lane) {
    return lane.exchange.has_value() && now - lane.last_progress >= idle_timeout;
  };
  for (Lane& lane : lanes_) {
    // Perhaps bytes have arrived, but too few to wake the thread up. Progress receives them.
    if (idle_lane(lane)) Progress(lane);
    if (failed_) return;
    if (!idle_lane(lane)) continue;
    const int32_t link = lane.exchange->received() || lane.in < 0 ? lane.out : lane.in;
    const absl::Status idle = absl::DeadlineExceededError(
        absl::StrCat("not a byte moved between ", Name(options_.rank), " and ", Name(links_[link].key.peer), " for ",
                     FormatDuration(idle_timeout), " during ", OperationText(lane)));
    return FailHere(idle, absl::UnavailableError(std::string(idle.message())));
  }
}

bool CommunicationThread::CheckProgress() {
  const Nanos limit(progress_limit_ns_.load()), counts_from(progress_counts_from_.load());
  if (limit.value == 0) return false;
  for (const Peer& peer : peers_) {
    if (peer.left || peer.progressed.value == 0) continue;
    // Time counts only until the newest sign of life: if signs are late, the progress after it is unknown.
    if (peer.heard - std::max(peer.progressed, counts_from) < limit + peer.progress.quiet) continue;
    const std::string during = DuringText(peer);
    if (during.empty()) continue;
    const absl::Status hangs = absl::DeadlineExceededError(
        absl::StrCat(Name(peer.rank), " lives, but has made no progress for ", FormatDuration(limit + peer.progress.quiet),
                     " while ", Name(options_.rank), " waits for it", during));
    FailHere(hangs, absl::UnavailableError(std::string(hangs.message())));
    return true;
  }
  return false;
}

void CommunicationThread::GiveSignOfLife(Nanos now) {
  if (now < next_sign_) return;
  const Nanos late = next_sign_ == Nanos(0) ? Nanos(0) : now - next_sign_;
  const Nanos interval = options_.silence_limit / kSignsPerSilenceLimit;
  if (late > interval * 2) Excuse(late, now);
  const RankProgress& own = OwnProgress();
  const Nanos quiet = own.quiet();  // before made()
  TellPeers({.kind = NoticeKind::kLives, .progress = {own.made(), quiet, board_->awaited()}});
  next_sign_ = now + interval;
}

void CommunicationThread::Excuse(Nanos gap, Nanos now) {
  for (Peer& peer : peers_) {
    peer.heard += gap;
    if (peer.progressed.value != 0) peer.progressed = std::min(peer.progressed + gap, now);
  }
  for (Lane& lane : lanes_) lane.last_progress = std::min(lane.last_progress + gap, now);
}

void CommunicationThread::ReadControl(Peer& peer) {
  char buffer[kNoticeHeadBytes + kMaxWireTextBytes];
  const ssize_t got = links_[peer.control].stream.Receive(buffer);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0 && errno == EBADMSG) return Forged(peer.control, "");
  if (got <= 0) return PeerClosed(peer, got < 0 ? errno : 0);
  peer.received.append(buffer, got);
  while (!failed_ && peer.received.size() >= kNoticeHeadBytes) {
    const std::optional<size_t> text_bytes = DecodeNoticeHead(peer.received);
    const size_t bytes = kNoticeHeadBytes + text_bytes.value_or(0);
    if (text_bytes && peer.received.size() < bytes) return;
    const std::optional<Notice> notice =
        text_bytes ? DecodeNotice(std::string_view(peer.received).substr(0, bytes)) : std::nullopt;
    if (!notice) {
      const absl::Status broken = absl::InternalError(
          absl::StrCat(Name(peer.rank), " sent something on its control connection that is not this protocol"));
      return FailHere(broken, absl::UnavailableError(std::string(broken.message())));
    }
    peer.received.erase(0, bytes);
    Heed(peer, *notice);
  }
}

void CommunicationThread::Heed(Peer& peer, const Notice& notice) {
  switch (notice.kind) {
    case NoticeKind::kLives:
      peer.heard = MonotonicNow();
      if (peer.progressed.value == 0 || notice.progress.waits || notice.progress.made != peer.progress.made) {
        peer.progressed = peer.heard;
      }
      peer.progress = notice.progress;
      return;
    case NoticeKind::kGivesUp: return FailHere(notice.reason, notice.reason);
    case NoticeKind::kLeaves:
      peer.left = true;
      if (peer.suspect_since.value != 0) PeerClosed(peer, 0);
      return;
  }
}

// The send buffer has room for the notice: only few bytes are sent on a control connection, and a peer that does not read them
// is soon considered lost. A peer that has left needs no notice.
void CommunicationThread::TellPeers(const Notice& notice) {
  const std::string bytes = EncodeNotice(notice);
  for (const Peer& peer : peers_) {
    if (!peer.left) links_[peer.control].stream.SendShort(bytes);
  }
}

// Sends the last notice, then reads all unread signs of life of the peers. If a connection is closed while it has unread bytes,
// the kernel resets it. If the last notice is lost on the network, a reset connection does not send it again, and the peer sees
// only a closed connection.
void CommunicationThread::TellLastWord(const Notice& notice) {
  TellPeers(notice);
  char unread[256];
  for (const Peer& peer : peers_) {
    while (recv(links_[peer.control].stream.fd(), unread, sizeof(unread), MSG_DONTWAIT) > 0) {}
  }
}

void CommunicationThread::PeerClosed(Peer& peer, int error) {
  const std::string text = peer.suspect_since.value != 0 ? peer.suspicion : LossText(peer, error);
  const absl::Status lost = absl::UnavailableError(peer.left ? absl::StrCat(text, "; it had said that it is done") : text);
  FailHere(lost, lost);
}

std::string CommunicationThread::LossText(const Peer& peer, int error) const {
  return absl::StrCat(Name(peer.rank),
                      error == 0 || error == ECONNRESET || error == EPIPE
                          ? std::string(" closed its connection")
                          : absl::StrCat(" is lost (", std::strerror(error), ")"),
                      DuringText(peer));
}

std::string CommunicationThread::DuringText(const Peer& peer) const {
  for (const Lane& lane : lanes_) {
    if (!lane.exchange.has_value()) continue;
    const auto leads_to_peer = [&](int32_t link) { return link >= 0 && links_[link].key.peer == peer.rank; };
    const bool all = lane.queue.front().kind == OperationKind::kAllToAll;  // then all members of the group are concerned
    const bool concerned = leads_to_peer(lane.out) || leads_to_peer(lane.in) ||
                           (all && std::any_of(lane.by_distance.begin(), lane.by_distance.end(), leads_to_peer));
    if (concerned) return absl::StrCat(" during ", OperationText(lane));
  }
  return "";
}

void CommunicationThread::DataLinkLost(Lane& lane, int32_t link, int error) {
  lane.stalled = true;
  Peer& peer = PeerOf(links_[link].key.peer);
  if (peer.suspect_since.value != 0) return;
  peer.suspect_since = MonotonicNow();
  peer.suspicion = LossText(peer, error);
  if (peer.left) PeerClosed(peer, error);
}

void CommunicationThread::Forged(int32_t link, const std::string& during) {
  const absl::Status forged = absl::UnavailableError(
      absl::StrCat("bytes from ", Name(links_[link].key.peer), " were changed, left out, repeated or moved on their way to ",
                   Name(options_.rank), during, ": a frame of their encrypted connection (",
                   ChannelName(links_[link].key.channel), ") is not authentic"));
  FailHere(forged, forged);
}

void CommunicationThread::Mismatch(const Lane& lane, int32_t link, const IoResult& result) {
  const std::string other = Name(links_[link].key.peer);
  if (result.garbage) {
    const absl::Status broken =
        absl::InternalError(absl::StrCat(other, " sent something that is not the start of an operation where ",
                                         Name(options_.rank), " expects ", OperationText(lane)));
    return FailHere(broken, absl::UnavailableError(std::string(broken.message())));
  }
  const OperationHeader& announced = result.announced;
  const absl::Status mismatch = absl::FailedPreconditionError(absl::StrCat(
      other, " started ", OperationKindName(announced.kind), " ", announced.number, " with ", announced.count, " elements of ",
      EnumName(announced.type), " where ", Name(options_.rank), " expects ", OperationText(lane), " with ",
      lane.queue.front().count, " elements of ", EnumName(lane.queue.front().data.type), "; the ranks run different programs"));
  FailHere(mismatch, mismatch);
}

void CommunicationThread::FailHere(const absl::Status& here, const absl::Status& told) {
  board_->Fail({here, told});
  // If Abort was called first, the peers are told the failure of Abort instead of this one. Take may also return a stop order
  // and consume its wake-up. Nothing wakes the thread again for this order, so `stop_` keeps it.
  TransferBoard::Orders orders;
  board_->Take(orders);
  stop_ |= orders.stop;
  CloseAfterFailure(orders.failure_to_tell);
}

void CommunicationThread::CloseAfterFailure(const absl::Status& told) {
  failed_ = true;
  TellLastWord({NoticeKind::kGivesUp, told});
  for (Lane& lane : lanes_) {
    lane.exchange.reset();
    lane.queue.clear();
  }
  for (Link& link : links_) link.stream.Close();
  board_->ReleaseBuffers();
}

void CommunicationThread::SayFarewell() {
  if (failed_) return;
  for (const Lane& lane : lanes_) {
    if (!lane.exchange.has_value()) continue;
    const absl::Status abandoned =
        absl::CancelledError(absl::StrCat(Name(options_.rank), " ended its communication during ", OperationText(lane)));
    return FailHere(abandoned, absl::UnavailableError(std::string(abandoned.message())));
  }
  TellLastWord({.kind = NoticeKind::kLeaves});
}

CommunicationThread::Peer& CommunicationThread::PeerOf(int32_t rank) {
  for (Peer& peer : peers_) {
    if (peer.rank == rank) return peer;
  }
  LYNX_CHECK(!"every data connection's peer has a control connection");
  return peers_.front();
}

std::string CommunicationThread::OperationText(const Lane& lane) const {
  const char* what = OperationKindName(lane.queue.front().kind);
  if (lane.info.direction == Direction::kSendOnly) what = "send";
  if (lane.info.direction == Direction::kReceiveOnly) what = "receive";
  return absl::StrCat(what, " ", lane.number, " ", lane.info.name);
}

}  // namespace lynx::worker
