// CallMeter: counts and times the calls of our services that one message answers, as gRPC sees them: from their arrival until
// the answer is handed over, with those that the guard refuses. Streams have no meter, and cost nothing. Thread-safe.
#ifndef LYNX_SERVER_METRICS_CALL_METER_H_
#define LYNX_SERVER_METRICS_CALL_METER_H_

#include <grpcpp/support/server_interceptor.h>

#include <string>

#include "common/clock.h"
#include "server/metrics/metrics.h"

namespace lynx {

// "Jobs.SubmitJob" of "/lynx.v1.Jobs/SubmitJob"; empty: a service that is not ours.
std::string MethodOfPath(const std::string& path);

class CallMeter : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  // `metrics` and `clock` outlive the gRPC server.
  CallMeter(ServerMetrics& metrics, const Clock& clock) : metrics_(metrics), clock_(clock) {}

  // Null for calls without a meter, which gRPC then leaves alone.
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override;

 private:
  ServerMetrics& metrics_;
  const Clock& clock_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_METRICS_CALL_METER_H_
