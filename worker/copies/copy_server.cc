#include "worker/copies/copy_server.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
// The niceness of the threads that StartCopyThread starts; the thread that writes checkpoints to disk has the same priority. If
// training wants the same core, such a thread gets about a quarter of the core's time.
constexpr int kNiceness = 5;
// The largest number of connections that have not proven their identity yet.
constexpr int64_t kMaxProving = 16;
// The number of connections that may exist in addition to `most_connections`. This leaves room for connections that are not
// served: they have not proven their identity yet, or they were refused and their threads have not ended yet.
constexpr size_t kMaxStrangers = 64;
// The largest number of lines about refused connections that options_.tell receives.
constexpr int kMaxTold = 10;

// If no descriptor or memory is free, the server waits this long before it accepts again.
constexpr int kRetryAcceptMs = 100;

bool OutOfResources(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

}  // namespace

std::thread StartCopyThread(const char* name, std::function<void()> run) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread([run = std::move(run)] {
    // On Linux this changes the priority of this thread only. If the change is not permitted, the thread keeps its priority.
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceness);
    run();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

absl::StatusOr<std::unique_ptr<CopyServer>> CopyServer::Listen(CopyServerOptions options, const CopyStore& store) {
  std::unique_ptr<CopyServer> server(new CopyServer(std::move(options), store));
  LYNX_ASSIGN_OR_RETURN(const ListeningSocket listening, ListenTcp(server->options_.host));
  server->listener_ = UniqueFd(listening.fd);
  server->port_ = listening.port;
  server->wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->wake_.valid()) return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", std::strerror(errno)));
  return server;
}

CopyServer::~CopyServer() { Stop(); }

void CopyServer::Serve(std::vector<std::string> taken) {
  taken_ = std::move(taken);
  acceptor_ = StartCopyThread("lynx-copies", [this] { Accept(); });
}

void CopyServer::Stop() {
  if (!acceptor_.joinable()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t woken = write(wake_.get(), &one, sizeof(one));
  acceptor_.join();
  listener_.Reset();  // closes the socket, so that peers get an error and do not wait for an answer
  for (Connection& connection : connections_) connection.link->End();
  for (Connection& connection : connections_) connection.thread.join();
  connections_.clear();
}

void CopyServer::Accept() {
  while (true) {
    pollfd polled[] = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    if (poll(polled, 2, -1) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid() && OutOfResources(errno)) {
      // The connection stays in the queue, so the next poll would return at once.
      if (poll(polled, 1, kRetryAcceptMs) > 0) return;
      continue;
    }
    if (!fd.valid() || !ConfigureForCopies(fd.get(), options_.pacing_bytes_per_second).ok()) continue;
    std::lock_guard lock(mutex_);
    if (!MakeRoom()) continue;
    Connection& connection = connections_.emplace_back();
    connection.from = AddressOfPeer(fd.get());
    connection.link = std::make_unique<CopyLink>(std::move(fd));
    connection.thread = StartCopyThread("lynx-copy-in", [this, &connection] {
      if (Admit(connection)) ServeConnection(*connection.link);
      connection.link->End();
      std::lock_guard done(mutex_);
      if (!connection.link->forgery().empty()) Tell(connection.link->forgery());
      connection.state = Connection::State::kDone;
    });
  }
}

bool CopyServer::MakeRoom() {
  for (auto at = connections_.begin(); at != connections_.end();) {
    if (at->state != Connection::State::kDone) {
      ++at;
      continue;
    }
    at->thread.join();
    at = connections_.erase(at);
  }
  const auto proving = [](const Connection& connection) { return connection.state == Connection::State::kProving; };
  if (std::count_if(connections_.begin(), connections_.end(), proving) >= kMaxProving) {
    Connection& oldest = *std::find_if(connections_.begin(), connections_.end(), proving);
    TurnAway(oldest, absl::StrCat(kMaxProving, " connections have proven nothing yet, and another one came"));
    oldest.link->End();
  }
  return connections_.size() < static_cast<size_t>(options_.most_connections) + kMaxStrangers;
}

void CopyServer::TurnAway(Connection& connection, const std::string& why) {
  connection.state = Connection::State::kTurnedAway;
  Tell(absl::StrCat("turned away a connection for copies from ", connection.from, ": ", why));
}

void CopyServer::Tell(const std::string& line) {
  if (++told_ > kMaxTold || options_.tell == nullptr) return;
  options_.tell(absl::StrCat(line, told_ == kMaxTold ? "; further ones are not told of" : ""));
}

bool CopyServer::Admit(Connection& connection) {
  const absl::Status admitted = connection.link->Admit(
      {.secret = options_.secret, .generation = options_.run.generation, .to = options_.rank, .encrypt = options_.encrypt});
  std::lock_guard lock(mutex_);
  if (connection.state != Connection::State::kProving) return false;
  if (!admitted.ok()) {
    TurnAway(connection, std::string(admitted.message()));
    return false;
  }
  const auto served = [](const Connection& other) { return other.state == Connection::State::kServed; };
  if (std::count_if(connections_.begin(), connections_.end(), served) >= options_.most_connections) return false;
  connection.state = Connection::State::kServed;
  return true;
}

// Serves requests until the other side ends the connection or sends bytes that are not a request.
void CopyServer::ServeConnection(CopyLink& link) {
  while (true) {
    CopyRequestBytes bytes;
    if (!link.Receive(bytes).ok()) return;
    const std::optional<CopyRequest> request = DecodeCopyRequest(bytes);
    if (!request.has_value()) return;
    const absl::Status served = request->kind == CopyRequestKind::kPut ? TakeIn(*request, link) : HandOut(*request, link);
    if (!served.ok()) return;
  }
}

// Receives a shard. Returns only errors of the connection. Sends all other errors as the reply, after the sender has sent
// everything.
absl::Status CopyServer::TakeIn(const CopyRequest& request, CopyLink& link) const {
  const auto prepare = [&]() -> absl::StatusOr<UniqueFd> {
    const bool expected = request.key.generation == options_.run.generation &&
                          std::find(taken_.begin(), taken_.end(), request.key.file) != taken_.end();
    if (!expected) return absl::FailedPreconditionError(absl::StrCat("no copy of ", request.key.file, " is kept here"));
    std::optional<CopyKey> replaced;
    if (request.replaced_step >= 0) replaced = CopyKey{request.key.generation, request.replaced_step, request.key.file};
    return store_.BeginShard(request.key, replaced);
  };
  const absl::StatusOr<UniqueFd> file = prepare();
  absl::Status status = file.status();
  Sha256 digest;
  std::vector<char> chunk(std::min<size_t>(kChunkBytes, static_cast<size_t>(request.bytes)));
  for (int64_t left = request.bytes; left > 0;) {
    const std::span<char> part(chunk.data(), std::min<size_t>(chunk.size(), static_cast<size_t>(left)));
    LYNX_RETURN_IF_ERROR(link.Receive(part));
    left -= static_cast<int64_t>(part.size());
    if (!status.ok()) continue;
    digest.Update({part.data(), part.size()});
    status = WriteAll(file->get(), part, store_.ShardPath(request.key));
  }
  std::string told(kCopyDigestBytes, '\0');
  LYNX_RETURN_IF_ERROR(link.Receive(told));
  if (status.ok()) {
    const std::string sha256 = digest.FinishHex();
    CheckpointIdentity identity = options_.run;
    identity.step = request.key.step;
    status = sha256 == told ? store_.Complete({identity, {request.key.file, Bytes(request.bytes), sha256}})
                            : absl::DataLossError(absl::StrCat(request.key.file, " did not arrive as it was sent"));
  }
  if (!status.ok() && file.ok()) store_.Remove(request.key);
  return link.SendReply(status);
}

absl::Status CopyServer::HandOut(const CopyRequest& request, CopyLink& link) const {
  std::vector<char> bytes(static_cast<size_t>(request.bytes));
  const absl::StatusOr<UniqueFd> file = store_.OpenShard(request.key);
  const absl::Status status =
      file.ok() ? ReadAt(file->get(), request.offset, bytes, store_.ShardPath(request.key)) : file.status();
  LYNX_RETURN_IF_ERROR(link.SendReply(status));
  return status.ok() ? link.Send(bytes) : absl::OkStatus();
}

}  // namespace lynx::worker
