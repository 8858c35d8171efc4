// JobsService: the RPCs of proto/lynx/v1/jobs.proto. It decodes requests, posts them to the core's event loop, and encodes the
// answers; it decides nothing. Thread-safe; must not outlive the core.
#ifndef LYNX_SERVER_SERVICES_JOBS_SERVICE_H_
#define LYNX_SERVER_SERVICES_JOBS_SERVICE_H_

#include "lynx/v1/jobs.pb.h"
#include "server/access/guard.h"
#include "server/loop/core.h"

namespace lynx::server {

class JobsService {
 public:
  explicit JobsService(ServerCore& core) : core_(core) {}

  grpc::ServerUnaryReactor* SubmitJob(const Call& call, const v1::SubmitJobRequest* request, v1::SubmitJobResponse* response);
  grpc::ServerUnaryReactor* GetJob(const Call& call, const v1::GetJobRequest* request, v1::GetJobResponse* response);
  grpc::ServerUnaryReactor* ListJobs(const Call& call, const v1::ListJobsRequest* request, v1::ListJobsResponse* response);
  grpc::ServerUnaryReactor* CancelJob(const Call& call, const v1::CancelJobRequest* request, v1::CancelJobResponse* response);
  grpc::ServerUnaryReactor* HoldJob(const Call& call, const v1::HoldJobRequest* request, v1::HoldJobResponse* response);
  grpc::ServerUnaryReactor* ReleaseJob(const Call& call, const v1::ReleaseJobRequest* request,
                                       v1::ReleaseJobResponse* response);
  grpc::ServerUnaryReactor* ListQueues(const Call& call, const v1::ListQueuesRequest* request,
                                       v1::ListQueuesResponse* response);
  grpc::ServerUnaryReactor* SetQueue(const Call& call, const v1::SetQueueRequest* request, v1::SetQueueResponse* response);
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(const Call& call, const v1::WatchJobRequest* request);
  grpc::ServerUnaryReactor* GetLogs(const Call& call, const v1::GetLogsRequest* request, v1::GetLogsResponse* response);
  grpc::ServerUnaryReactor* TraceJob(const Call& call, const v1::TraceJobRequest* request, v1::TraceJobResponse* response);

  // The answers to GetJob and TraceJob. Owner thread only.
  absl::Status FillJob(const v1::GetJobRequest& request, v1::GetJobResponse& response);
  absl::Status FillTrace(const v1::TraceJobRequest& request, v1::TraceJobResponse& response);

 private:
  template <class Response>
  grpc::ServerUnaryReactor* ChangeJob(const Call& call, const std::string& name, const std::string& reason, Response* response,
                                      std::function<EventBody(int64_t, const JobId&)> make);
  void BeginWatch(const std::string& job, const std::string& who, const std::shared_ptr<WatchStream>& stream, JobId& watched);

  ServerCore& core_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_SERVICES_JOBS_SERVICE_H_
