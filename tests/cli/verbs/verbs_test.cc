// Tests verbs against a server whose answers the test sets: what the verbs print, and their exit codes.
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "cli/output/exit_code.h"
#include "cli/verbs/commands.h"

namespace lynx::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A service with one job, "j1". The trace of this job's step is inconsistent.
class FakeJobs : public v1::Jobs::Service {
 public:
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::GetJobResponse* response) override {
    Describe(*response->mutable_job());
    return grpc::Status::OK;
  }
  grpc::Status TraceJob(grpc::ServerContext*, const v1::TraceJobRequest*, v1::TraceJobResponse* response) override {
    Describe(*response->mutable_job());
    response->mutable_trace()->add_stages();
    return trace_status;
  }
  grpc::Status trace_status;

 private:
  static void Describe(v1::Job& job) {
    job.set_id("j1");
    job.set_state(v1::JOB_STATE_RUNNING);
    job.mutable_spec()->set_name("tiny");
  }
};

class FakeCluster : public v1::Cluster::Service {
 public:
  grpc::Status CordonNode(grpc::ServerContext*, const v1::CordonNodeRequest* request,
                          v1::CordonNodeResponse* response) override {
    return Change(request->node(), request->drain() ? "drain" : "cordon", *response->mutable_node());
  }
  grpc::Status UncordonNode(grpc::ServerContext*, const v1::UncordonNodeRequest* request,
                            v1::UncordonNodeResponse* response) override {
    return Change(request->node(), "uncordon", *response->mutable_node());
  }
  std::map<std::string, grpc::Status> refused;  // node name -> the error that the service returns
  std::vector<std::string> changes;             // all calls in order, such as "drain n0"

 private:
  grpc::Status Change(const std::string& name, const std::string& what, v1::Node& node) {
    changes.push_back(what + " " + name);
    node.set_name(name);
    node.set_worker_attached(true);
    const auto found = refused.find(name);
    return found == refused.end() ? grpc::Status::OK : found->second;
  }
};

class VerbsTest : public testing::Test {
 protected:
  VerbsTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&jobs_);
    builder.RegisterService(&cluster_);
    server_ = builder.BuildAndStart();
    global_.connection.server = "127.0.0.1:" + std::to_string(port);
  }

  struct Ended {
    int code = 0;
    std::string out, err;
  };
  template <class Verb>
  Ended Run(const Verb& verb) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Ended ended{.code = verb()};
    ended.out = testing::internal::GetCapturedStdout();
    ended.err = testing::internal::GetCapturedStderr();
    return ended;
  }

  FakeJobs jobs_;
  FakeCluster cluster_;
  std::unique_ptr<grpc::Server> server_;
  GlobalOptions global_;
};

TEST_F(VerbsTest, AReportLeavesOutAStepThatMakesNoSense) {
  const std::string path = testing::TempDir() + "lynx_verbs_report.html";
  const Ended ended = Run([&] { return Report(global_, {.job = "j1", .out = path}); });
  EXPECT_EQ(ended.code, kExitOk) << ended.err;
  EXPECT_EQ(ended.out, path + "\n");
  EXPECT_THAT(ended.err, HasSubstr("the traced step is left out of the report: "));
  std::stringstream page;
  page << std::ifstream(path).rdbuf();
  EXPECT_THAT(page.str(), HasSubstr("tiny"));
  std::remove(path.c_str());
}

TEST_F(VerbsTest, AReportFailsWhereTheServerDoesNotTellTheStep) {
  jobs_.trace_status = grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "not you");
  const std::string path = testing::TempDir() + "lynx_verbs_no_report.html";
  const Ended ended = Run([&] { return Report(global_, {.job = "j1", .out = path}); });
  EXPECT_EQ(ended.code, kExitRefused);
  EXPECT_THAT(ended.err, HasSubstr("not you"));
  EXPECT_FALSE(std::ifstream(path).good());
}

TEST_F(VerbsTest, NodesAreChangedOneByOneAndTheWorstCounts) {
  cluster_.refused["n1"] = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no such name");
  cluster_.refused["n2"] = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many");
  const Ended ended = Run([&] { return Cordon(global_, {.nodes = {"n0", "n1", "n2", "n3"}, .drain = true}); });
  EXPECT_EQ(ended.code, kExitRefused);
  EXPECT_EQ(ended.out,
            "node n0 takes no new ranks; it is drained: no job has ranks there\n"
            "node n3 takes no new ranks; it is drained: no job has ranks there\n");
  EXPECT_EQ(ended.err, "lynxctl: node n1: no such name\nlynxctl: node n2: too many\n");
  EXPECT_THAT(cluster_.changes, ElementsAre("drain n0", "drain n1", "drain n2", "drain n3"));
}

TEST_F(VerbsTest, SeveralNodesAreAListAndOneIsItself) {
  global_.output = OutputFormat::kName;
  EXPECT_EQ(Run([&] { return Uncordon(global_, {"n0", "n1"}); }).out, "n0\nn1\n");
  global_.output = OutputFormat::kYaml;
  EXPECT_THAT(Run([&] { return Uncordon(global_, {"n0", "n1"}); }).out, testing::StartsWith("nodes:\n- name: n0\n"));
  EXPECT_THAT(Run([&] { return Uncordon(global_, {"n0"}); }).out, testing::StartsWith("name: n0\n"));
  cluster_.refused["n0"] = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no such name");
  const Ended none = Run([&] { return Uncordon(global_, {"n0"}); });
  EXPECT_EQ(none.code, kExitBadInput);
  EXPECT_THAT(none.out, IsEmpty());
  EXPECT_EQ(none.err, "lynxctl: no such name\n");
}

TEST_F(VerbsTest, AServerThatIsAwayIsAskedOnce) {
  server_->Shutdown();
  server_.reset();
  const Ended ended = Run([&] { return Uncordon(global_, {"n0", "n1"}); });
  EXPECT_EQ(ended.code, kExitUnreachable);
  EXPECT_THAT(ended.err, HasSubstr("node n0: cannot reach lynx-server"));
  EXPECT_THAT(ended.err, testing::Not(HasSubstr("n1")));
}

}  // namespace
}  // namespace lynx::cli
