// Tests a complete server in this process, over real loopback channels. The test acts as the agents and workers.
#include <set>
#include <thread>
#include <tuple>

#include <gmock/gmock.h>

#include "common/version.h"
#include "lynx/v1/admin.grpc.pb.h"
#include "tests/server/services/service_fixture.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;
TEST_F(ServiceTest, SubmitIsIdempotentByKey) {
  v1::SubmitJobResponse first, again, other;
  const grpc::Status status = Submit(MakeSpec(), "key", &first);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(first.existed());
  EXPECT_EQ(first.job().state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(first.job().spec().SerializeAsString(), MakeSpec().SerializeAsString());
  ASSERT_TRUE(Submit(MakeSpec(), "key", &again).ok());
  EXPECT_TRUE(again.existed());
  EXPECT_EQ(again.job().id(), first.job().id());
  const grpc::Status exists = Submit(MakeSpec("other"), "key", &other);
  EXPECT_EQ(exists.error_code(), grpc::ALREADY_EXISTS);
  EXPECT_THAT(exists.error_message(), HasSubstr(first.job().id()));
}

TEST_F(ServiceTest, AServerThatIsAloneListsItself) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::ListServersResponse response;
  const grpc::Status status = v1::Admin::NewStub(channel_)->ListServers(&context, {}, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.servers_size(), 1);
  const v1::ListedServer& server = response.servers(0);
  EXPECT_EQ(server.address(), server_->address());
  EXPECT_EQ(server.role(), v1::SERVER_ROLE_LEADS);
  EXPECT_EQ(server.epoch(), 0) << "there is no lease";
  EXPECT_EQ(server.version(), kVersion);
  EXPECT_EQ(server.encrypt_ranks(), "off");
  EXPECT_GT(server.since_unix_ns(), 0);
  EXPECT_GE(server.seen_unix_ns(), server.since_unix_ns());
}

TEST_F(ServiceTest, BadRequestsNameTheField) {
  v1::SubmitJobResponse response;
  v1::JobSpec bad = MakeSpec();
  bad.mutable_train()->set_global_batch(0);
  grpc::Status status = Submit(bad, "key", &response);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("train.globalBatch is 0"));
  for (const std::string& key : {std::string(), std::string(129, 'k'), std::string("a\nb")}) {
    status = Submit(MakeSpec(), key, &response);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("idempotency_key"));
  }
  grpc::ClientContext context;
  v1::ListJobsRequest list;
  list.set_limit(1001);
  v1::ListJobsResponse listed;
  status = jobs_->ListJobs(&context, list, &listed);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("limit is 1001"));
}

TEST_F(ServiceTest, BadCancellationsAndQuestionsForLogsNameTheField) {
  const auto cancel = [&](bool checkpoint, int64_t grace_ns) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::CancelJobRequest request;
    request.set_job_id("gpt");
    request.set_checkpoint(checkpoint);
    request.set_grace_ns(grace_ns);
    v1::CancelJobResponse response;
    return jobs_->CancelJob(&context, request, &response).error_message();
  };
  EXPECT_THAT(cancel(false, 5), HasSubstr("grace_ns is 5: is for a cancellation with a checkpoint"));
  EXPECT_THAT(cancel(true, -1), HasSubstr("grace_ns is -1"));
  const auto logs = [&](int64_t generation, int64_t after) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::GetLogsRequest request;
    request.set_job_id("gpt");
    request.set_generation(generation);
    request.set_after(after);
    v1::GetLogsResponse response;
    return jobs_->GetLogs(&context, request, &response).error_message();
  };
  EXPECT_THAT(logs(-1, 0), HasSubstr("generation is -1"));
  EXPECT_THAT(logs(0, -1), HasSubstr("after is -1"));
}

TEST_F(ServiceTest, ReasonsHaveNoControlCharacters) {
  const std::string bad = "fans \x1b]0;x\x07",
                    rule = R"(reason is "fans \x1b]0;x\x07": must be one line without control characters)";
  const auto call = [&](auto&& method, auto request, auto response) {
    grpc::ClientContext context;
    SetDeadline(context);
    request.set_reason(bad);
    const grpc::Status status = method(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(rule));
  };
  v1::CordonNodeRequest node;
  node.set_node("n0");
  call([&](auto... a) { return cluster_->CordonNode(a...); }, node, v1::CordonNodeResponse());
  v1::CancelJobRequest cancelled;
  cancelled.set_job_id("gpt");
  call([&](auto... a) { return jobs_->CancelJob(a...); }, cancelled, v1::CancelJobResponse());
  v1::HoldJobRequest held;
  held.set_job_id("gpt");
  call([&](auto... a) { return jobs_->HoldJob(a...); }, held, v1::HoldJobResponse());
}

TEST_F(ServiceTest, AnUnknownJobIsNotFound) {
  EXPECT_EQ(Cancel("nothing").error_code(), grpc::NOT_FOUND);
  {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_job_id("nothing");
    v1::GetJobResponse response;
    const grpc::Status status = jobs_->GetJob(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
    EXPECT_THAT(status.error_message(), HasSubstr("\"nothing\""));
  }
  {
    grpc::ClientContext context;
    v1::GetLogsRequest request;
    request.set_job_id("nothing");
    request.set_rank(-1);
    v1::GetLogsResponse response;
    EXPECT_EQ(jobs_->GetLogs(&context, request, &response).error_code(), grpc::NOT_FOUND);
  }
  grpc::ClientContext context;
  SetDeadline(context);
  v1::WatchJobRequest request;
  request.set_job_id("nothing");
  const auto reader = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::NOT_FOUND);
}

TEST_F(ServiceTest, JobsAreListedNewestFirst) {
  std::vector<std::string> ids;
  for (const char* key : {"a", "b", "c"}) {
    v1::SubmitJobResponse response;
    ASSERT_TRUE(Submit(MakeSpec(std::string("job-") + key), key, &response).ok());
    ids.push_back(response.job().id());
  }
  ASSERT_TRUE(Cancel("job-b").ok());
  const auto list = [&](const std::vector<v1::JobState>& states, int limit) {
    grpc::ClientContext context;
    v1::ListJobsRequest request;
    request.set_limit(limit);
    for (const v1::JobState state : states) request.add_states(state);
    v1::ListJobsResponse response;
    EXPECT_TRUE(jobs_->ListJobs(&context, request, &response).ok());
    std::vector<std::string> listed;
    for (const v1::Job& job : response.jobs()) listed.push_back(job.id());
    return listed;
  };
  EXPECT_EQ(list({}, 0), (std::vector<std::string>{ids[2], ids[1], ids[0]}));
  // Lists the jobs page by page.
  v1::ListJobsRequest request;
  request.set_limit(2);
  v1::ListJobsResponse page;
  grpc::ClientContext first, second, third;
  ASSERT_TRUE(jobs_->ListJobs(&first, request, &page).ok());
  EXPECT_TRUE(page.more());
  request.set_before(page.jobs(1).id());
  ASSERT_TRUE(jobs_->ListJobs(&second, request, &page).ok());
  ASSERT_EQ(page.jobs_size(), 1);
  EXPECT_EQ(page.jobs(0).id(), ids[0]);
  EXPECT_FALSE(page.more());
  request.set_before("nobody");
  const grpc::Status unknown = jobs_->ListJobs(&third, request, &page);
  EXPECT_EQ(unknown.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(unknown.error_message(), "before: no job has the id \"nobody\"");
  EXPECT_EQ(list({v1::JOB_STATE_QUEUED}, 1), (std::vector<std::string>{ids[2]}));
  EXPECT_EQ(list({v1::JOB_STATE_CANCELLED}, 0), (std::vector<std::string>{ids[1]}));
}

TEST_F(ServiceTest, AWatchEndsWithTheJob) {
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(Submit(MakeSpec(), "key", &submitted).ok());
  grpc::ClientContext context;
  SetDeadline(context);
  v1::WatchJobRequest request;
  request.set_job_id("gpt");
  const auto reader = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.job().state(), v1::JOB_STATE_QUEUED);
  ASSERT_EQ(response.events_size(), 1);
  EXPECT_EQ(response.events(0).kind(), "submitted");
  ASSERT_TRUE(Cancel("gpt").ok());
  std::vector<std::string> kinds;
  while (reader->Read(&response)) {
    for (const v1::JobEvent& event : response.events()) kinds.push_back(event.kind());
  }
  EXPECT_EQ(response.job().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(kinds, std::vector<std::string>{"cancelled"});
  EXPECT_TRUE(reader->Finish().ok());
  // If a watched job has ended, the watch gives one message, and then the stream ends.
  grpc::ClientContext late;
  SetDeadline(late);
  const auto again = jobs_->WatchJob(&late, request);
  ASSERT_TRUE(again->Read(&response));
  EXPECT_EQ(response.job().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(response.events_size(), 2);
  EXPECT_FALSE(again->Read(&response));
  EXPECT_TRUE(again->Finish().ok());
}

TEST_F(ServiceTest, AWatcherThatGoesIsForgotten) {
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(Submit(MakeSpec(), "key", &submitted).ok());
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::WatchJobRequest request;
    request.set_job_id("gpt");
    const auto reader = jobs_->WatchJob(&context, request);
    v1::WatchJobResponse response;
    ASSERT_TRUE(reader->Read(&response));
    context.TryCancel();
    while (reader->Read(&response)) continue;
    EXPECT_EQ(reader->Finish().error_code(), grpc::CANCELLED);
  }
  ASSERT_TRUE(Cancel("gpt").ok());
}

template <class Report>
void CheckSameData(Report& report, const std::string& node, const std::string& boot) {
  report.set_node(node), report.set_boot_id(boot), report.set_version(kVersion);
}

// A node with two devices. The ranks of its worker only send reports.
class FakeNode {
 public:
  FakeNode(v1::Cluster::Stub& stub, const std::string& name) : name_(name) {
    for (grpc::ClientContext* context : {&agent_context_, &worker_context_}) {
      context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    }
    agent_ = stub.AttachAgent(&agent_context_);
    worker_ = stub.AttachWorker(&worker_context_);
    agent_thread_ = std::thread([this] { Agent(); });
    worker_thread_ = std::thread([this] { Worker(); });
  }
  ~FakeNode() {
    agent_context_.TryCancel();
    worker_context_.TryCancel();
    agent_thread_.join();
    worker_thread_.join();
    agent_->Finish();
    worker_->Finish();
  }

 private:
  void Agent() {
    v1::AgentReport report;
    CheckSameData(report, name_, "agent");
    for (int i = 0; i < 2; ++i) {
      v1::Device& device = *report.add_devices();
      device.set_index(i);
      device.set_kind("cpu");
      device.set_memory_bytes(1 << 30);
      device.add_cores(i);
    }
    HardwareProfile profile = StatedCpuProfile();
    agent_->Write(report);
    v1::AgentDesired desired;
    while (agent_->Read(&desired)) {
      for (const v1::LayerShape& shape : desired.shapes()) {
        profile.measured.push_back({.shape = FromProto(shape).value()});
        for (OpTimes& op : profile.measured.back().ops) op = {Nanos(1000), Nanos(1000), Nanos(1000)};
      }
      *report.mutable_profile() = ToProto(profile);
      if (desired.shapes_size() > 0) agent_->Write(report);
    }
  }

  void Worker() {
    v1::WorkerReport report;
    CheckSameData(report, name_, "worker");
    report.set_address("127.0.0.1");
    worker_->Write(report);
    v1::WorkerDesired desired;
    while (worker_->Read(&desired)) {
      v1::WorkerReport next = report;
      for (const v1::RankAssignment& rank : desired.ranks()) {
        v1::RankStatus& status = *next.add_ranks();
        status.set_job_id(rank.job_id());
        status.set_generation(rank.generation());
        status.set_rank(rank.rank());
        status.set_host("127.0.0.1");
        status.set_port(5000 + rank.rank());
        status.set_phase(v1::RANK_PHASE_LISTENING);
        EXPECT_EQ(rank.program().empty(), rank.peers_size() == 0) << "a program goes with the order to start, only";
        const std::tuple key(rank.job_id(), rank.generation(), rank.rank());
        if (ended_.contains(key) || rank.peers_size() > 0) status.set_phase(v1::RANK_PHASE_EXITED);
        if (rank.peers_size() == 0 || !ended_.insert(key).second) continue;
        v1::RankReport base;
        base.set_job_id(rank.job_id());
        base.set_generation(rank.generation());
        base.set_rank(rank.rank());
        base.set_sequence(1);
        base.mutable_ready()->set_arena_bytes(rank.arena_bytes());
        *next.add_reports() = base;
        for (int step = 0; step < 3; ++step) {
          base.set_sequence(2 + step);
          base.mutable_step()->set_step(step);
          base.mutable_step()->set_loss(3.0 - step);
          base.mutable_step()->set_tokens(64);
          base.mutable_step()->set_duration_ns(1'000'000);
          *next.add_reports() = base;
        }
        base.set_sequence(5);
        base.mutable_done()->set_steps(3);
        *next.add_reports() = base;
        v1::RankLogLines& log = *next.add_logs();
        log.set_job_id(rank.job_id());
        log.set_generation(rank.generation());
        log.set_rank(rank.rank());
        log.add_lines("trained on " + rank.spec().data().path());
      }
      worker_->Write(next);
    }
  }

  const std::string name_;
  grpc::ClientContext agent_context_, worker_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentReport, v1::AgentDesired>> agent_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerReport, v1::WorkerDesired>> worker_;
  std::set<std::tuple<std::string, int64_t, int32_t>> ended_;
  std::thread agent_thread_, worker_thread_;  // declared last, because the threads use all members above
};

TEST_F(ServiceTest, AJobRunsOnNodesThatAttach) {
  FakeNode a(*cluster_, "n0"), b(*cluster_, "n1");
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(Submit(MakeSpec("gpt", 4), "key", &submitted).ok());
  grpc::ClientContext context;
  SetDeadline(context);
  v1::WatchJobRequest request;
  request.set_job_id(submitted.job().id());
  const auto reader = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  while (reader->Read(&response)) continue;
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_EQ(response.job().state(), v1::JOB_STATE_SUCCEEDED) << response.job().reason();
  EXPECT_EQ(response.job().placement_size(), 4);
  EXPECT_EQ(response.job().progress().steps_done(), 3);
  EXPECT_DOUBLE_EQ(response.job().progress().first_loss(), 3.0);
  EXPECT_TRUE(response.job().plan().stages(0).program().empty());

  const v1::Job job = Get(submitted.job().id(), true);
  EXPECT_FALSE(job.plan().stages(0).program().empty());
  EXPECT_TRUE(job.plan().measured_profile());
  EXPECT_TRUE(FromProto(job.plan()).ok()) << FromProto(job.plan()).status();
  std::vector<std::string> kinds;
  for (const v1::JobEvent& event : job.events()) kinds.push_back(event.kind());
  EXPECT_EQ(kinds, (std::vector<std::string>{"submitted", "planning", "planned", "placed", "running", "succeeded"}));

  grpc::ClientContext logs_context;
  v1::GetLogsRequest logs_request;
  logs_request.set_job_id("gpt");
  logs_request.set_rank(-1);
  v1::GetLogsResponse logs;
  ASSERT_TRUE(jobs_->GetLogs(&logs_context, logs_request, &logs).ok());
  ASSERT_EQ(logs.lines_size(), 4) << "a line of each rank";
  EXPECT_EQ(logs.lines(3).text(), "trained on /data/text");
  EXPECT_EQ(logs.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(logs.has_first_failure());
  int64_t newest = 0;
  for (const v1::LogLine& line : logs.lines()) newest = std::max(newest, line.sequence());
  grpc::ClientContext later_context;
  logs_request.set_after(newest);
  ASSERT_TRUE(jobs_->GetLogs(&later_context, logs_request, &logs).ok());
  EXPECT_EQ(logs.lines_size(), 0);

  grpc::ClientContext nodes_context;
  v1::ListNodesResponse nodes;
  ASSERT_TRUE(cluster_->ListNodes(&nodes_context, v1::ListNodesRequest(), &nodes).ok());
  EXPECT_GT(nodes.nodes(1).profile().flops_per_second(), 0);
  EXPECT_EQ(nodes.nodes(1).profile().measured_size(), 0) << "of thousands of nodes they are more than a message holds";
  grpc::ClientContext one_context, none_context;
  v1::ListNodesRequest one;
  one.add_nodes("n1");
  one.set_include_measurements(true);
  v1::ListNodesResponse listed;
  ASSERT_TRUE(cluster_->ListNodes(&one_context, one, &listed).ok());
  ASSERT_EQ(listed.nodes_size(), 1);
  EXPECT_EQ(listed.nodes(0).name(), "n1");
  EXPECT_GT(listed.nodes(0).profile().measured_size(), 0);
  one.add_nodes("n7");
  const grpc::Status unknown = cluster_->ListNodes(&none_context, one, &listed);
  EXPECT_EQ(unknown.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(unknown.error_message(), "no node has the name \"n7\"");
  EXPECT_EQ(nodes.server_version(), kVersion);
  EXPECT_GT(nodes.server_time_unix_ns(), 0);
  ASSERT_EQ(nodes.nodes_size(), 2);
  EXPECT_EQ(nodes.nodes(0).name(), "n0");
  EXPECT_TRUE(nodes.nodes(0).agent_attached() && nodes.nodes(0).worker_attached());
  EXPECT_EQ(nodes.nodes(0).devices_size(), 2);
  EXPECT_EQ(nodes.nodes(0).devices_used(), 0);
}

TEST_F(ServiceTest, AJobWithoutATracedStepSaysWhen) {
  const auto trace = [&](const std::string& job) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::TraceJobRequest request;
    request.set_job_id(job);
    v1::TraceJobResponse response;
    return jobs_->TraceJob(&context, request, &response);
  };
  EXPECT_EQ(trace("gpt").error_code(), grpc::NOT_FOUND);
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(Submit(MakeSpec(), "key", &submitted).ok());
  EXPECT_EQ(trace("gpt").error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_THAT(trace("gpt").error_message(), HasSubstr("which is queued, has been traced yet"));
}

TEST_F(ServiceTest, AMalformedReportEndsItsStream) {
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stream = cluster_->AttachWorker(&context);
  v1::WorkerReport report;
  CheckSameData(report, "n 0", "b");
  report.set_address("127.0.0.1");
  stream->Write(report);
  v1::WorkerDesired desired;
  EXPECT_FALSE(stream->Read(&desired));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("node is \"n 0\""));
}

TEST_F(ServiceTest, ASecondProcessOfTheSameNameIsRefused) {
  FakeNode node(*cluster_, "n0");
  v1::ListNodesResponse nodes;
  while (nodes.nodes_size() == 0 || !nodes.nodes(0).worker_attached()) {
    grpc::ClientContext context;
    ASSERT_TRUE(cluster_->ListNodes(&context, v1::ListNodesRequest(), &nodes).ok());
  }
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stream = cluster_->AttachWorker(&context);
  v1::WorkerReport report;
  CheckSameData(report, "n0", "another");
  report.set_address("127.0.0.1");
  stream->Write(report);
  v1::WorkerDesired desired;
  EXPECT_FALSE(stream->Read(&desired));
  EXPECT_EQ(stream->Finish().error_code(), grpc::ALREADY_EXISTS);
}

TEST_F(ServiceTest, ARestartedServerKnowsItsJobs) {
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(Submit(MakeSpec(), "key", &submitted).ok());
  server_->Stop();
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/" + kAddressFile));
  StartServer();
  EXPECT_EQ(Get("gpt").id(), submitted.job().id());
  v1::SubmitJobResponse again;
  ASSERT_TRUE(Submit(MakeSpec(), "key", &again).ok());
  EXPECT_TRUE(again.existed());
}

TEST_F(ServiceTest, CurvesOutliveTheServer) {
  v1::SubmitJobResponse submitted;
  {
    FakeNode a(*cluster_, "n0"), b(*cluster_, "n1");
    ASSERT_TRUE(Submit(MakeSpec("gpt", 4), "key", &submitted).ok());
    grpc::ClientContext context;
    SetDeadline(context);
    v1::WatchJobRequest request;
    request.set_job_id(submitted.job().id());
    const auto reader = jobs_->WatchJob(&context, request);
    v1::WatchJobResponse response;
    while (reader->Read(&response)) continue;
    ASSERT_TRUE(reader->Finish().ok());
  }
  const auto losses = [&] {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::GetJobRequest request;
    request.set_job_id("gpt");
    request.set_include_curves(true);
    v1::GetJobResponse response;
    EXPECT_TRUE(jobs_->GetJob(&context, request, &response).ok());
    std::vector<double> all;
    for (const v1::StepPoint& point : response.curves().steps()) all.push_back(point.loss());
    return all;
  };
  EXPECT_EQ(losses(), (std::vector<double>{3, 2, 1}));
  server_->Stop();
  StartServer();
  EXPECT_EQ(losses(), (std::vector<double>{3, 2, 1}));
}

TEST_F(ServiceTest, StoppingEndsWatchesAndStreams) {
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(Submit(MakeSpec(), "key", &submitted).ok());
  grpc::ClientContext context;
  SetDeadline(context);
  v1::WatchJobRequest request;
  request.set_job_id("gpt");
  const auto reader = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(reader->Read(&response));
  FakeNode node(*cluster_, "n0");
  server_->Stop();
  while (reader->Read(&response)) continue;
  EXPECT_EQ(reader->Finish().error_code(), grpc::UNAVAILABLE);
}

}  // namespace
}  // namespace lynx::server
