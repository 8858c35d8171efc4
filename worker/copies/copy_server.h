// CopyServer serves the in-memory checkpoints of a rank's node to other ranks. It receives the shards that they send to this
// node, and sends the shards that this node has. It has one thread of low priority for each connection; a thread ends with its
// connection. A connection that does not prove its identity within ten seconds is refused. If there are too many such
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
  CheckpointIdentity run;        // the run of the generation; its step is not used
  std::string secret;            // the connection secret of the generation
  int32_t rank = 0;              // the serving rank
  bool encrypt = false;          // has the meaning of the field in CopyEnds
  int32_t most_connections = 0;  // limit for connections that have proven their identity
  int64_t pacing_bytes_per_second = 0;
  // Receives a line for each connection that is refused, with the reason. It receives at most a fixed number of lines. Any
  // thread may call it. May be null.
  std::function<void(const std::string&)> tell;
};

class CopyServer {
 public:
  // Opens the listening socket. No connection is served before the call of Serve. The store must live longer than the server.
  static absl::StatusOr<std::unique_ptr<CopyServer>> Listen(CopyServerOptions options, const CopyStore& store);
  ~CopyServer();
  CopyServer(const CopyServer&) = delete;
  CopyServer& operator=(const CopyServer&) = delete;

  int32_t port() const { return port_; }
  // Begins to serve connections. Call it once. `taken`: the shards that other ranks send to this node.
  void Serve(std::vector<std::string> taken);
  // Ends every connection and its thread. A shard that has not been received completely does not become a copy.
  void Stop();

 private:
  struct Connection {
    enum class State : uint8_t { kProving, kServed, kTurnedAway, kDone };
    std::unique_ptr<CopyLink> link;
    std::string from;  // the address of the other side
    std::thread thread;
    State state = State::kProving;  // guarded by mutex_
  };

  CopyServer(CopyServerOptions options, const CopyStore& store) : options_(std::move(options)), store_(store) {}

  void Accept();
  // Removes ended connections. If too many connections are without a proof, refuses the oldest of them. Returns false if there
  // is no room for one more connection. The caller holds the lock.
  bool MakeRoom();
  void Tell(const std::string& line);  // the caller holds the lock
  // Refuses the connection and reports `why`. The caller holds the lock.
  void TurnAway(Connection& connection, const std::string& why);
  // Returns true if the connection may be served: it has proven that it belongs to the generation, and fewer than
  // `most_connections` are served.
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

// Starts a thread whose priority is lower than that of training's threads. `name` has at most 15 letters. The thread blocks all
// signals, so that other threads get them.
std::thread StartCopyThread(const char* name, std::function<void()> run);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPY_SERVER_H_
