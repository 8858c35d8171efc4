#include "nccl.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/bfloat16.h"
#include "common/check.h"
#include "scheduler.h"

using namespace lynx::worker::cuda_on_host;

namespace {

enum class Kind : uint8_t { kAllReduce, kAllGather, kReduceScatter, kSend, kRecv, kExchange };

// A send or a receive of a kExchange.
struct Part {
  int peer = 0;
  bool sends = false;  // false: it receives
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;
  bool operator==(const Part&) const = default;
};

struct Transfer {
  Kind kind;
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;  // elements that a member sends; of a reduce-scatter: that it receives
  ncclDataType_t type = ncclFloat32;
  cudaStream_t stream = nullptr;
  std::vector<Part> parts;  // only for a kExchange: the sends and receives of one member in a group

  size_t element() const { return type == ncclFloat32 ? sizeof(float) : sizeof(lynx::Bfloat16); }
};

// One transfer between all members of a communicator. Records which of its members have reached it.
struct Meeting {
  struct Member {
    bool issued = false;
    bool come = false;
    Transfer transfer{Kind::kSend};
    int64_t number = 0;  // the number of the transfer in the member's stream
    std::vector<char> sent;
  };
  explicit Meeting(int members) : members(static_cast<size_t>(members)) {}

  bool complete() const {
    for (const Member& member : members) {
      if (!member.come) return false;
    }
    return true;
  }

  std::vector<Member> members;
  bool wanted = false;
};

// All communicators with the same id.
struct Clique {
  int members = 0, joined = 0;
  std::map<int64_t, std::shared_ptr<Meeting>> meetings;
};

std::map<std::string, std::shared_ptr<Clique>> cliques;
int64_t ids = 0, transfers = 0, live = 0;
int64_t waiting = 0;  // the number of calls that wait for another member
int held_rank = -1;   // see HoldConnections
bool aborts_held = false;
bool released = false;         // true if they may not wait
int64_t failing_transfer = 0;  // the number of the failing transfer, counted from now on; 0: none fails
ncclResult_t transfer_error = ncclSuccess;
ncclConfig_t newest_config;

}  // namespace

// A communicator. It is never freed, so that the tests notice if a destroyed communicator is used.
struct NcclOnHostComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  bool live = true, aborted = false, finalizing = false;
  bool in_call = false;              // a thread is in a call that starts a transfer
  bool connected = false;            // a send or a receive has connected the members
  ncclResult_t error = ncclSuccess;  // an asynchronous error
  int64_t transfers = 0, done = 0;
  cudaStream_t stream = nullptr;  // the stream of all its transfers
  int64_t newest = 0;             // the number of the newest transfer in the stream
};

namespace {

thread_local int groups = 0;                         // the number of groups that this thread has begun
thread_local std::vector<Transfer> group_transfers;  // transfers of the communicator group_comm
thread_local ncclComm_t group_comm = nullptr;
thread_local bool group_failed = false;                 // a call in the group has failed, so the group starts nothing
thread_local std::vector<ncclComm_t> aborted_in_group;  // they are freed when the group ends

// Waits until `reached` is true. Returns false if the call must return an error.
bool WaitForMembers(const std::function<bool()>& reached) {
  ++waiting;
  WaitUntil([&] { return released || reached(); });
  --waiting;
  return reached();
}

// The parts of a member's kExchange that go to, or come from, a peer, in the order of their calls.
std::vector<Part> PartsWith(const Transfer& transfer, int peer, bool sends) {
  std::vector<Part> parts;
  for (const Part& part : transfer.parts) {
    if (part.peer == peer && part.sends == sends) parts.push_back(part);
  }
  return parts;
}

void CheckFits(const Transfer& own, int rank, const Transfer& other, int peer) {
  if (own.kind == Kind::kExchange && other.kind == Kind::kExchange) {
    for (const bool sends : {true, false}) {
      const std::vector<Part> here = PartsWith(own, peer, sends), there = PartsWith(other, rank, !sends);
      LYNX_CHECK(here.size() == there.size() && own.type == other.type);
      for (size_t i = 0; i < here.size(); ++i) LYNX_CHECK(here[i].count == there[i].count);
    }
    return;
  }
  const bool pair =
      (own.kind == Kind::kSend && other.kind == Kind::kRecv) || (own.kind == Kind::kRecv && other.kind == Kind::kSend);
  const bool alike = own.kind == other.kind && own.kind != Kind::kSend && own.kind != Kind::kRecv;
  LYNX_CHECK((pair || alike) && own.count == other.count && own.type == other.type);
}

std::vector<char> Sent(const Transfer& transfer, size_t members) {
  const size_t slots = transfer.kind == Kind::kReduceScatter ? members : 1;
  if (transfer.kind == Kind::kRecv) return {};
  std::vector<char> sent;
  for (const Part& part : transfer.parts) {
    if (!part.sends) continue;
    const auto* const begin = static_cast<const char*>(part.from);
    sent.insert(sent.end(), begin, begin + part.count * transfer.element());
  }
  if (transfer.kind == Kind::kExchange) return sent;
  const auto* const begin = static_cast<const char*>(transfer.from);
  return std::vector<char>(begin, begin + slots * transfer.count * transfer.element());
}

template <class T>
void Sum(const Meeting& meeting, size_t first, const Transfer& transfer) {
  for (size_t i = 0; i < transfer.count; ++i) {
    float sum = 0;
    for (size_t rank = 0; rank < meeting.members.size(); ++rank) {
      const float value = reinterpret_cast<const T*>(meeting.members[rank].sent.data())[first + i];
      sum = rank == 0 ? value : sum + value;
    }
    static_cast<T*>(transfer.to)[i] = sum;
  }
}

// Copies what each peer has sent to this member.
void ReceiveParts(const Meeting& meeting, int rank, const Transfer& transfer) {
  for (size_t peer = 0; peer < meeting.members.size(); ++peer) {
    const std::vector<Part> mine = PartsWith(transfer, static_cast<int>(peer), false);
    size_t next = 0;
    const char* at = meeting.members[peer].sent.data();
    for (const Part& part : meeting.members[peer].transfer.parts) {
      if (!part.sends) continue;
      const size_t bytes = part.count * transfer.element();
      if (part.peer == rank && bytes > 0) std::memcpy(mine[next].to, at, bytes);
      if (part.peer == rank) ++next;
      at += bytes;
    }
  }
}

void Receive(const Meeting& meeting, int rank, const Transfer& transfer) {
  const size_t bytes = transfer.count * transfer.element();
  switch (transfer.kind) {
    case Kind::kSend: return;
    case Kind::kExchange: return ReceiveParts(meeting, rank, transfer);
    case Kind::kRecv: std::memcpy(transfer.to, meeting.members[static_cast<size_t>(1 - rank)].sent.data(), bytes); return;
    case Kind::kAllGather:
      for (size_t member = 0; member < meeting.members.size(); ++member) {
        std::memcpy(static_cast<char*>(transfer.to) + member * bytes, meeting.members[member].sent.data(), bytes);
      }
      return;
    case Kind::kAllReduce:
    case Kind::kReduceScatter: {
      const size_t first = transfer.kind == Kind::kReduceScatter ? static_cast<size_t>(rank) * transfer.count : 0;
      if (transfer.type == ncclFloat32) {
        Sum<float>(meeting, first, transfer);
      } else {
        Sum<lynx::Bfloat16>(meeting, first, transfer);
      }
      return;
    }
  }
}

// Records that the member's stream has reached the transfer. Returns true if the transfer may end.
bool Come(NcclOnHostComm& comm, Meeting& meeting, bool wanted) {
  if (comm.aborted) return true;
  Meeting::Member& own = meeting.members[static_cast<size_t>(comm.rank)];
  if (!own.come) {
    Open(DeviceOf(own.transfer.stream));
    own.sent = Sent(own.transfer, meeting.members.size());
    own.come = true;
  }
  if (wanted) meeting.wanted = true;
  for (const Meeting::Member& member : meeting.members) {
    if (meeting.wanted && member.issued && !member.come) Want(member.transfer.stream, member.number);
  }
  return meeting.complete() && comm.error == ncclSuccess;
}

// Puts the transfer into its stream. Returns the transfer's Meeting, which all members share.
std::shared_ptr<Meeting> Put(ncclComm_t comm, const Transfer& transfer) {
  LYNX_CHECK(comm->stream == nullptr || comm->stream == transfer.stream);
  comm->stream = transfer.stream;
  ++transfers;
  if (failing_transfer > 0 && --failing_transfer == 0) comm->error = transfer_error;
  std::shared_ptr<Meeting>& place = comm->clique->meetings[comm->transfers++];
  if (place == nullptr) place = std::make_shared<Meeting>(comm->clique->members);
  const std::shared_ptr<Meeting> meeting = place;
  for (size_t peer = 0; peer < meeting->members.size(); ++peer) {
    const Meeting::Member& other = meeting->members[peer];
    if (other.issued) CheckFits(transfer, comm->rank, other.transfer, static_cast<int>(peer));
  }
  Meeting::Member& own = meeting->members[static_cast<size_t>(comm->rank)];
  own.issued = true;
  own.transfer = transfer;
  own.number = Enqueue(transfer.stream, {.ready = [comm, meeting](bool wanted) { return Come(*comm, *meeting, wanted); },
                                         .run =
                                             [comm, meeting, transfer] {
                                               ++comm->done;
                                               if (!comm->aborted) Receive(*meeting, comm->rank, transfer);
                                             }});
  comm->newest = own.number;
  if (meeting->wanted) Want(transfer.stream, own.number);
  return meeting;
}

// The first sends and receives connect the members.
bool Connects(const NcclOnHostComm& comm, const Transfer& transfer) {
  return !comm.connected && (transfer.kind == Kind::kSend || transfer.kind == Kind::kRecv || transfer.kind == Kind::kExchange);
}

ncclResult_t Issue(ncclComm_t comm, const Transfer& transfer) {
  if (Fails()) return ncclSystemError;
  const Locked locked;
  LYNX_CHECK((comm->live || comm->aborted) && !comm->finalizing && transfer.stream != nullptr);
  if (comm->aborted) return ncclInvalidUsage;
  if (comm->error != ncclSuccess) return comm->error;
  if (!Connects(*comm, transfer)) {
    Put(comm, transfer);
    return ncclSuccess;
  }
  comm->in_call = true;
  (void)WaitForMembers([&] { return comm->aborted || held_rank != comm->rank; });
  const std::shared_ptr<Meeting> meeting = Put(comm, transfer);
  const auto all = [&] {
    return std::all_of(meeting->members.begin(), meeting->members.end(), [](const auto& member) { return member.issued; });
  };
  const bool connected = WaitForMembers([&] { return comm->aborted || comm->error != ncclSuccess || all(); });
  comm->in_call = false;
  comm->connected = true;
  return connected && !comm->aborted ? comm->error : ncclSystemError;
}

// Adds a send or a receive to the thread's group, or issues it if there is no group.
ncclResult_t IssuePart(ncclComm_t comm, const Part& part, ncclDataType_t type, cudaStream_t stream) {
  if (groups == 0) {
    LYNX_CHECK(part.peer == 1 - comm->rank);
    return Issue(comm, {part.sends ? Kind::kSend : Kind::kRecv, part.from, part.to, part.count, type, stream});
  }
  if (Fails()) {
    group_failed = true;
    return ncclSystemError;
  }
  LYNX_CHECK(part.peer >= 0 && part.peer < comm->clique->members && part.peer != comm->rank);
  LYNX_CHECK(group_comm == nullptr || group_comm == comm);
  group_comm = comm;
  if (group_transfers.empty()) group_transfers.push_back({.kind = Kind::kExchange, .type = type, .stream = stream});
  LYNX_CHECK(group_transfers[0].type == type && group_transfers[0].stream == stream);
  group_transfers[0].parts.push_back(part);
  return ncclSuccess;
}

void End(ncclComm_t comm) {
  LYNX_CHECK(comm->live);
  comm->live = false;
  --live;
}

}  // namespace

namespace lynx::worker::cuda_on_host {

void FailTransfer(int64_t k, ncclResult_t error) {
  const Locked locked;
  failing_transfer = k;
  transfer_error = error;
}
int64_t TransfersIssued() {
  const Locked locked;
  return std::exchange(transfers, 0);
}
void HoldConnections(int rank) {
  const Locked locked;
  held_rank = rank;
}
void HoldAborts(bool hold) {
  const Locked locked;
  aborts_held = hold;
}
void ReleaseCalls() {
  const Locked locked;
  released = true;
  WaitUntil([] { return waiting == 0; });
  released = false;
}
ncclConfig_t NewestConfig() {
  const Locked locked;
  return newest_config;
}
int64_t LiveCommunicators() {
  const Locked locked;
  return live;
}

}  // namespace lynx::worker::cuda_on_host

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError   ? "remote process exited or there was a network error"
         : result == ncclSystemError ? "unhandled system error"
                                     : "invalid usage";
}

ncclResult_t ncclGetVersion(int* version) {
  *version = 22'803;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (Fails()) return ncclSystemError;
  const Locked locked;
  *id = {};
  const std::string name = "id " + std::to_string(++ids);
  name.copy(id->internal, sizeof(id->internal));
  cliques[name] = std::make_shared<Clique>();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int members, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (Fails()) return ncclSystemError;
  const Locked locked;
  const auto clique = cliques.find(id.internal);
  LYNX_CHECK(clique != cliques.end() && rank >= 0 && rank < members && config->blocking == 1);
  LYNX_CHECK(clique->second->members == 0 || clique->second->members == members);
  clique->second->members = members;
  ++clique->second->joined;
  newest_config = *config;
  ++live;
  *comm = new NcclOnHostComm{.clique = clique->second, .rank = rank};
  if (WaitForMembers([of = clique->second] { return of->joined == of->members; })) return ncclSuccess;
  End(std::exchange(*comm, nullptr));
  return ncclSystemError;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (Fails()) return ncclSystemError;
  const Locked locked;
  LYNX_CHECK(comm->live);
  *state = comm->error;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (Fails()) return ncclSystemError;
  const Locked locked;
  LYNX_CHECK(comm->live && !comm->in_call);
  comm->finalizing = true;
  if (comm->stream != nullptr) Want(comm->stream, comm->newest);
  return WaitForMembers([&] { return comm->done == comm->transfers || comm->error != ncclSuccess; }) ? comm->error
                                                                                                     : ncclSystemError;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Locked locked;
  LYNX_CHECK(comm->finalizing && comm->done == comm->transfers);
  End(comm);
  return ncclSuccess;
}

void Free(ncclComm_t comm) {
  LYNX_CHECK(!comm->in_call);
  End(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Locked locked;
  comm->aborted = true;
  if (groups > 0) {
    aborted_in_group.push_back(comm);
  } else {
    Free(comm);
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++groups;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  LYNX_CHECK(--groups == 0);
  ncclComm_t const comm = std::exchange(group_comm, nullptr);
  const std::vector<Transfer> started = std::exchange(group_transfers, {});
  if (std::exchange(group_failed, false)) return ncclSystemError;
  for (const Transfer& transfer : started) {
    if (const ncclResult_t result = Issue(comm, transfer); result != ncclSuccess) return result;
  }
  const Locked locked;
  (void)WaitForMembers([] { return !aborts_held; });
  for (ncclComm_t comm : std::exchange(aborted_in_group, {})) Free(comm);
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return Issue(comm, {Kind::kAllReduce, from, to, count, type, stream});
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return Issue(comm, {Kind::kAllGather, from, to, count, type, stream});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                               cudaStream_t stream) {
  return Issue(comm, {Kind::kReduceScatter, from, to, count, type, stream});
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return IssuePart(comm, {.peer = peer, .sends = true, .from = from, .count = count}, type, stream);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return IssuePart(comm, {.peer = peer, .to = to, .count = count}, type, stream);
}
