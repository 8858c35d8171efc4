#include "worker/collectives/nccl_communicator.h"

#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/status.h"
#include "worker/collectives/bounded_call.h"
#include "worker/collectives/lanes.h"
#include "worker/collectives/nccl_line.h"

namespace lynx::worker {
namespace {

constexpr auto kWatchPeriod = std::chrono::milliseconds(10);
// If more time than this passes between two looks of the watch thread, the whole process was stopped.
constexpr Nanos kStandstill{2'000'000'000};
constexpr auto kPollPeriod = std::chrono::microseconds(100);
constexpr Nanos kFarewellLimit{10'000'000'000};  // the time that the peers have to receive all that was sent
// The time in which NCCL must end a communicator after it was told to abort. It is shorter if the limit for connecting is
// shorter.
constexpr Nanos kAbortLimit{10'000'000'000};
constexpr size_t kFirstSlots = 256;

absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("CUDA: ", what, ": ", cudaGetErrorString(error)));
}

// Makes NCCL create all connections when a communicator is made. Must run before the first call of NCCL. Otherwise NCCL creates
// some connections at the first transfer, and blocks the host until the peer issues that transfer too. Then two ranks that
// issue transfers of two routes in different orders would wait for each other.
void ConnectBeforehand() {
  static const int set = setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
  LYNX_CHECK(set == 0);
}

absl::Status CheckOptions(const NcclOptions& options) {
  if (options.min_ctas >= 0 && options.max_ctas >= 0 &&
      (options.min_ctas == 0 || options.max_ctas == 0 || options.min_ctas <= options.max_ctas)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("NCCL cannot use from ", options.min_ctas, " to ", options.max_ctas,
                   " thread blocks for a transfer; give two numbers in order, or 0 where it is to choose"));
}

// Ends and destroys communicators whose work is done. If one cannot be ended, all are aborted.
absl::Status EndAll(int device, const std::vector<ncclComm_t>& comms) {
  cudaSetDevice(device);
  absl::Status status;
  for (ncclComm_t comm : comms) {
    if (status.ok()) status = StatusOf(ncclCommFinalize(comm), "ending");
  }
  if (status.ok()) {
    for (ncclComm_t comm : comms) status.Update(StatusOf(ncclCommDestroy(comm), "ending"));
    return status;
  }
  ncclGroupStart();
  for (ncclComm_t comm : comms) ncclCommAbort(comm);
  ncclGroupEnd();
  return status;
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(const NcclOptions& options, Communicator& host, Backend& backend)
      : options_(options), lanes_(options.layout, options.rank, options.experts), host_(host), backend_(backend),
        idle_timeout_ns_(options.idle_timeout.value), slots_(kFirstSlots) {}
  ~NcclCommunicator() override;

  // Creates all lines. Call it once, before everything else.
  absl::Status Connect();

  absl::StatusOr<TransferTicket> StartAllReduce(const Route& route, Elements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartAllGather(const Route& route, Elements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartReduceScatter(const Route& route, Elements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartAllToAll(const Route& route, ConstElements send, Elements receive,
                                               int64_t count) override;
  absl::StatusOr<TransferTicket> StartSend(const Route& neighbour, ConstElements data, int64_t count) override;
  absl::StatusOr<TransferTicket> StartRecv(const Route& neighbour, Elements data, int64_t count) override;
  absl::StatusOr<TransferTimes> Wait(TransferTicket ticket) override;
  absl::Status Barrier() override { return host_.Barrier(); }
  void Abort(const absl::Status& reason) override;
  absl::Status Failure() const override { return host_.Failure(); }
  void SetIdleTimeout(Nanos idle_timeout) override;
  void SetProgressLimit(Nanos limit) override { host_.SetProgressLimit(limit); }
  // Counts the bytes that the host sends by TCP, and the bytes that this rank's device sends by NCCL.
  int64_t BytesSent() const override { return host_.BytesSent() + bytes_sent_; }
  Nanos ThreadCpuTime() const override { return host_.ThreadCpuTime(); }

 private:
  absl::Status MakeLine(Line& line);
  absl::Status WarmUp(Line& line);

  // Issues `call` (ncclComm_t, cudaStream_t) on the route's line. If the route has no line, nothing has to be transferred, and
  // the ticket is complete at once.
  template <class Call>
  absl::StatusOr<TransferTicket> Issue(int32_t lane, int64_t bytes, const Call& call);
  template <class Call>
  absl::Status IssueOn(Line& line, const Call& call);
  absl::StatusOr<TransferTicket> NewTicket(const TransferTimes& times);
  int32_t NeighbourLane(const Route& neighbour, Direction direction) const;

  void StartWatch();
  void Watch();
  absl::Status LookLocked();
  void ExcuseLocked(Nanos gap);
  absl::Status LookAtLineLocked(Line& line, Nanos idle_timeout);
  absl::Status BeginLocked(Line& line);
  absl::Status LookAtCallLocked() const;
  Nanos AbortLimit() const { return std::min(kAbortLimit, options_.connect_timeout); }
  void AbortAll(std::vector<ncclComm_t> comms);
  void AbortLocked();
  std::vector<ncclComm_t> TakeCommsLocked();
  bool SayFarewell();

  const NcclOptions options_;
  const LaneTable lanes_;
  const RealClock clock_;
  Communicator& host_;
  Backend& backend_;
  std::atomic<int64_t> idle_timeout_ns_;

  // --- Used by the backend's thread.
  Lines lines_;                 // made by Connect, in the order of Line::order
  std::vector<Line*> by_lane_;  // null: no other rank is on the route
  struct Slot {
    int64_t number = 0;  // 0: free
    TransferTimes times;
  };
  std::vector<Slot> slots_;  // a ring buffer, indexed by the ticket's number; it grows
  int64_t next_number_ = 1;
  int64_t open_ = 0;  // the number of tickets for which Wait has not been called yet
  int64_t bytes_sent_ = 0;

  int device_ = 0;  // the backend's device

  // --- Used by the watch thread and the backend's thread.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
  bool stop_ = false;
  const Line* called_ = nullptr;  // the line of the newest call of NCCL that starts a transfer
  Nanos call_began_;              // when that call began
  // True while the backend's thread is in that call. It is set with the mutex held. A call left behind may still read it.
  const std::shared_ptr<std::atomic<bool>> in_call_ = std::make_shared<std::atomic<bool>>(false);
  std::thread watch_;
};

NcclCommunicator::~NcclCommunicator() {
  if (open_ > 0 && host_.Failure().ok()) {
    Abort(absl::CancelledError(
        absl::StrCat(RankText(options_.layout, options_.rank), " ended its communication during ", open_, " transfers")));
  }
  const bool ended = host_.Failure().ok() && SayFarewell();
  {
    const std::lock_guard lock(mutex_);
    if (!ended) AbortLocked();
    stop_ = true;
  }
  changed_.notify_all();
  if (watch_.joinable()) watch_.join();
  for (const auto& line : lines_) {
    line->queue.reset();
    for (const auto& transfer : line->issued) line->spare.push_back(transfer);
    for (const auto& transfer : line->spare) {
      cudaEventDestroy(transfer.begun);
      cudaEventDestroy(transfer.ended);
    }
  }
}

absl::Status NcclCommunicator::Connect() {
  ConnectBeforehand();
  lines_ = LinesOf(options_.layout, options_.rank, lanes_);
  const Program none;
  const Program& program = options_.program == nullptr ? none : *options_.program;
  LYNX_RETURN_IF_ERROR(ShareLines(options_.layout, lanes_, program, host_, lines_));
  LYNX_RETURN_IF_ERROR(CheckQueues(lines_, getenv("CUDA_DEVICE_MAX_CONNECTIONS")));
  by_lane_.resize(static_cast<size_t>(lanes_.size()));
  for (const auto& line : lines_) {
    for (const int32_t lane : line->lanes) by_lane_[static_cast<size_t>(lane)] = line.get();
    LYNX_ASSIGN_OR_RETURN(line->queue, backend_.MakeQueue());
  }
  if (lines_.empty()) return absl::OkStatus();
  LYNX_RETURN_IF_ERROR(ExchangeIds(host_, lines_));
  LYNX_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device_), "asking for the device"));
  StartWatch();
  for (const auto& line : lines_) LYNX_RETURN_IF_ERROR(MakeLine(*line));
  for (const auto& line : lines_) LYNX_RETURN_IF_ERROR(WarmUp(*line));
  LYNX_RETURN_IF_ERROR(backend_.Finish());
  return host_.Failure();
}

void NcclCommunicator::StartWatch() {
  // Blocks all signals in the new thread, so that the kernel delivers them to the threads that the program has made for
  // signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  watch_ = std::thread([this] { Watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(watch_.native_handle(), "lynx-nccl");
}

// NCCL's call returns when all members have come. It cannot be interrupted before.
absl::Status NcclCommunicator::MakeLine(Line& line) {
  struct Made {
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  };
  const auto made = std::make_shared<Made>();
  made->config.blocking = 1;
  if (options_.min_ctas > 0) made->config.minCTAs = options_.min_ctas;
  if (options_.max_ctas > 0) made->config.maxCTAs = options_.max_ctas;
  BoundedCall call(
      [made, device = device_, members = line.members(), index = line.index(), id = line.id(), name = line.info.name] {
        cudaSetDevice(device);
        return StatusOf(ncclCommInitRankConfig(&made->comm, members, id, index, &made->config), "connecting the route ", name);
      },
      [made] { ncclCommAbort(made->comm); });
  const Nanos begin = clock_.Monotonic();
  LYNX_RETURN_IF_ERROR(call.Wait([&]() -> absl::Status {
    LYNX_RETURN_IF_ERROR(host_.Failure());
    if (clock_.Monotonic() - begin <= options_.connect_timeout) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat(RankText(options_.layout, options_.rank), " has waited ",
                                                    FormatDuration(options_.connect_timeout), " for NCCL to connect the route ",
                                                    line.info.name,
                                                    "; NCCL_DEBUG=INFO in the ranks' environment makes it say what it tries"));
  }));
  const std::lock_guard lock(mutex_);
  if (aborted_) {
    AbortAll({made->comm});
    return host_.Failure();
  }
  line.comm = made->comm;
  return absl::OkStatus();
}

// Runs a first transfer on the line. So NCCL creates everything that the route needs before the first step, the peers wait for
// each other here, and errors of the route appear here.
absl::Status NcclCommunicator::WarmUp(Line& line) {
  LYNX_ASSIGN_OR_RETURN(const std::span<float> memory,
                        backend_.Allocate(Bytes(2 * line.members() * static_cast<int64_t>(sizeof(float))), "a first transfer"));
  absl::StatusOr<TransferTicket> ticket;
  if (line.route.group == Group::kExpert) {
    ticket = StartAllToAll(line.route, memory.data(), memory.data() + line.members(), 1);
  } else if (line.is_ring()) {
    ticket = StartAllReduce(line.route, memory.data(), line.members());
  } else if (line.index() == Line::kSender) {
    ticket = StartSend(line.route, memory.data(), 1);
  } else {
    ticket = StartRecv(line.route, memory.data(), 1);
  }
  if (!ticket.ok()) return ticket.status();
  return Wait(*ticket).status();
}

absl::StatusOr<TransferTicket> NcclCommunicator::NewTicket(const TransferTimes& times) {
  const auto slot_of = [&](int64_t number) -> Slot& { return slots_[static_cast<size_t>(number) % slots_.size()]; };
  const int64_t number = next_number_++;
  while (slot_of(number).number != 0) {
    std::vector<Slot> fewer(slots_.size() * 2);
    fewer.swap(slots_);
    for (const Slot& slot : fewer) {
      if (slot.number != 0) slot_of(slot.number) = slot;
    }
  }
  slot_of(number) = {number, times};
  ++open_;
  return TransferTicket{-number};  // the tickets of the host's communicator are positive, so these are negative
}

// Adds a transfer to line.issued. Records the event at which it begins, after all work that the line's queue follows.
absl::Status NcclCommunicator::BeginLocked(Line& line) {
  Line::Transfer transfer;
  if (line.spare.empty()) {
    LYNX_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&transfer.begun, cudaEventDisableTiming), "creating an event"));
    line.spare.push_back(transfer);  // kept there, so that it is destroyed if the next call fails
    LYNX_RETURN_IF_ERROR(
        CudaStatus(cudaEventCreateWithFlags(&line.spare.back().ended, cudaEventDisableTiming), "creating an event"));
  }
  transfer = line.spare.back();
  line.spare.pop_back();
  line.issued.push_back({transfer.begun, transfer.ended, Nanos(0)});
  return CudaStatus(cudaEventRecord(transfer.begun, line.stream()), "recording an event");
}

// The mutex is not held during NCCL's call, because the call may block: the first transfer between two ranks connects them, and
// a device with much work accepts no more. Without the mutex, the watch thread can abort the call.
template <class Call>
absl::Status NcclCommunicator::IssueOn(Line& line, const Call& call) {
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return host_.Failure();
    comm = line.comm;
    called_ = &line;
    call_began_ = clock_.Monotonic();
    *in_call_ = true;
  }
  const absl::Status status = StatusOf(call(comm, line.stream()), "a transfer ", line.info.name);
  *in_call_ = false;
  return status;
}

template <class Call>
absl::StatusOr<TransferTicket> NcclCommunicator::Issue(int32_t lane, int64_t bytes, const Call& call) {
  LYNX_RETURN_IF_ERROR(host_.Failure());
  Line* const line = by_lane_[static_cast<size_t>(lane)];
  if (line == nullptr) {
    const Moment now = backend_.Mark();
    return NewTicket({now, now});
  }
  line->queue->Follow(backend_.Mark());
  const Moment started = line->queue->Mark();
  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    status = BeginLocked(*line);
  }
  if (status.ok()) status = IssueOn(*line, call);
  if (status.ok()) {
    const std::lock_guard lock(mutex_);
    if (aborted_) return host_.Failure();
    status = CudaStatus(cudaEventRecord(line->issued.back().ended, line->stream()), "recording an event");
  }
  if (!status.ok()) {
    Abort(status);
    return host_.Failure();
  }
  bytes_sent_ += bytes;
  return NewTicket({started, line->queue->Mark()});
}

absl::StatusOr<TransferTicket> NcclCommunicator::StartAllReduce(const Route& route, Elements data, int64_t count) {
  if (route.group == Group::kWorld) return host_.StartAllReduce(route, data, count);
  const int32_t lane = lanes_.Ring(route), members = lanes_.at(lane).members;
  return Issue(lane, 2 * (members - 1) * count * ElementBytes(data.type) / members, [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(data.data, data.data, static_cast<size_t>(count), TypeOf(data.type), ncclSum, comm, stream);
  });
}

absl::StatusOr<TransferTicket> NcclCommunicator::StartAllGather(const Route& route, Elements data, int64_t count) {
  if (route.group == Group::kWorld) return host_.StartAllGather(route, data, count);
  const LaneInfo& info = lanes_.at(lanes_.Ring(route));
  return Issue(lanes_.Ring(route), (info.members - 1) * count * ElementBytes(data.type),
               [&](ncclComm_t comm, cudaStream_t stream) {
                 return ncclAllGather((data + info.index * count).data, data.data, static_cast<size_t>(count),
                                      TypeOf(data.type), comm, stream);
               });
}

absl::StatusOr<TransferTicket> NcclCommunicator::StartReduceScatter(const Route& route, Elements data, int64_t count) {
  if (route.group == Group::kWorld) return host_.StartReduceScatter(route, data, count);
  const LaneInfo& info = lanes_.at(lanes_.Ring(route));
  return Issue(lanes_.Ring(route), (info.members - 1) * count * ElementBytes(data.type),
               [&](ncclComm_t comm, cudaStream_t stream) {
                 return ncclReduceScatter(data.data, (data + info.index * count).data, static_cast<size_t>(count),
                                          TypeOf(data.type), ncclSum, comm, stream);
               });
}

absl::StatusOr<TransferTicket> NcclCommunicator::StartAllToAll(const Route& route, ConstElements send, Elements receive,
                                                               int64_t count) {
  LYNX_CHECK(route.group == Group::kExpert && send.type == receive.type);
  const LaneInfo& info = lanes_.at(lanes_.Ring(route));
  const int64_t slot_bytes = count * ElementBytes(send.type);
  if (info.members == 1) backend_.Copy(send.data, Bytes(slot_bytes), receive.data);
  return Issue(lanes_.Ring(route), (info.members - 1) * slot_bytes,
               [&](ncclComm_t comm, cudaStream_t stream) { return ExchangeSlots(info, send, receive, count, comm, stream); });
}

// Returns -1 if no other rank has that stage. The host's communicator then returns the error.
int32_t NcclCommunicator::NeighbourLane(const Route& neighbour, Direction direction) const {
  return lanes_.Neighbour(neighbour, direction);
}

absl::StatusOr<TransferTicket> NcclCommunicator::StartSend(const Route& neighbour, ConstElements data, int64_t count) {
  const int32_t lane = NeighbourLane(neighbour, Direction::kSendOnly);
  if (lane < 0) return host_.StartSend(neighbour, data, count);
  return Issue(lane, count * ElementBytes(data.type), [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclSend(data.data, static_cast<size_t>(count), TypeOf(data.type), Line::kReceiver, comm, stream);
  });
}

absl::StatusOr<TransferTicket> NcclCommunicator::StartRecv(const Route& neighbour, Elements data, int64_t count) {
  const int32_t lane = NeighbourLane(neighbour, Direction::kReceiveOnly);
  if (lane < 0) return host_.StartRecv(neighbour, data, count);
  return Issue(lane, 0, [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclRecv(data.data, static_cast<size_t>(count), TypeOf(data.type), Line::kSender, comm, stream);
  });
}

absl::StatusOr<TransferTimes> NcclCommunicator::Wait(TransferTicket ticket) {
  if (ticket.id > 0) return host_.Wait(ticket);
  Slot& slot = slots_[static_cast<size_t>(-ticket.id) % slots_.size()];
  LYNX_CHECK(ticket.id != 0 && slot.number == -ticket.id);
  const TransferTimes times = std::exchange(slot, {}).times;
  --open_;
  LYNX_RETURN_IF_ERROR(host_.Failure());
  backend_.Follow(times.completed);
  return times;
}

void NcclCommunicator::Abort(const absl::Status& reason) {
  host_.Abort(reason);  // comes first, so that no call treats an aborted transfer as complete
  const std::lock_guard lock(mutex_);
  AbortLocked();
}

void NcclCommunicator::SetIdleTimeout(Nanos idle_timeout) {
  idle_timeout_ns_ = idle_timeout.value;
  host_.SetIdleTimeout(idle_timeout);
}

std::vector<ncclComm_t> NcclCommunicator::TakeCommsLocked() {
  std::vector<ncclComm_t> comms;
  for (const auto& line : lines_) {
    if (line->comm != nullptr) comms.push_back(std::exchange(line->comm, nullptr));
  }
  return comms;
}

// Aborts communicators in one NCCL group. An abort ends only when the communicator's work on the device has ended, and this
// work may wait for work of another one.
//
// ncclCommAbort tells a communicator's work and calls to end. The end of the group waits for the work, and possibly for peers
// on the same node, and frees the communicators. So the backend's thread must have left its call before the end of the group.
// If all this takes too long, it is left behind.
void NcclCommunicator::AbortAll(std::vector<ncclComm_t> comms) {
  if (comms.empty()) return;
  BoundedCall call(
      [comms = std::move(comms), in_call = in_call_, device = device_] {
        cudaSetDevice(device);
        ncclGroupStart();
        for (ncclComm_t comm : comms) ncclCommAbort(comm);
        while (*in_call) std::this_thread::sleep_for(kPollPeriod);
        ncclGroupEnd();
        return absl::OkStatus();
      },
      [] {});
  const Nanos begin = clock_.Monotonic();
  (void)call.Wait([&]() -> absl::Status {
    if (clock_.Monotonic() - begin <= AbortLimit()) return absl::OkStatus();
    return absl::DeadlineExceededError("NCCL does not abort");
  });
}

void NcclCommunicator::AbortLocked() {
  if (!std::exchange(aborted_, true)) AbortAll(TakeCommsLocked());
}

// Waits until every peer has received what this rank sent, and then destroys the NCCL communicators. An earlier destruction
// would lose data. Returns false after an error, or if it takes longer than kFarewellLimit. Then the lines must be aborted, if
// the communicators still exist. A destruction that does not end is left behind.
bool NcclCommunicator::SayFarewell() {
  if (lines_.empty()) return true;
  const Nanos begin = clock_.Monotonic();
  const auto within = [&](Nanos limit) -> absl::Status {
    if (clock_.Monotonic() - begin <= limit) return absl::OkStatus();
    return absl::DeadlineExceededError("the peers have not received everything");
  };
  const auto stop = [&]() -> absl::Status {
    LYNX_RETURN_IF_ERROR(host_.Failure());
    return within(kFarewellLimit);
  };
  std::vector<cudaStream_t> streams;
  for (const auto& line : lines_) streams.push_back(line->stream());
  BoundedCall work(
      [streams, device = device_]() -> absl::Status {
        cudaSetDevice(device);
        for (cudaStream_t stream : streams) {
          LYNX_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "waiting for the last transfers"));
        }
        return absl::OkStatus();
      },
      [] {});
  if (!work.Wait(stop).ok()) {
    const std::lock_guard lock(mutex_);
    AbortLocked();  // now the work ends
    (void)work.Wait([&] { return within(kFarewellLimit + AbortLimit()); });
    return false;
  }
  std::vector<ncclComm_t> comms;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return false;
    comms = TakeCommsLocked();
  }
  BoundedCall end([comms, device = device_] { return EndAll(device, comms); }, [] {});
  return end.Wait(stop).ok();
}

void NcclCommunicator::Watch() {
  cudaSetDevice(device_);  // without this call, the first query would initialise another device for this thread
  std::unique_lock lock(mutex_);
  Nanos looked = clock_.Monotonic();
  while (!stop_ && !aborted_) {
    changed_.wait_for(lock, kWatchPeriod);
    if (stop_ || aborted_) return;
    // If the last look is long ago, this process was stopped. Then a transfer that waits for a peer gets more time, because the
    // peer may continue soon.
    const Nanos now = clock_.Monotonic();
    if (now - looked > kStandstill) ExcuseLocked(now - looked);
    looked = now;
    const absl::Status failure = host_.Failure();
    const absl::Status status = failure.ok() ? LookLocked() : failure;
    if (status.ok()) continue;
    if (failure.ok()) host_.Abort(status);
    AbortLocked();
  }
}

void NcclCommunicator::ExcuseLocked(Nanos gap) {
  call_began_ += gap;
  for (const auto& line : lines_) {
    for (Line::Transfer& transfer : line->issued) {
      if (transfer.under_way_since.value != 0) transfer.under_way_since += gap;
    }
  }
}

// Finds a call of NCCL that does not end, for example because it connects two ranks and the other one never comes.
absl::Status NcclCommunicator::LookAtCallLocked() const {
  if (!*in_call_ || clock_.Monotonic() - call_began_ <= options_.connect_timeout) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(RankText(options_.layout, options_.rank), " has waited ",
                                                  FormatDuration(options_.connect_timeout), " for NCCL to start a transfer ",
                                                  called_->info.name));
}

absl::Status NcclCommunicator::LookLocked() {
  LYNX_RETURN_IF_ERROR(LookAtCallLocked());
  const Nanos idle_timeout(idle_timeout_ns_.load());
  for (const auto& line : lines_) {
    if (line->comm != nullptr) LYNX_RETURN_IF_ERROR(LookAtLineLocked(*line, idle_timeout));
  }
  return absl::OkStatus();
}

absl::Status NcclCommunicator::LookAtLineLocked(Line& line, Nanos idle_timeout) {
  ncclResult_t state = ncclSuccess;
  LYNX_RETURN_IF_ERROR(StatusOf(ncclCommGetAsyncError(line.comm, &state), "asking for errors"));
  if (absl::Status failed = StatusOf(state, "a transfer ", line.info.name); !failed.ok()) {
    return Annotate(failed, RankText(options_.layout, options_.rank));
  }
  // The newest transfer stays in the list, because the event of its end may not be recorded yet. The event was used for an
  // earlier transfer, so a query would report that it was reached.
  while (line.issued.size() > 1 && cudaEventQuery(line.issued.front().ended) == cudaSuccess) {
    line.spare.push_back(line.issued.front());
    line.issued.erase(line.issued.begin());
  }
  if (line.issued.empty() || idle_timeout.value == 0) return absl::OkStatus();
  Line::Transfer& oldest = line.issued.front();
  const bool under_way = cudaEventQuery(oldest.begun) == cudaSuccess && cudaEventQuery(oldest.ended) != cudaSuccess;
  const Nanos now = clock_.Monotonic();
  if (!under_way) oldest.under_way_since = Nanos(0);
  if (under_way && oldest.under_way_since.value == 0) oldest.under_way_since = now;
  if (!under_way || now - oldest.under_way_since < idle_timeout) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(RankText(options_.layout, options_.rank), " has been in a transfer ",
                                                  line.info.name, " for ", FormatDuration(idle_timeout)));
}

}  // namespace

std::string NcclName() {
  int version = 0;
  // The format of NCCL's version numbers since 2.9: 22803 is 2.28.3.
  if (ncclGetVersion(&version) != ncclSuccess) return "NCCL of an unknown version";
  return absl::StrCat("NCCL ", version / 10'000, ".", version / 100 % 100, ".", version % 100);
}

absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const NcclOptions& options, Communicator& host,
                                                                   Backend& backend) {
  auto communicator = std::make_unique<NcclCommunicator>(options, host, backend);
  absl::Status status = CheckOptions(options);
  if (status.ok()) status = communicator->Connect();
  if (status.ok()) return communicator;
  communicator->Abort(status);
  return host.Failure();
}

}  // namespace lynx::worker
