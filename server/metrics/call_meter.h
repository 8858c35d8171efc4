// CallMeter: counts and times the unary calls of Lynx's services, from their arrival at gRPC until the answer is given to gRPC.
// Calls that the guard refuses count, too. Streams are not measured. Thread-safe.
#ifndef LYNX_SERVER_METRICS_CALL_METER_H_
#define LYNX_SERVER_METRICS_CALL_METER_H_

#include <grpcpp/support/server_interceptor.h>

#include <atomic>
#include <string>

#include "common/clock.h"
#include "server/metrics/metrics.h"

namespace lynx::server {

// The path "/lynx.v1.Jobs/SubmitJob" gives "Jobs.SubmitJob"; empty: the path is not of a service in lynx.v1.
std::string MethodOfPath(const std::string& path);

class CallMeter : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  // `metrics`: null as long as this server stands by; then calls are not measured. All must outlive the gRPC server.
  CallMeter(const std::atomic<ServerMetrics*>& metrics, const Clock& clock) : metrics_(metrics), clock_(clock) {}

  // Null for calls that are not measured; gRPC then adds no interceptor.
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override;

 private:
  const std::atomic<ServerMetrics*>& metrics_;
  const Clock& clock_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_METRICS_CALL_METER_H_
