// CopyServer: how a rank serves other ranks' in-memory checkpoints. It receives the shards that they send to its node, and
// sends the shards that its node has. It has threads of its own, with low priority, one for each connection; a thread ends with
// its connection. A connection that does not prove its identity within ten seconds is refused. If there are too many such
// connections, the oldest is refused earlier.
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

namespace lynx::worker {

struct CopyServerOptions {
  std::string host;              // numeric address to listen on
  CheckpointIdentity run;        // of the generation; the step is not used
  std::string secret;            // of the generation
  int32_t rank = 0;              // the serving rank
  int32_t most_connections = 0;  // limit for connections that have proven their identity
  int64_t pacing_bytes_per_second = 0;
  // Receives a line for each connection that is refused, with the reason; the number of lines is bounded. Called from any
  // thread. May be null.
  std::function<void(const std::string&)> tell;
};

class CopyServer {
 public:
  // Listens, but serves no connection before Serve. The store outlives the server.
  static absl::StatusOr<std::unique_ptr<CopyServer>> Listen(CopyServerOptions options, const CopyStore& store);
  ~CopyServer();
  CopyServer(const CopyServer&) = delete;
  CopyServer& operator=(const CopyServer&) = delete;

  int32_t port() const { return port_; }
  // Call it once. `taken`: the shards that other ranks send here.
  void Serve(std::vector<std::string> taken);
  // Ends every connection and its thread. A shard that was not yet received completely does not count as a copy.
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
  // Removes ended connections, and refuses the oldest connection without a proof if there are too many. Returns false if there
  // is no room for one more connection. The caller holds the lock.
  bool MakeRoom();
  // Refuses the connection and reports `why`. The caller holds the lock.
  void TurnAway(Connection& connection, const std::string& why);
  // True if the connection has proven that it belongs to the generation.
  bool Admit(Connection& connection);
  void ServeConnection(CopyLink& link);
  absl::Status TakeIn(const CopyRequest& request, CopyLink& link) const;
  absl::Status HandOut(const CopyRequest& request, CopyLink& link) const;

  const CopyServerOptions options_;
  const CopyStore& store_;
  UniqueFd listener_, wake_;  // wake_: an eventfd that ends Accept
  int32_t port_ = 0;
  std::vector<std::string> taken_;
  std::thread acceptor_;
  std::mutex mutex_;
  std::list<Connection> connections_;  // guarded by mutex_; oldest first
  int told_ = 0;                       // guarded by mutex_
};

// Starts a thread whose priority is lower than that of training's threads. Its name has at most 15 letters. It blocks signals,
// so that other threads get them.
std::thread StartCopyThread(const char* name, std::function<void()> run);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPY_SERVER_H_
