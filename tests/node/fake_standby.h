// A server that stands by, for tests of clients: it refuses every call of every service unread, as common/standby.h says.
// Thread-safe.
#ifndef LYNX_TESTS_NODE_FAKE_STANDBY_H_
#define LYNX_TESTS_NODE_FAKE_STANDBY_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace lynx {

class FakeStandby : public grpc::CallbackGenericService {
 public:
  // Listens on a free port of 127.0.0.1. `leader`: the address that it names; "": it knows none.
  explicit FakeStandby(std::string leader = "",
                       const std::shared_ptr<grpc::ServerCredentials>& credentials = grpc::InsecureServerCredentials());
  ~FakeStandby() override;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void SetLeader(const std::string& leader);
  // The number of calls that were refused.
  int refused() const { return refused_; }

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

 private:
  std::mutex mutex_;
  std::string leader_;  // guarded by mutex_
  std::atomic<int> refused_{0};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace lynx

#endif  // LYNX_TESTS_NODE_FAKE_STANDBY_H_
