// CopyServer: what a rank does for others' copies: takes in the shards that they send to its node, and hands out those that its
// node has. On threads of its own, of low priority, one for each connection; they end with it. Who has proven nothing within
// ten seconds is turned away, or earlier where too many like it come.
//
// Thread-safe.
#ifndef LYNX_WORKER_COPIES_COPY_SERVER_H_
#define LYNX_WORKER_COPIES_COPY_SERVER_H_

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/copies/copy_link.h"
#include "worker/copies/copy_store.h"

namespace lynx {

struct CopyServerOptions {
  std::string host;              // numeric, to listen on
  CheckpointIdentity run;        // of the generation; its step does not matter
  std::string secret;            // of the generation
  int32_t rank = 0;              // that serves
  int32_t most_connections = 0;  // that have proven to be of the generation
  int64_t pacing_bytes_per_second = 0;
  // Is told whom it turns away, and why: a line each, of a bounded number, from any thread. May be null.
  std::function<void(const std::string&)> tell;
};

class CopyServer {
 public:
  // Listens and serves nobody yet. The store outlives it.
  static absl::StatusOr<std::unique_ptr<CopyServer>> Listen(CopyServerOptions options, const CopyStore& store);
  ~CopyServer();
  CopyServer(const CopyServer&) = delete;
  CopyServer& operator=(const CopyServer&) = delete;

  int32_t port() const { return port_; }
  // Once. `taken`: the shards that are sent here.
  void Serve(std::vector<std::string> taken);
  // Ends every connection and its thread; shards that were being taken in are none.
  void Stop();

 private:
  struct Connection {
    enum class State : uint8_t { kProving, kServed, kTurnedAway, kDone };
    std::unique_ptr<CopyLink> link;
    std::string from;  // its address
    std::thread thread;
    State state = State::kProving;  // guarded by mutex_
  };

  CopyServer(CopyServerOptions options, const CopyStore& store) : options_(std::move(options)), store_(store) {}

  void Accept();
  // Makes room for one more that has proven nothing yet; false: there is none. Holds the lock.
  bool MakeRoom();
  // Holds the lock.
  void TurnAway(Connection& connection, const std::string& why);
  // Whether it has proven to be of the generation.
  bool Admit(Connection& connection);
  void ServeConnection(CopyLink& link);
  absl::Status TakeIn(const CopyRequest& request, CopyLink& link) const;
  absl::Status HandOut(const CopyRequest& request, CopyLink& link) const;

  const CopyServerOptions options_;
  const CopyStore& store_;
  OwnedFd listener_, wake_;  // wake_: an eventfd that ends Accept
  int32_t port_ = 0;
  std::vector<std::string> taken_;
  std::thread acceptor_;
  std::mutex mutex_;
  std::list<Connection> connections_;  // guarded by mutex_; oldest first
  int told_ = 0;                       // guarded by mutex_
};

// A thread that gives way to training's, with a name of at most 15 letters; signals are left to others.
std::thread StartCopyThread(const char* name, std::function<void()> run);

}  // namespace lynx

#endif  // LYNX_WORKER_COPIES_COPY_SERVER_H_
