// NodeStream: a node's side of a Cluster stream. It connects to the server, keeps one bidirectional stream open, and connects
// again with bounded exponential backoff whenever the stream ends. The owner sends reports and takes desired states. The owner
// never waits for the network. The owner sees the loss of the server only in `attachment` and `accepted`.
//
//   dial ----------> attached (owner sends its full state) ------> stream ends
//     ^  refused, timed out: back off                                   |
//     +-------------------------- back off <----------------------------+
//
// A NodeStream has two threads: one connects and writes, the other reads. Only the owner's thread calls TakeDesired, TrySend
// and attachment. The WakeEvent is raised after every change that may concern the owner. Bounded: at most one report waits to
// be written. At most kInboxLimit desired states wait to be taken; when there are so many, reading pauses.
#ifndef LYNX_NODE_STREAM_H_
#define LYNX_NODE_STREAM_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "node/backoff.h"
#include "node/channel.h"
#include "node/wake.h"
#include "spdlog/spdlog.h"

namespace lynx {

struct NodeStreamOptions {
  std::string server;  // host:port
  BackoffOptions backoff;
  Nanos connect_limit{5'000'000'000};
  uint64_t seed = 0;             // for the jitter of the backoff
  CredentialSource credentials;  // null: plain text
};

template <class Report, class Desired>
class NodeStream {
 public:
  using Wire = grpc::ClientReaderWriter<Report, Desired>;
  // Opens the stream on a connected channel.
  using Open = std::function<std::unique_ptr<Wire>(const std::shared_ptr<grpc::Channel>&, grpc::ClientContext*)>;

  NodeStream(NodeStreamOptions options, Open open, WakeEvent& wake)
      : options_(std::move(options)), open_(std::move(open)), wake_(wake), thread_([this] { Run(); }) {}
  NodeStream(const NodeStream&) = delete;
  NodeStream& operator=(const NodeStream&) = delete;
  ~NodeStream() { Stop(); }

  // The number of the present stream, which is larger for each new stream; 0: there is no stream. When the number changes, the
  // owner sends its full state.
  int64_t attachment() const {
    std::lock_guard lock(mutex_);
    return attached_ ? attachments_ : 0;
  }

  // True if there is a stream and the server has accepted it, that is, has sent something on it.
  bool accepted() const {
    std::lock_guard lock(mutex_);
    return attached_ && accepted_;
  }

  // True if TrySend would accept a report now.
  bool CanSend() const {
    std::lock_guard lock(mutex_);
    return attached_ && !outbox_.has_value() && !writing_;
  }

  // Takes over a report to be written. Returns false and takes nothing if there is no stream or another report is still to be
  // written; the WakeEvent tells when to try again. If the stream ends before the report is written, the report is lost.
  bool TrySend(Report& report) {
    std::lock_guard lock(mutex_);
    if (!attached_ || outbox_.has_value() || writing_) return false;
    outbox_ = std::move(report);
    changed_.notify_all();
    return true;
  }

  // Returns all desired states that came since the last call, in order.
  std::vector<Desired> TakeDesired() {
    std::lock_guard lock(mutex_);
    std::vector<Desired> taken(std::make_move_iterator(inbox_.begin()), std::make_move_iterator(inbox_.end()));
    inbox_.clear();
    changed_.notify_all();
    return taken;
  }

  // Writes the waiting report, half-closes the stream, gives the server a moment to end it, and joins the threads. Bounded;
  // idempotent.
  void Stop() {
    {
      std::unique_lock lock(mutex_);
      stop_ = true;
      changed_.notify_all();
      changed_.wait_for(lock, kFarewell, [this] { return !writing_; });
      // Cancels a write in progress, which would wait as long as the server does not read.
      if (writing_) context_->TryCancel();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  static constexpr size_t kInboxLimit = 16;
  static constexpr std::chrono::milliseconds kFarewell{500};

  void Run() {
    Backoff backoff(options_.backoff, options_.seed);
    std::string last_failure;
    while (!stop_) {
      absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
          Dial(options_.server, options_.connect_limit, stop_, options_.credentials);
      std::string failure;
      if (channel.ok()) {
        const Outcome outcome = Attend(*channel);
        if (outcome.accepted) backoff.Reset();
        failure = outcome.text;
      } else {
        failure = std::string(channel.status().message());
      }
      if (stop_) return;
      // While the server stays away, only the first failure of a kind is logged, not each attempt.
      if (failure != last_failure) spdlog::warn("{}; trying again", failure);
      last_failure = failure;
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::nanoseconds(backoff.Next().value), [this] { return stop_.load(); });
    }
  }

  struct Outcome {
    bool accepted = false;  // the server has sent something
    std::string text;
  };

  // Runs one stream from its opening to its end.
  Outcome Attend(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    const std::unique_ptr<Wire> wire = open_(channel, &context);
    {
      std::lock_guard lock(mutex_);
      attached_ = true;
      context_ = &context;
      broken_ = false;
      accepted_ = false;
      ++attachments_;
    }
    wake_.Raise();
    std::thread reader([this, &wire] { ReadAll(*wire); });
    WriteAll(*wire, context);
    reader.join();
    const grpc::Status status = wire->Finish();
    Outcome outcome;
    {
      std::lock_guard lock(mutex_);
      attached_ = false;
      context_ = nullptr;
      outbox_.reset();
      outcome.accepted = accepted_;
    }
    wake_.Raise();
    outcome.text =
        "the stream to the server at " + options_.server + " has ended" + (status.ok() ? "" : ": " + status.error_message());
    return outcome;
  }

  void ReadAll(Wire& wire) {
    Desired desired;
    while (wire.Read(&desired)) {
      {
        std::unique_lock lock(mutex_);
        accepted_ = true;
        changed_.wait(lock, [this] { return inbox_.size() < kInboxLimit || stop_; });
        inbox_.push_back(std::move(desired));
      }
      wake_.Raise();
      desired = Desired();
    }
    std::lock_guard lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }

  // Runs until the stream breaks or Stop is called. When it returns, the stream has ended or is about to end, so the reader
  // thread ends, too.
  void WriteAll(Wire& wire, grpc::ClientContext& context) {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || broken_ || outbox_.has_value(); });
      if (broken_ || !outbox_.has_value()) break;
      const Report report = *std::exchange(outbox_, std::nullopt);
      writing_ = true;
      lock.unlock();
      const bool written = wire.Write(report);
      lock.lock();
      writing_ = false;
      changed_.notify_all();
      if (!written) break;
      lock.unlock();
      wake_.Raise();
      lock.lock();
    }
    if (stop_ && !broken_) {
      lock.unlock();
      wire.WritesDone();
      lock.lock();
      changed_.wait_for(lock, kFarewell, [this] { return broken_; });
      if (!broken_) context.TryCancel();
    }
  }

  const NodeStreamOptions options_;
  const Open open_;
  WakeEvent& wake_;
  std::atomic<bool> stop_{false};  // set while mutex_ is held; read without it

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::optional<Report> outbox_;
  std::deque<Desired> inbox_;
  grpc::ClientContext* context_ = nullptr;  // set while the node is attached
  int64_t attachments_ = 0;
  bool attached_ = false;
  bool writing_ = false;
  bool broken_ = false;    // the present stream can no longer be read
  bool accepted_ = false;  // something has been read from the present stream

  std::thread thread_;  // the last member, because it uses the others
};

}  // namespace lynx

#endif  // LYNX_NODE_STREAM_H_
