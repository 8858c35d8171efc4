// A rank process that fails at an exact place in an exact step. It is lynx-rank with another backend. The functions at the end
// of this file replace functions of the C library.
//
//   faulty_rank --config FILE --listen-fd N --report-file FILE FAULT STEP
//
// The enum below lists the faults. STEP is counted from 0; for faults of a checkpoint it is the number of steps done.
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/collectives/wire.h"
#include "worker/rank/peers/cancellation.h"
#include "worker/rank/process/memory_report.h"
#include "worker/rank/rank_run.h"

namespace lynx::worker {
namespace {

enum class Fault : uint8_t {
  kKillForward,         // killed between two products of a forward pass
  kKillBackward,        // killed within a backward pass
  kKillForwardBeside,   // killed in the third product of the forward passes; in a woven program, that is in the second pass
  kKillBackwardBeside,  // killed in the third product of the backward passes, for the same reason
  kKillWeight,          // killed while it computes a weight gradient
  kKillRecomputation,   // killed in a forward product after the first backward product
  kKillCollective,      // killed when half of a message is sent
  kKillDispatch,        // killed when half of its rows for the other member of its expert group are sent, and that member waits
  kKillGradientRows,    // like kKillDispatch, but with the gradients of the experts' results
  kKillOptimizer,       // killed when some weights of the step are updated and others are not
  kKillShard,           // killed when its shard of the checkpoint is written but not durable
  kKillBeforePublish,   // killed when all shards are durable, but before the checkpoint is visible
  kKillAfterPublish,    // killed when the checkpoint is visible, but before the rank has reported it
  kSlowShard,           // needs a second for each fsync of its files in the checkpoint
  kSlowUncopiedShard,   // needs kSlowUncopiedShardSeconds to make its shard durable, and writes it between the steps
  kHangForward,         // hangs at the place of kKillForward: the thread that computes sleeps, the process lives
  kHangBeforePublish,   // hangs at the place of kKillBeforePublish
  kHangShard,           // hangs at the place of kKillShard
  kStopForward,         // stopped (SIGSTOP) at the place of kKillForward
  kStopDispatch,        // stopped at the place of kKillDispatch
  kStopBeforePublish,   // stopped at the place of kKillBeforePublish
  kNanLoss,             // computes a loss that is not a number
  kInfiniteGradient,    // one of its gradients is infinite
  kExhaustMemory,       // allocates more than the process may have
  kRefuseMemory,        // gets no arena
  kRefuseStack,         // starts a thread, but there is no memory for its stack
  kRefuseThread,        // starts a thread, but may not have one
  kWrongProduct,        // the second product of a forward pass, or of the check before it, has one wrong element
  kCorruptLink,         // changes a byte of each large message when it is sent
  kSlowLink,            // sends half a mebibyte per second
};
constexpr std::array kFaultNames = {"kill-forward",        "kill-backward",      "kill-forward-beside", "kill-backward-beside",
                                    "kill-weight",         "kill-recomputation", "kill-collective",     "kill-dispatch",
                                    "kill-gradient-rows",  "kill-optimizer",     "kill-shard",          "kill-before-publish",
                                    "kill-after-publish",  "slow-shard",         "slow-uncopied-shard", "hang-forward",
                                    "hang-before-publish", "hang-shard",         "stop-forward",        "stop-dispatch",
                                    "stop-before-publish", "nan-loss",           "infinite-gradient",   "exhaust-memory",
                                    "refuse-memory",       "refuse-stack",       "refuse-thread",       "wrong-product",
                                    "corrupt-link",        "slow-link"};
// The fault lasts longer than ranks wait for a byte within a step, which is ten seconds.
constexpr unsigned kSlowUncopiedShardSeconds = 12;

Fault fault;
int64_t fault_step = 0;
std::atomic<bool> send_is_fatal = false;

[[noreturn]] void Die() {
  kill(getpid(), SIGKILL);
  while (true) pause();
}

// Only the calling thread hangs. The other threads continue, and send signs of life.
[[noreturn]] void Hang() {
  while (true) pause();
}

// Returns the C library's own function of this name. The function of the same name at the end of this file replaces it.
template <class Function>
Function* Next(const char* name) {
  auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  LYNX_CHECK(found != nullptr);
  return found;
}

// Limits the process to a little more memory than it has now, and then allocates more than this limit.
void ExhaustMemory() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (64 << 20);
  const rlimit limit{most, most};
  LYNX_CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  static std::string eaten;
  eaten.resize(128 << 20);
  LYNX_CHECK(false && "there was memory");
}

// Starts a thread for whose stack there is no memory. There is memory for everything else, and no ended thread has left a stack
// that is large enough.
void RefuseStack() {
  constexpr size_t kStack = 64 << 20;
  pthread_attr_t attributes;
  LYNX_CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, kStack) == 0);
  LYNX_CHECK(pthread_setattr_default_np(&attributes) == 0);
  rlimit limit{};
  LYNX_CHECK(getrlimit(RLIMIT_DATA, &limit) == 0);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmData:")) limit.rlim_cur = (static_cast<rlim_t>(std::atoll(line.c_str() + 7)) << 10) + kStack / 2;
  }
  LYNX_CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
  std::thread([] {}).join();
  LYNX_CHECK(false && "there was memory");
}

std::atomic<bool> threads_are_refused = false;

std::string CheckpointName() { return absl::StrFormat("step-%08d", fault_step); }

class FaultyBackend : public cpu::CpuBackend {
 public:
  absl::StatusOr<std::span<float>> Allocate(Bytes bytes, const std::string& what) override {
    constexpr int64_t kTooMuch = int64_t{1} << 50;
    const bool refused = fault == Fault::kRefuseMemory && what == "activation arena";
    return CpuBackend::Allocate(refused ? Bytes(kTooMuch) : bytes, what);
  }
  void LinearForward(const float* x, const float* w, const float* bias, int64_t n, int64_t in, int64_t out, float* y) override {
    if (In(Fault::kKillCollective)) send_is_fatal = true;
    if (In(Fault::kKillForward) && ++calls_ == 2) Die();
    if (In(Fault::kKillForwardBeside) && ++calls_ == 3) Die();
    if (In(Fault::kKillRecomputation) && calls_ > 0) Die();
    if (In(Fault::kHangForward) && ++calls_ == 2) Hang();
    if (In(Fault::kStopForward) && ++calls_ == 2) kill(getpid(), SIGSTOP);
    if (In(Fault::kExhaustMemory)) ExhaustMemory();
    if (In(Fault::kRefuseStack)) RefuseStack();
    if (In(Fault::kRefuseThread)) {
      threads_are_refused = true;
      std::thread([] {}).join();
    }
    CpuBackend::LinearForward(x, w, bias, n, in, out, y);
    if (In(Fault::kWrongProduct) && ++calls_ == 2) y[7] += 1;
  }
  void LinearBackward(const float* dy, const float* w, int64_t n, int64_t in, int64_t out, float* dx) override {
    if (In(Fault::kKillBackward)) Die();
    if (In(Fault::kKillBackwardBeside) && ++calls_ == 3) Die();
    if (In(Fault::kKillRecomputation)) ++calls_;
    CpuBackend::LinearBackward(dy, w, n, in, out, dx);
  }
  void LinearWeight(const float* x, const float* dy, int64_t n, int64_t in, int64_t out, float* dw, float* dbias) override {
    if (In(Fault::kKillWeight)) Die();
    CpuBackend::LinearWeight(x, dy, n, in, out, dw, dbias);
    if (In(Fault::kInfiniteGradient) && ++calls_ == 1) dw[0] = std::numeric_limits<float>::infinity();
  }
  // The forward pass of permute needs the weights of rows, the backward pass of unpermute does not. An all-to-all follows both.
  void TokensToRows(const RouterShape& shape, const RouteChoice* route, const float* x, float* rows, float* weights) override {
    CpuBackend::TokensToRows(shape, route, x, rows, weights);
    const bool dispatch = In(Fault::kKillDispatch) || In(Fault::kStopDispatch);
    if (weights != nullptr ? dispatch : In(Fault::kKillGradientRows)) send_is_fatal = true;
  }
  void LossForward(const float* stats, int64_t t, int64_t n, double* sum) override {
    CpuBackend::LossForward(stats, t, n, sum);
    if (In(Fault::kNanLoss) && ++calls_ == 1) *sum = std::numeric_limits<double>::quiet_NaN();
  }
  void AdamW(const AdamWArgs& args, std::span<const AdamWTensor> tensors) override {
    const bool dies = fault == Fault::kKillOptimizer && args.step == fault_step + 1;
    CpuBackend::AdamW(args, dies ? tensors.first(1) : tensors);
    if (dies) Die();
    next_step_ = args.step;
  }

 private:
  // True if this process has the fault `one` and has reached the fault's step. The step is known because each earlier step has
  // updated the weights.
  bool In(Fault one) const { return fault == one && next_step_ == fault_step; }

  int64_t next_step_ = 0;
  int calls_ = 0;  // number of calls in the fault's step
};

// Flips one bit in a message of at least kLarge bytes.
ssize_t SendCorrupted(int fd, const msghdr& message, int flags, ssize_t (*send)(int, const msghdr*, int)) {
  constexpr size_t kLarge = 32 << 10;
  const iovec& last = message.msg_iov[message.msg_iovlen - 1];
  if (last.iov_len < kLarge) return send(fd, &message, flags);
  std::string bytes(static_cast<const char*>(last.iov_base), last.iov_len);
  bytes[kLarge / 2] = static_cast<char>(bytes[kLarge / 2] ^ 1);
  std::array<iovec, 2> pieces{message.msg_iov[0], message.msg_iov[message.msg_iovlen - 1]};
  pieces[message.msg_iovlen - 1].iov_base = bytes.data();
  msghdr changed = message;
  changed.msg_iov = pieces.data();
  return send(fd, &changed, flags);
}

// True if the message begins with the header of an all-to-all, which the first bytes of a slot follow.
bool BeginsAllToAll(const msghdr& message) {
  OperationHeaderBytes bytes;
  if (message.msg_iovlen != 2 || message.msg_iov[0].iov_len != bytes.size()) return false;
  std::memcpy(bytes.data(), message.msg_iov[0].iov_base, bytes.size());
  const std::optional<OperationHeader> header = DecodeOperationHeader(bytes);
  return header.has_value() && header->kind == OperationKind::kAllToAll;
}

// Sends the header of an all-to-all and half of the slot. Then waits until the other member of the group has sent something: it
// is in the same all-to-all, which it cannot end. Then the process is killed or stopped.
ssize_t SendHalfOfASlot(int fd, const msghdr& message, ssize_t (*send)(int, const msghdr*, int)) {
  std::array<iovec, 2> pieces{message.msg_iov[0], message.msg_iov[1]};
  pieces[1].iov_len /= 2;
  msghdr part{};
  part.msg_iov = pieces.data();
  part.msg_iovlen = pieces.size();
  const ssize_t sent = send(fd, &part, 0);
  pollfd peer{fd, POLLIN, 0};
  LYNX_CHECK(poll(&peer, 1, /*timeout=*/-1) == 1);
  if (fault != Fault::kStopDispatch) Die();
  kill(getpid(), SIGSTOP);
  return sent;
}

std::string ReadFile(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

int Main(int argc, char** argv) {
  LYNX_CHECK(argc == 9);
  const auto name = std::find(kFaultNames.begin(), kFaultNames.end(), std::string_view(argv[7]));
  LYNX_CHECK(name != kFaultNames.end());
  fault = static_cast<Fault>(name - kFaultNames.begin());
  fault_step = std::atoll(argv[8]);
  signal(SIGPIPE, SIG_IGN);
  BlockStopSignals();
  absl::StatusOr<ReportFile> reports = ReportFile::Open(argv[6]);
  const absl::StatusOr<RankConfig> config = ParseRankConfig(ReadFile(argv[2]));
  LYNX_CHECK(reports.ok() && config.ok());
  LYNX_CHECK(ReportWhenMemoryEnds(argv[6]).ok());
  RankConfig changed = *config;
  if (fault == Fault::kSlowLink) changed.pacing_bytes_per_second = 512 * 1024;
  Cancellation cancellation;
  MakeCpuBackend(config->threads);  // sets the BLAS threads and the rounding of denormal numbers
  FaultyBackend backend;
  return RunRank(changed, std::atoi(argv[4]), backend, *reports, cancellation);
}

}  // namespace
}  // namespace lynx::worker

extern "C" {

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static auto* const next = lynx::worker::Next<ssize_t(int, const msghdr*, int)>("sendmsg");
  if (lynx::worker::fault == lynx::worker::Fault::kCorruptLink) return lynx::worker::SendCorrupted(fd, *message, flags, next);
  if (!lynx::worker::send_is_fatal) return next(fd, message, flags);
  if (lynx::worker::fault != lynx::worker::Fault::kKillCollective) {
    return lynx::worker::BeginsAllToAll(*message) ? lynx::worker::SendHalfOfASlot(fd, *message, next)
                                                  : next(fd, message, flags);
  }
  const iovec half{message->msg_iov[0].iov_base, message->msg_iov[0].iov_len / 2};
  msghdr part{};
  part.msg_iov = const_cast<iovec*>(&half);
  part.msg_iovlen = 1;
  next(fd, &part, flags);
  lynx::worker::Die();
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  static auto* const next =
      lynx::worker::Next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return lynx::worker::threads_are_refused ? EAGAIN : next(thread, attributes, run, argument);
}

// C++ streams open files with this function. If a rank cannot read /proc/meminfo, it does not know how much memory is free, so
// it makes no copy of its states.
FILE* fopen64(const char* path, const char* mode) {
  static auto* const next = lynx::worker::Next<FILE*(const char*, const char*)>("fopen64");
  if (lynx::worker::fault == lynx::worker::Fault::kSlowUncopiedShard && std::string_view(path) == "/proc/meminfo")
    return nullptr;
  return next(path, mode);
}

int fsync(int fd) {
  static auto* const next = lynx::worker::Next<int(int)>("fsync");
  using lynx::worker::Fault;
  const bool slow =
      lynx::worker::fault == lynx::worker::Fault::kSlowShard || lynx::worker::fault == lynx::worker::Fault::kSlowUncopiedShard;
  const bool hangs = lynx::worker::fault == Fault::kHangShard;
  if (!slow && !hangs && lynx::worker::fault != Fault::kKillShard) return next(fd);
  const std::string path = std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", fd));
  if (path.find(lynx::worker::CheckpointName()) != std::string::npos && path.find("/shard-") != std::string::npos) {
    if (hangs) lynx::worker::Hang();
    if (!slow) lynx::worker::Die();
    static std::atomic<bool> slept = false;
    if (lynx::worker::fault == lynx::worker::Fault::kSlowShard) {
      sleep(1);
    } else if (!slept.exchange(true)) {
      sleep(lynx::worker::kSlowUncopiedShardSeconds);
    }
  }
  return next(fd);
}

int rename(const char* from, const char* to) {
  static auto* const next = lynx::worker::Next<int(const char*, const char*)>("rename");
  const bool publishes = std::string_view(to).ends_with("/" + lynx::worker::CheckpointName());
  if (publishes && lynx::worker::fault == lynx::worker::Fault::kKillBeforePublish) lynx::worker::Die();
  if (publishes && lynx::worker::fault == lynx::worker::Fault::kHangBeforePublish) lynx::worker::Hang();
  if (publishes && lynx::worker::fault == lynx::worker::Fault::kStopBeforePublish) kill(getpid(), SIGSTOP);
  const int result = next(from, to);
  if (publishes && lynx::worker::fault == lynx::worker::Fault::kKillAfterPublish) lynx::worker::Die();
  return result;
}

}  // extern "C"

int main(int argc, char** argv) { return lynx::worker::Main(argc, argv); }
