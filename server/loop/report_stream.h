// ReportStream: the server's side of the stream of one agent or worker daemon. It reads a report, passes it to the handler, and
// reads the next report only when the first one is handled. So flow control slows down a node that reports faster than the
// server works. It writes the newest desired state. If a newer state arrives while an older one waits for the end of a write,
// the older one is never sent.
//
// Thread-safe: everything runs on a strand. The stream keeps itself alive until gRPC is done with the call; the table of
// streams shares the ownership.
#ifndef LYNX_SERVER_LOOP_REPORT_STREAM_H_
#define LYNX_SERVER_LOOP_REPORT_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/loop/strand.h"
#include "server/wire/grpc_status.h"

namespace lynx::server {

template <class Report, class Desired>
class ReportStream : public grpc::ServerBidiReactor<Report, Desired>,
                     public std::enable_shared_from_this<ReportStream<Report, Desired>> {
 public:
  // Handles a report, and calls `next` when the stream may read the next report. If it returns an error, the stream ends.
  using OnReport = std::function<absl::Status(const Report&, std::function<void()> next)>;
  // Called once, when the stream has ended.
  using OnEnd = std::function<void()>;

  ReportStream(OnReport on_report, OnEnd on_end) : on_report_(std::move(on_report)), on_end_(std::move(on_end)) {}

  // Keeps the stream alive until gRPC is done with it.
  void Start() {
    self_ = this->shared_from_this();
    ReadNext();
  }

  void Send(Desired desired) {
    Post([this, desired = std::move(desired)]() mutable {
      if (closing_.has_value()) return;
      next_ = std::move(desired);
      WriteNext();
    });
  }

  // Sends a message that is not a desired state. It is sent before desired states that wait. If SendBeside is called again
  // before the message is sent, only the newer message is sent.
  void SendBeside(Desired message) {
    Post([this, message = std::move(message)]() mutable {
      if (closing_.has_value()) return;
      beside_ = std::move(message);
      WriteNext();
    });
  }

  void Close(absl::Status status) {
    Post([this, status = std::move(status)] {
      if (closing_.has_value()) return;
      closing_ = status;
      FinishIfIdle();
    });
  }

 private:
  void OnReadDone(bool ok) override {
    Post([this, ok] {
      if (closing_.has_value()) return;
      absl::Status status;
      if (ok) status = on_report_(std::exchange(report_, {}), [self = this->shared_from_this()] { self->ReadNext(); });
      if (ok && status.ok()) return;
      closing_ = status;  // OK: the node has closed its side
      FinishIfIdle();
    });
  }

  void OnWriteDone(bool ok) override {
    Post([this, ok] {
      writing_ = false;
      desired_ = {};
      if (!ok && !closing_.has_value()) closing_ = absl::UnavailableError("the stream broke");
      FinishIfIdle();
      if (!closing_.has_value()) WriteNext();
    });
  }

  void OnDone() override {
    on_end_();
    // The stream still exists while closures wait on the strand, because they share its ownership.
    self_.reset();
  }

  void ReadNext() {
    Post([this] {
      if (!closing_.has_value()) this->StartRead(&report_);
    });
  }

  void WriteNext() {
    std::optional<Desired>& first = beside_.has_value() ? beside_ : next_;
    if (writing_ || !first.has_value()) return;
    writing_ = true;
    desired_ = *std::exchange(first, std::nullopt);
    this->StartWrite(&desired_);
  }

  // gRPC accepts the status only when no write is in progress.
  void FinishIfIdle() {
    if (!closing_.has_value() || writing_ || finished_) return;
    finished_ = true;
    this->Finish(ToGrpc(*closing_));
  }

  template <class Closure>
  void Post(Closure closure) {
    strand_.Post([self = this->shared_from_this(), closure = std::move(closure)]() mutable { closure(); });
  }

  const OnReport on_report_;
  const OnEnd on_end_;
  Strand strand_;
  std::shared_ptr<ReportStream> self_;

  // Used only on the strand. gRPC also uses report_ while it reads and desired_ while it writes. At other times both are empty,
  // because for thousands of nodes their content would take hundreds of MiB.
  Report report_;
  Desired desired_;
  std::optional<Desired> next_, beside_;
  std::optional<absl::Status> closing_;
  bool writing_ = false;
  bool finished_ = false;
};

// All open streams by their numbers. Thread-safe.
template <class Stream>
class StreamTable {
 public:
  void Add(int64_t id, std::shared_ptr<Stream> stream) {
    std::lock_guard lock(mutex_);
    streams_[id] = std::move(stream);
  }
  void Remove(int64_t id) {
    std::lock_guard lock(mutex_);
    streams_.erase(id);
  }
  // Returns the stream with this number; nullptr: the stream has ended.
  std::shared_ptr<Stream> Find(int64_t id) const {
    std::lock_guard lock(mutex_);
    const auto found = streams_.find(id);
    return found == streams_.end() ? nullptr : found->second;
  }
  std::vector<std::shared_ptr<Stream>> All() const {
    std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Stream>> all;
    for (const auto& [id, stream] : streams_) all.push_back(stream);
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<Stream>> streams_;  // guarded by mutex_
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_LOOP_REPORT_STREAM_H_
