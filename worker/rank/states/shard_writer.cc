#include "worker/rank/states/shard_writer.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "worker/contract/rank_progress.h"

namespace lynx::worker {
namespace {

// The niceness of the thread that writes. If training wants the same core, the thread gets about a quarter of the core's time.
// This is enough to make the shard durable soon, and training loses little.
constexpr int kNiceness = 5;

// Starts a thread that blocks all signals, so that the kernel delivers them to the threads that the program has made for
// signals.
std::thread StartThread(std::function<void()> run) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(run));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), "lynx-shard");
  return thread;
}

}  // namespace

ShardWriter::ShardWriter(Available available) : available_(std::move(available)) {}

ShardWriter::~ShardWriter() {
  give_up_ = true;
  if (thread_.joinable()) thread_.join();
}

void ShardWriter::Start(SafetensorsHeader header, const TensorContent& content, WriteFile write) {
  LYNX_CHECK(!thread_.joinable());
  const Bytes bytes(header.DataBytes());
  const Bytes fresh = bytes - Bytes(static_cast<int64_t>(copy_.size()));
  copied_ = fresh <= Bytes(0) || fresh * 2 <= available_();
  if (!copied_) {
    if (!told_) {
      std::fprintf(stderr,
                   "checkpoints are written while training waits: a copy of this rank's states takes %s, and %s "
                   "are left\n",
                   FormatBytes(bytes).c_str(), FormatBytes(available_()).c_str());
    }
    told_ = true;
    status_ = write(header, content);
    return;
  }
  status_ = Copy(header, content);
  if (!status_.ok()) return;
  done_ = false;
  thread_ = StartThread([this, header = std::move(header), write = std::move(write)] {
    // On Linux this changes the priority of this thread only. If the change is not permitted, the thread keeps its priority.
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceness);
    status_ = write(header, [&](size_t tensor) { return TensorOfCopy(header, tensor); });
    done_.store(true, std::memory_order_release);
  });
}

absl::Status ShardWriter::Copy(const SafetensorsHeader& header, const TensorContent& content) {
  copy_.resize(static_cast<size_t>(header.DataBytes()));
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(const std::span<const char> bytes, content(i));
    const SafetensorsEntry& entry = header.tensors[i];
    LYNX_CHECK(static_cast<int64_t>(bytes.size()) == entry.end_bytes - entry.begin_bytes);
    std::memcpy(copy_.data() + entry.begin_bytes, bytes.data(), bytes.size());
    OwnProgress().Made();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::span<const char>> ShardWriter::TensorOfCopy(const SafetensorsHeader& header, size_t tensor) const {
  if (give_up_) return absl::CancelledError("the rank ends before its shard is written");
  const SafetensorsEntry& entry = header.tensors[tensor];
  return std::span<const char>(copy_).subspan(static_cast<size_t>(entry.begin_bytes),
                                              static_cast<size_t>(entry.end_bytes - entry.begin_bytes));
}

absl::Status ShardWriter::Finish() {
  if (thread_.joinable()) thread_.join();
  return std::exchange(status_, absl::OkStatus());
}

}  // namespace lynx::worker
