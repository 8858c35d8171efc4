// NodeStream: a node's side of a Cluster stream. It connects to the server that leads, keeps one bidirectional stream open, and
// connects again whenever the stream ends. The owner sends reports and takes desired states. The owner never waits for the
// network. The owner sees the loss of the server only in `attachment` and `accepted`.
//
//   dial ----------> attached (owner sends its full state) ------> stream ends
//     ^  refused, timed out: next address                               |
//     +--------------------- next address <-----------------------------+
//
// Which address comes next, and when a round over all addresses ends, says node/server_addresses.h. After each round, and after
// the loss of a server that had answered, the stream waits with bounded exponential backoff.
//
// A NodeStream has two threads: one connects and writes, the other reads. Only the owner's thread calls TakeDesired, TrySend
// and attachment. The WakeEvent is raised after every change that may concern the owner. Bounded: at most one report waits to
// be written. At most kInboxLimit desired states wait to be taken; when this number waits, reading pauses.
#ifndef LYNX_NODE_STREAM_H_
#define LYNX_NODE_STREAM_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "node/backoff.h"
#include "node/channel.h"
#include "node/log.h"
#include "node/server_addresses.h"
#include "node/wake.h"

namespace lynx {

struct NodeStreamOptions {
  ServerAddresses servers;
  BackoffOptions backoff;  // with several servers, `most` is at most kMaxRoundWait
  // Time limit for a connection. The shorter one is for an address of several which nobody has named as the leader's.
  Nanos connect_limit{5'000'000'000}, try_limit{2'000'000'000};
  uint64_t seed = 0;             // for the jitter of the backoff
  CredentialSource credentials;  // null: plain text
};

// The longest wait between two rounds over several addresses.
inline constexpr Nanos kMaxRoundWait{1'000'000'000};

template <class Report, class Desired>
class NodeStream {
 public:
  using Wire = grpc::ClientReaderWriter<Report, Desired>;
  // Opens the stream on a connected channel.
  using Open = std::function<std::unique_ptr<Wire>(const std::shared_ptr<grpc::Channel>&, grpc::ClientContext*)>;

  NodeStream(NodeStreamOptions options, Open open, WakeEvent& wake)
      : options_(std::move(options)), open_(std::move(open)), wake_(wake), servers_(options_.servers),
        thread_([this] { Run(); }) {}
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
    const bool several = servers_.several();
    BackoffOptions pace = options_.backoff;
    if (several) pace.most = std::min(pace.most, kMaxRoundWait);
    Backoff backoff(pace, options_.seed);
    while (!stop_) {
      const Nanos limit = several && !servers_.named() ? options_.try_limit : options_.connect_limit;
      absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
          Dial(servers_.present(), limit, stop_, options_.credentials, PingPaceFor(several));
      Outcome outcome;
      if (channel.ok()) {
        outcome = Attend(*channel);
      } else {
        outcome.text = std::string(channel.status().message());
      }
      if (stop_) return;
      if (outcome.accepted) {
        backoff.Reset();
        servers_.Answered();
        told_.clear();
      }
      Tell(outcome);
      const bool round_over = servers_.Failed(outcome.leader.value_or("")) == ServerAddresses::Next::kAfterWait;
      if (!round_over && !outcome.accepted) continue;
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::nanoseconds(backoff.Next().value), [this] { return stop_.load(); });
    }
  }

  struct Outcome {
    bool accepted = false;              // the server has sent something
    std::optional<std::string> leader;  // as LeaderOf
    std::string text;
  };

  // Logs why the present address failed. While no server answers, only the first failure of each kind of each address is
  // logged.
  void Tell(const Outcome& outcome) {
    std::string& told = told_[servers_.present()];
    if (outcome.text == told) return;
    told = outcome.text;
    const auto level = outcome.leader.has_value() && servers_.Has(*outcome.leader) ? LogLevel::kInfo : LogLevel::kWarn;
    Log(level, "{}; trying {}", outcome.text, servers_.several() ? "the next address" : "again");
  }

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
    outcome.leader = LeaderOf(status, context);
    if (outcome.leader.has_value()) {
      outcome.text = "the server at " + servers_.present() + " " + StandbyText(servers_, *outcome.leader);
    } else {
      outcome.text = "the stream to the server at " + servers_.present() + " has ended" +
                     (status.ok() ? "" : ": " + status.error_message());
    }
    return outcome;
  }

  void ReadAll(Wire& wire) {
    Desired desired;
    while (wire.Read(&desired)) {
      {
        std::unique_lock lock(mutex_);
        if (!accepted_) LogInfo("attached to the server at {}", servers_.present());
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
  // Only thread_ changes servers_, and only while no stream is open, because the reader of an open stream reads it.
  ServerAddresses servers_;
  std::map<std::string, std::string>
      told_;  // only thread_ uses it: the last failure of each address that was logged since a server answered

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
