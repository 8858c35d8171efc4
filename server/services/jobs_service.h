// JobsService: the RPCs of proto/lynx/v1/jobs.proto. It decodes requests, posts them to the core's event loop, and encodes the
// answers. It decides only whether the caller may change the job (server/access/job_permissions.h). Thread-safe; must not
// outlive the core.
#ifndef LYNX_SERVER_SERVICES_JOBS_SERVICE_H_
#define LYNX_SERVER_SERVICES_JOBS_SERVICE_H_

#include "lynx/v1/jobs.pb.h"
#include "server/access/guard.h"
#include "server/loop/core.h"

namespace lynx::server {

class JobsService {
 public:
  // `book`: the users; it must outlive the service.
  JobsService(ServerCore& core, const AccessBook& book) : core_(core), book_(book) {}

  void SubmitJob(const Call& call, const v1::SubmitJobRequest* request, v1::SubmitJobResponse* response);
  void GetJob(const Call& call, const v1::GetJobRequest* request, v1::GetJobResponse* response);
  void ListJobs(const Call& call, const v1::ListJobsRequest* request, v1::ListJobsResponse* response);
  void CancelJob(const Call& call, const v1::CancelJobRequest* request, v1::CancelJobResponse* response);
  void HoldJob(const Call& call, const v1::HoldJobRequest* request, v1::HoldJobResponse* response);
  void ReleaseJob(const Call& call, const v1::ReleaseJobRequest* request, v1::ReleaseJobResponse* response);
  void ListQueues(const Call& call, const v1::ListQueuesRequest* request, v1::ListQueuesResponse* response);
  void SetQueue(const Call& call, const v1::SetQueueRequest* request, v1::SetQueueResponse* response);
  grpc::ServerBidiReactor<v1::WatchJobRequest, v1::WatchJobResponse>* WatchJob(const Call& call);
  void GetLogs(const Call& call, const v1::GetLogsRequest* request, v1::GetLogsResponse* response);
  void TraceJob(const Call& call, const v1::TraceJobRequest* request, v1::TraceJobResponse* response);

  // The answers to GetJob and TraceJob. `asker`: see JobTable::Resolve. Owner thread only.
  absl::Status FillJob(const v1::GetJobRequest& request, const std::string& asker, v1::GetJobResponse& response);
  absl::Status FillTrace(const v1::TraceJobRequest& request, const std::string& asker, v1::TraceJobResponse& response);

 private:
  template <class Response>
  void ChangeJob(const Call& call, const std::string& name, const std::string& reason, Response* response,
                 std::function<EventBody(int64_t, const JobId&)> make);
  // Finds the job that the caller may change. PermissionDenied: the caller may not; the refusal is recorded. Other errors are
  // those of JobTable::Resolve. Owner thread only.
  absl::StatusOr<JobId> FindToChange(const std::string& name, const Call& call);
  absl::Status CheckManagers(const Call& call, const QueueConfig& queue) const;
  void BeginWatch(const std::string& job, const Caller& caller, const std::shared_ptr<WatchStream>& stream, JobId& watched);

  ServerCore& core_;
  const AccessBook& book_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_SERVICES_JOBS_SERVICE_H_
