#include "tests/worker/collectives/wire_tap.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <list>
#include <vector>

#include "worker/collectives/communicator.h"

namespace lynx::worker {
namespace {

// The bytes from one end to the other.
struct Direction {
  int from = -1, to = -1;
  bool connecting = false;  // true: from the end that opened the connection
  int64_t passed = 0;
  bool over = false;
  std::string seen;
};

void SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    if (errno != EAGAIN) return;  // the other end is gone
    pollfd polled{fd, POLLOUT, 0};
    poll(&polled, 1, 1000);
  }
}

}  // namespace

WireTap::WireTap(PeerAddress target, Change change) : target_(std::move(target)), change_(std::move(change)) {
  const absl::StatusOr<ListeningSocket> listening = ListenTcp(target_.host);
  EXPECT_TRUE(listening.ok());
  listener_ = UniqueFd(listening->fd);
  port_ = listening->port;
  thread_ = std::thread([this] { Run(); });
}

WireTap::~WireTap() {
  stop_ = true;
  thread_.join();
}

std::string WireTap::Seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

void WireTap::Run() {
  std::list<UniqueFd> sockets;
  std::list<Direction> directions;
  std::string buffer(256 * 1024, '\0');
  while (!stop_) {
    std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
    for (const Direction& direction : directions) polled.push_back({direction.over ? -1 : direction.from, POLLIN, 0});
    poll(polled.data(), polled.size(), 20);
    auto at = polled.begin() + 1;
    for (Direction& direction : directions) {
      if ((at++)->revents == 0) continue;
      const ssize_t got = recv(direction.from, buffer.data(), buffer.size(), 0);
      if (got < 0 && errno == EAGAIN) continue;
      if (got <= 0) {
        shutdown(direction.to, SHUT_WR);
        direction.over = true;
        continue;
      }
      std::string bytes = buffer.substr(0, static_cast<size_t>(got));
      if (direction.connecting && change_ != nullptr) change_(direction.passed, bytes);
      direction.passed += got;
      direction.seen += bytes;
      SendAll(direction.to, bytes);
    }
    const std::lock_guard lock(mutex_);
    seen_.clear();
    for (const Direction& direction : directions) seen_ += direction.seen;
    UniqueFd accepted(polled[0].revents != 0 ? accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK) : -1);
    if (!accepted.valid()) continue;
    absl::StatusOr<UniqueFd> onward = BeginConnect(target_);
    EXPECT_TRUE(onward.ok()) << onward.status();
    directions.push_back({accepted.get(), onward->get(), true});
    directions.push_back({onward->get(), accepted.get()});
    sockets.push_back(std::move(accepted));
    sockets.push_back(*std::move(onward));
  }
}

}  // namespace lynx::worker
