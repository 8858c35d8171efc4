// LeaseWatch: what a server that stands by sees of the store: who leads, and what all servers share. It has its own
// connection, and connects again if the connection is lost. It changes only the server's own row in the list of servers. Not
// thread-safe.
#ifndef LYNX_SERVER_STORE_LEASE_WATCH_H_
#define LYNX_SERVER_STORE_LEASE_WATCH_H_

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/postgres_connection.h"
#include "server/store/server_lease.h"

namespace lynx::server {

class LeaseWatch {
 public:
  struct View {
    // The lease may be taken: it has run out, or the database has no table of it yet.
    bool free = false;
    std::chrono::milliseconds left{0};  // time until the lease is free, if nobody renews it
    int64_t epoch = 0;
    std::string leader;  // HOST:PORT of the server that has the lease; empty: nobody has it, or it takes no calls
    // The leader's --encrypt-ranks. If no server has the lease, it is that of the last leader, while another server with this
    // value is there. Empty: not known.
    std::string encryption;
  };

  LeaseWatch(std::string url, ServerIdentity own, const LeaseTimes& times)
      : url_(std::move(url)), times_(times), own_(std::move(own)) {}

  // Who leads now, by the database's clock. Enters this server in the list of servers. Unavailable: the database cannot be
  // reached.
  absl::StatusOr<View> Look();
  // See Store::LoadShared; empty if no server has led yet.
  absl::StatusOr<std::map<std::string, std::string>> LoadShared();

  void SetAddress(const std::string& address) { own_.address = address; }

 private:
  absl::Status Connect();

  const std::string url_;
  const LeaseTimes times_;
  ServerIdentity own_;
  std::unique_ptr<PostgresConnection> connection_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_LEASE_WATCH_H_
