// JobsService: the RPCs of proto/lynx/v1/jobs.proto. It only decodes, posts to the core's loop and encodes. Thread-safe;
// must not outlive the core.
#ifndef LYNX_SERVER_JOBS_SERVICE_H_
#define LYNX_SERVER_JOBS_SERVICE_H_

#include "lynx/v1/jobs.grpc.pb.h"
#include "server/core.h"

namespace lynx {

class JobsService : public v1::Jobs::CallbackService {
 public:
  explicit JobsService(ServerCore& core) : core_(core) {}

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context, const v1::SubmitJobRequest* request,
                                      v1::SubmitJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context, const v1::CancelJobRequest* request,
                                      v1::CancelJobResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(grpc::CallbackServerContext* context,
                                                           const v1::WatchJobRequest* request) override;
  grpc::ServerUnaryReactor* GetLogs(grpc::CallbackServerContext* context, const v1::GetLogsRequest* request,
                                    v1::GetLogsResponse* response) override;
  grpc::ServerUnaryReactor* TraceJob(grpc::CallbackServerContext* context, const v1::TraceJobRequest* request,
                                     v1::TraceJobResponse* response) override;

 private:
  absl::Status FillJob(const v1::GetJobRequest& request, v1::GetJobResponse& response);
  absl::Status FillTrace(const v1::TraceJobRequest& request, v1::TraceJobResponse& response);
  void BeginWatch(const std::string& job, const std::shared_ptr<WatchStream>& stream, JobId& watched);

  ServerCore& core_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_JOBS_SERVICE_H_
