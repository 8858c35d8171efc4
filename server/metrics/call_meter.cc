// See call_meter.h.
#include "server/metrics/call_meter.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace lynx::server {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::ServerRpcInfo;

class OneCall : public grpc::experimental::Interceptor {
 public:
  OneCall(ServerMetrics& metrics, const Clock& clock, std::string method)
      : metrics_(metrics), clock_(clock), method_(std::move(method)), began_(clock.Monotonic()) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const auto code =
          static_cast<absl::StatusCode>(batch->GetSendStatus().error_code());  // gRPC and absl number the codes alike
      metrics_.Called(method_, absl::StatusCodeToString(code), clock_.Monotonic() - began_);
    }
    batch->Proceed();
  }

 private:
  ServerMetrics& metrics_;
  const Clock& clock_;
  const std::string method_;
  const Nanos began_;
};

}  // namespace

std::string MethodOfPath(const std::string& path) {
  absl::string_view method = path;
  return absl::ConsumePrefix(&method, "/lynx.v1.") ? absl::StrReplaceAll(method, {{"/", "."}}) : "";
}

grpc::experimental::Interceptor* CallMeter::CreateServerInterceptor(ServerRpcInfo* info) {
  // Calls with one request and one response are registered as calls whose client may send a stream
  // (server/services/guarded_services.h).
  if (info->type() != ServerRpcInfo::Type::CLIENT_STREAMING) return nullptr;
  std::string method = MethodOfPath(info->method());
  if (method.empty()) return nullptr;
  ServerMetrics* const metrics = metrics_;
  if (metrics == nullptr) return nullptr;
  return new OneCall(*metrics, clock_, std::move(method));  // gRPC deletes it with the call
}

}  // namespace lynx::server
