#include "cli/connect/client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "google/rpc/retry.pb.h"
#include "node/file.h"
#include "node/process.h"

namespace lynx::cli {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kSecond{1'000'000'000};

// A Jobs service whose answers the test decides.
class FakeJobs : public v1::Jobs::Service {
 public:
  using Writer = grpc::ServerWriter<v1::WatchJobResponse>;

  FakeJobs() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeJobs() override {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
      changed_.notify_all();
    }
    server_->Shutdown(std::chrono::system_clock::now());
  }

  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int watches() const { return watches_; }
  // Handles call number n of WatchJob, counted from 1.
  std::function<grpc::Status(int, Writer&)> on_watch;

  // Sleeps as long as the test lasts.
  void Sleep() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_; });
  }

  // Returns the status for call number n of ListJobs, counted from 1.
  std::function<grpc::Status(int)> on_list = [](int) { return grpc::Status::OK; };
  int lists() const { return lists_; }
  int jobs = 0;  // number of the jobs of this service; "j1" is the oldest
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request, v1::ListJobsResponse* response) override {
    int next = jobs;
    if (!request->before().empty()) next = std::stoi(request->before().substr(1)) - 1;
    for (; next > 0 && response->jobs_size() < request->limit(); --next)
      response->add_jobs()->set_id("j" + std::to_string(next));
    response->set_more(next > 0);
    return on_list(++lists_);
  }
  int events = 0;           // number of events of the job that GetJob returns
  bool knows_pages = true;  // false: GetJob ignores events_before, like a server of an earlier release
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request, v1::GetJobResponse* response) override {
    v1::Job& job = *response->mutable_job();
    job.set_id("j1");
    const int64_t end = knows_pages && request->events_before() > 0 ? request->events_before() : events + 1;
    for (int64_t i = std::max<int64_t>(1, end - 1000); i < end; ++i) job.add_events()->set_sequence(i);
    return grpc::Status::OK;
  }
  grpc::Status WatchJob(grpc::ServerContext*, const v1::WatchJobRequest* request, Writer* writer) override {
    watched_as.push_back(request->job_id());
    return on_watch(++watches_, *writer);
  }
  std::vector<std::string> watched_as;  // the job id of each call of WatchJob

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::atomic<int> lists_{0};
  std::atomic<int> watches_{0};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

v1::WatchJobResponse Message(v1::JobState state) {
  v1::WatchJobResponse response;
  response.mutable_job()->set_id("j1");
  response.mutable_job()->set_state(state);
  return response;
}

const grpc::Status kGone(grpc::StatusCode::UNAVAILABLE, "the server is stopping");

struct Watched {
  absl::Status status;
  std::vector<v1::JobState> states;
  int lost = 0;
};

Watched Watch(const FakeJobs& jobs, Nanos timeout, Nanos patience) {
  Watched watched;
  watched.status = Client({jobs.address(), "the test"}, timeout)
                       .Watch(
                           "job", patience,
                           [&](const v1::WatchJobResponse& response) {
                             watched.states.push_back(response.job().state());
                             return true;
                           },
                           [&] { ++watched.lost; });
  return watched;
}

TEST(ClientTest, AProxyForTheWebIsNotUsed) {
  FakeJobs jobs;
  for (const char* name : {"grpc_proxy", "https_proxy", "http_proxy"}) ::setenv(name, "http://127.0.0.1:1", 1);
  for (const char* name : {"no_grpc_proxy", "no_proxy"}) ::unsetenv(name);
  const auto listed = Client({jobs.address(), "the test"}, kSecond * 20).List({});
  for (const char* name : {"grpc_proxy", "https_proxy", "http_proxy"}) ::unsetenv(name);
  EXPECT_TRUE(listed.ok()) << listed.status();
}

// The server starts while the client pauses between its calls. In a pause the client asks gRPC to connect. gRPC then connects
// again after at most 1.2 s, which is 24 pauses. If the client did not ask, gRPC would try only every 5 s, which is 100 pauses.
// The test counts calls and not time. The server is another process, because in this process its threads would also wait for
// the client's connection.
TEST(ClientTest, AServerThatHasComeInAPauseIsCalledSoonAfter) {
  const int port = FakeJobs().port();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  std::string data = ::testing::TempDir() + "client_test_XXXXXX";
  ASSERT_NE(::mkdtemp(data.data()), nullptr);
  Client client({address, "the test"}, kSecond * 20);
  const auto call = [&] {
    client.Pause(kSecond / 20);
    return client.List({}).ok();
  };
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(call());
  const absl::StatusOr<Child> server =
      SpawnInSession({std::filesystem::canonical("/proc/self/exe").replace_filename("lynx-server"), "--listen=" + address,
                      "--data-dir=" + data, "--metrics-address=", "--page-address="},
                     {});
  ASSERT_TRUE(server.ok()) << server.status();
  while (!ReadFile(data + "/server.address").ok() && !HasEnded(server->pidfd))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  int calls = 1;
  while (!call() && calls < 200) ++calls;
  SignalProcess(server->pidfd, SIGKILL);
  EXPECT_LT(calls, 50);
  while (!ReapChild(server->pidfd).has_value()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::filesystem::remove_all(data);
}

TEST(ClientTest, AWatchEndsWithItsJob) {
  FakeJobs jobs;
  jobs.on_watch = [](int, FakeJobs::Writer& writer) {
    writer.Write(Message(v1::JOB_STATE_RUNNING));
    writer.Write(Message(v1::JOB_STATE_SUCCEEDED));
    return grpc::Status::OK;
  };
  const Watched watched = Watch(jobs, kSecond * 20, kSecond);
  EXPECT_TRUE(watched.status.ok()) << watched.status;
  EXPECT_EQ(watched.states, (std::vector{v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED}));
  EXPECT_EQ(watched.lost, 0);
}

TEST(ClientTest, AWatchEndsWhenNobodyLooks) {
  FakeJobs jobs;
  jobs.on_watch = [](int, FakeJobs::Writer& writer) {
    while (writer.Write(Message(v1::JOB_STATE_RUNNING))) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return grpc::Status::CANCELLED;
  };
  int seen = 0;
  const absl::Status status = Client({jobs.address(), "the test"}, kSecond * 20)
                                  .Watch(
                                      "job", kSecond, [&](const auto&) { return ++seen < 3; }, [] {});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen, 3);
}

TEST(ClientTest, AServerThatTakesTheCallAndSaysNothingIsGivenUp) {
  FakeJobs jobs;
  jobs.on_watch = [&](int, FakeJobs::Writer&) {
    jobs.Sleep();
    return kGone;
  };
  const Watched watched = Watch(jobs, kSecond / 5, kSecond);
  EXPECT_EQ(watched.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(watched.status.message()), HasSubstr(jobs.address() + " (from the test)"));
  EXPECT_THAT(std::string(watched.status.message()),
              HasSubstr("did not answer within 200.0 ms: it is busy, or nothing answers there; --timeout"));
  EXPECT_EQ(jobs.watches(), 1);
}

TEST(ClientTest, ARefusalIsFinal) {
  FakeJobs jobs;
  jobs.on_watch = [](int, FakeJobs::Writer&) { return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job"); };
  EXPECT_EQ(Watch(jobs, kSecond * 20, kSecond).status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(jobs.watches(), 1);
}

// The watch of a waiting job sends nothing for a long time. This does not mean that the server has gone away.
TEST(ClientTest, PatienceCountsFromTheLossAndNotFromTheLastMessage) {
  FakeJobs jobs;
  jobs.on_watch = [](int call, FakeJobs::Writer& writer) {
    if (call == 1) {
      writer.Write(Message(v1::JOB_STATE_QUEUED));
      std::this_thread::sleep_for(std::chrono::milliseconds(600));  // longer than the patience of the client
      return kGone;
    }
    writer.Write(Message(v1::JOB_STATE_SUCCEEDED));
    return grpc::Status::OK;
  };
  const Watched watched = Watch(jobs, kSecond * 20, kSecond / 2);
  EXPECT_TRUE(watched.status.ok()) << watched.status;
  EXPECT_EQ(watched.states, (std::vector{v1::JOB_STATE_QUEUED, v1::JOB_STATE_SUCCEEDED}));
  EXPECT_EQ(watched.lost, 1);
  EXPECT_EQ(jobs.watched_as, (std::vector<std::string>{"job", "j1"})) << "the name may be another job's by now";
}

TEST(ClientTest, ASilentServerIsToldFromOneThatIsAway) {
  FakeJobs jobs;
  std::atomic<int> silent = 0;
  jobs.on_watch = [&](int, FakeJobs::Writer& writer) {
    writer.Write(Message(v1::JOB_STATE_QUEUED));
    for (int i = 0; i < 3000 && silent < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    writer.Write(Message(v1::JOB_STATE_SUCCEEDED));
    return grpc::Status::OK;
  };
  int lost = 0, seen = 0;
  const absl::Status status =
      Client({jobs.address(), "the test"}, kSecond * 20)
          .Watch(
              "job", kSecond, [&](const auto&) { return ++seen < 100; }, [&] { ++lost; }, [&] { ++silent; });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GE(silent, 2);
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(lost, 0);
}

TEST(ClientTest, AWatchOfASilentServerEndsWhenAskedTo) {
  FakeJobs jobs;
  jobs.on_watch = [&](int, FakeJobs::Writer& writer) {
    writer.Write(Message(v1::JOB_STATE_QUEUED));
    jobs.Sleep();  // ends with the test, or when the watch ends
    return kGone;
  };
  int seen = 0;
  const absl::Status status =
      Client({jobs.address(), "the test"}, kSecond * 20)
          .Watch(
              "job", kSecond * 20, [&](const auto&) { return ++seen < 100; }, [] {}, [] {}, [&] { return seen == 0; });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(jobs.watches(), 1);
}

// Watches with an hour for every wait, until the watch has asked `questions` times while `ends` was true. A watch that does not
// ask while it waits would outlast the test's own limit.
absl::Status WatchUntil(const std::string& servers, const std::function<bool()>& ends, int questions = 2) {
  int asked = 0;
  return Client({servers, "the test"}, kSecond * 3600)
      .Watch(
          "job", kSecond * 3600, [](const auto&) { return true; }, [] {}, [] {},
          [&] { return !ends() || ++asked < questions; });
}

// A socket that listens: the kernel accepts connections, and nobody ever answers.
class SilentSocket {
 public:
  SilentSocket() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_.get(), 16), 0);
    EXPECT_EQ(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  UniqueFd socket_;
  int port_ = 0;
};

TEST(ClientTest, AWatchEndsWhenAskedToBeforeASilentServerAnswers) {
  const SilentSocket silent;
  const absl::Status status = WatchUntil(silent.address(), [] { return true; });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ClientTest, AWatchEndsWhenAskedToWhileSeveralServersAreSilent) {
  const SilentSocket silent, other;
  const absl::Status status = WatchUntil(silent.address() + "," + other.address(), [] { return true; });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ClientTest, AWatchEndsWhenAskedToWhileItConnectsAgain) {
  FakeJobs jobs;
  jobs.on_watch = [&](int call, FakeJobs::Writer& writer) {
    if (call == 1) writer.Write(Message(v1::JOB_STATE_RUNNING));
    if (call == 2) jobs.Sleep();  // the server accepts the call, but sends nothing
    return kGone;
  };
  const absl::Status status = WatchUntil(jobs.address(), [&] { return jobs.watches() == 2; });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(jobs.watches(), 2);
}

TEST(ClientTest, AWatchOfALostServerEndsWhenAskedTo) {
  FakeJobs jobs;
  jobs.on_watch = [&](int, FakeJobs::Writer& writer) {
    writer.Write(Message(v1::JOB_STATE_RUNNING));
    return kGone;
  };
  bool going = true;
  const absl::Status status =
      Client({jobs.address(), "the test"}, kSecond * 20)
          .Watch(
              "job", kSecond * 20, [](const auto&) { return true; }, [&] { going = false; }, [] {}, [&] { return going; });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_FALSE(going);
}

TEST(ClientTest, AServerThatStaysAwayIsGivenUp) {
  FakeJobs jobs;
  jobs.on_watch = [&](int call, FakeJobs::Writer& writer) {
    if (call == 1) writer.Write(Message(v1::JOB_STATE_RUNNING));
    if (call == 2) jobs.Sleep();  // the server accepts the call, but sends nothing
    return kGone;
  };
  const Watched watched = Watch(jobs, kSecond / 5, kSecond * 3 / 2);
  EXPECT_FALSE(watched.status.ok());
  EXPECT_GE(watched.lost, 1);
  EXPECT_GE(jobs.watches(), 2);
}

// Returns the status of a server that is too busy, with a google.rpc.RetryInfo in the details.
grpc::Status Later(Nanos delay) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(delay.value / kSecond.value);
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(delay.value % kSecond.value));
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too much", details.SerializeAsString());
}

TEST(ClientTest, CallsAgainWhenTheServerSaysWhen) {
  FakeJobs server;
  server.on_list = [](int call) { return call < 3 ? Later(Nanos(1'000'000)) : grpc::Status::OK; };
  Client client({.address = server.address(), .source = "the test"}, Nanos(60 * kSecond.value));
  EXPECT_TRUE(client.List(v1::ListJobsRequest()).ok());
  EXPECT_EQ(server.lists(), 3);
}

// After a restart, a server refuses calls until it has caught up. The watch of a training job must survive this time.
TEST(ClientTest, AWatchOutlivesAServerThatIsTooBusy) {
  FakeJobs jobs;
  jobs.on_watch = [](int call, FakeJobs::Writer& writer) {
    if (call == 1) {
      writer.Write(Message(v1::JOB_STATE_RUNNING));
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // longer than a call may take
      return kGone;
    }
    if (call < 4) return Later(Nanos(1'000'000));
    writer.Write(Message(v1::JOB_STATE_SUCCEEDED));
    return grpc::Status::OK;
  };
  const Watched watched = Watch(jobs, kSecond / 5, kSecond * 60);
  EXPECT_TRUE(watched.status.ok()) << watched.status;
  EXPECT_EQ(watched.states, (std::vector{v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED}));
  EXPECT_EQ(watched.lost, 3);
}

TEST(ClientTest, AWatchEndsWhenAskedToBetweenTwoTries) {
  for (const bool heard : {false, true}) {
    FakeJobs jobs;
    std::atomic<bool> refused = false;
    jobs.on_watch = [&](int, FakeJobs::Writer& writer) {
      if (heard) writer.Write(Message(v1::JOB_STATE_RUNNING));
      refused = true;
      return Later(kSecond * 3600);  // the client takes it for a minute
    };
    // The end of the call takes a few of the 20 questions; the delay asks the others.
    const absl::Status status = WatchUntil(
        jobs.address(), [&] { return refused.load(); }, 20);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(jobs.watches(), 1) << "it ended in the delay, and did not call again";
  }
}

TEST(ClientTest, ListsPageByPage) {
  FakeJobs server;
  server.jobs = 2500;
  Client client({.address = server.address(), .source = "the test"}, kSecond * 60);
  v1::ListJobsRequest request;
  request.set_limit(2200);
  absl::StatusOr<v1::ListJobsResponse> listed = client.List(request);
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->jobs_size(), 2200);
  EXPECT_EQ(listed->jobs(0).id(), "j2500");
  EXPECT_EQ(listed->jobs(2199).id(), "j301");
  EXPECT_TRUE(listed->more());
  EXPECT_EQ(server.lists(), 3);
  request.set_limit(1'000'000);
  listed = client.List(request);
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(listed->jobs_size(), 2500);
  EXPECT_FALSE(listed->more());
}

TEST(ClientTest, AListEndsWhereTheServerHasForgottenTheRest) {
  FakeJobs server;
  server.jobs = 1500;
  server.on_list = [](int call) {
    return call == 1 ? grpc::Status::OK : grpc::Status(grpc::StatusCode::NOT_FOUND, "no such job");
  };
  Client client({.address = server.address(), .source = "the test"}, kSecond * 60);
  v1::ListJobsRequest request;
  request.set_limit(1200);
  const absl::StatusOr<v1::ListJobsResponse> listed = client.List(request);
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(listed->jobs_size(), 1000);
}

TEST(ClientTest, EventsComePageByPage) {
  FakeJobs server;
  server.events = 2300;
  Client client({.address = server.address(), .source = "the test"}, kSecond * 60);
  absl::StatusOr<v1::Job> job = client.GetWithEvents("j1");
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->events_size(), 2300);
  for (int i = 0; i < 2300; ++i) ASSERT_EQ(job->events(i).sequence(), i + 1);
  server.knows_pages = false;
  job = client.GetWithEvents("j1");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->events_size(), 1000) << "the newest, of a server that gives no others";
  EXPECT_EQ(job->events(0).sequence(), 1301);
}

TEST(ClientTest, DoesNotCallAgainWhereThatIsTooLateOrNotSaid) {
  FakeJobs server;
  server.on_list = [](int) { return Later(Nanos(120 * kSecond.value)); };
  Client client({.address = server.address(), .source = "the test"}, Nanos(30 * kSecond.value));
  EXPECT_EQ(client.List(v1::ListJobsRequest()).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(server.lists(), 1);
  server.on_list = [](int) { return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full"); };
  EXPECT_EQ(client.List(v1::ListJobsRequest()).status().message(), "full");
  EXPECT_EQ(server.lists(), 2);
}

}  // namespace
}  // namespace lynx::cli
