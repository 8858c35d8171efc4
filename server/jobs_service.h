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
  grpc::ServerUnaryReactor* HoldJob(grpc::CallbackServerContext* context, const v1::HoldJobRequest* request,
                                    v1::HoldJobResponse* response) override;
  grpc::ServerUnaryReactor* ReleaseJob(grpc::CallbackServerContext* context, const v1::ReleaseJobRequest* request,
                                       v1::ReleaseJobResponse* response) override;
  grpc::ServerUnaryReactor* ListQueues(grpc::CallbackServerContext* context, const v1::ListQueuesRequest* request,
                                       v1::ListQueuesResponse* response) override;
  grpc::ServerUnaryReactor* SetQueue(grpc::CallbackServerContext* context, const v1::SetQueueRequest* request,
                                     v1::SetQueueResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(grpc::CallbackServerContext* context,
                                                           const v1::WatchJobRequest* request) override;
  grpc::ServerUnaryReactor* GetLogs(grpc::CallbackServerContext* context, const v1::GetLogsRequest* request,
                                    v1::GetLogsResponse* response) override;
  grpc::ServerUnaryReactor* TraceJob(grpc::CallbackServerContext* context, const v1::TraceJobRequest* request,
                                     v1::TraceJobResponse* response) override;

 private:
  absl::Status FillJob(const v1::GetJobRequest& request, v1::GetJobResponse& response);
  absl::Status FillTrace(const v1::TraceJobRequest& request, v1::TraceJobResponse& response);
  template <class Response>
  grpc::ServerUnaryReactor* ChangeJob(grpc::CallbackServerContext* context, const std::string& name, const std::string& reason,
                                      Response* response, std::function<EventBody(int64_t, const JobId&)> make);
  void BeginWatch(const std::string& job, const std::shared_ptr<WatchStream>& stream, JobId& watched);

  ServerCore& core_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_JOBS_SERVICE_H_
