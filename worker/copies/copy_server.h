// CopyServer: what a rank does for others' copies: takes in the shards that they send to its node, and hands out those that its
// node has. On threads of its own, of low priority, one for each connection; they end with it.
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
  std::string host;        // numeric, to listen on
  CheckpointIdentity run;  // of the generation; its step does not matter
  int32_t most_connections = 0;
  int64_t pacing_bytes_per_second = 0;
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
  void Serve(const CopyToken& token, std::vector<std::string> taken);
  // Ends every connection and its thread; shards that were being taken in are none.
  void Stop();

 private:
  struct Connection {
    std::unique_ptr<CopyLink> link;
    std::thread thread;
    bool done = false;  // guarded by mutex_
  };

  CopyServer(CopyServerOptions options, const CopyStore& store) : options_(std::move(options)), store_(store) {}

  void Accept();
  void ServeConnection(CopyLink& link);
  absl::Status TakeIn(const CopyRequest& request, CopyLink& link) const;
  absl::Status HandOut(const CopyRequest& request, CopyLink& link) const;

  const CopyServerOptions options_;
  const CopyStore& store_;
  OwnedFd listener_, wake_;  // wake_: an eventfd that ends Accept
  int32_t port_ = 0;
  CopyToken token_{};
  std::vector<std::string> taken_;
  std::thread acceptor_;
  std::mutex mutex_;
  std::list<Connection> connections_;  // guarded by mutex_
};

// A thread that gives way to training's, with a name of at most 15 letters; signals are left to others.
std::thread StartCopyThread(const char* name, std::function<void()> run);

}  // namespace lynx

#endif  // LYNX_WORKER_COPIES_COPY_SERVER_H_
