// Tests who may do what to whose job: every call about a job, in every role, for the caller's own job, for a job of a queue
// that the caller manages, and for another's job. The calls go to a server with TLS in this process.
#include "server/access/job_permissions.h"

#include <google/protobuf/descriptor.h>

#include <functional>
#include <map>
#include <set>

#include <gmock/gmock.h>

#include "tests/server/access/access_fixture.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;

// The lowest role that may make a call, by what the caller is to the job. This repeats the server's table, so that nobody
// changes the table by accident.
struct Least {
  std::string own, managed, other;
};
const std::map<std::string, Least>& Expected() {
  static const auto* expected = new std::map<std::string, Least>{
      {"Jobs.SubmitJob", {"submitter", "nobody", "nobody"}},  // repeats a submission, with the key of the existing job
      {"Jobs.CancelJob", {"submitter", "submitter", "operator"}},
      {"Jobs.HoldJob", {"submitter", "submitter", "operator"}},
      {"Jobs.ReleaseJob", {"submitter", "submitter", "operator"}},
      {"Jobs.GetJob", {"viewer", "viewer", "viewer"}},
      {"Jobs.ListJobs", {"viewer", "viewer", "viewer"}},
      {"Jobs.WatchJob", {"viewer", "viewer", "viewer"}},
      {"Jobs.GetLogs", {"viewer", "viewer", "viewer"}},
      {"Jobs.TraceJob", {"viewer", "viewer", "viewer"}},
  };
  return *expected;
}

const std::vector<std::string>& Roles() {
  static const auto* roles = new std::vector<std::string>{"viewer", "submitter", "operator", "admin"};
  return *roles;
}

// All methods that get the name of a job must be in the table, and those that make or list jobs.
TEST(JobTableOfRulesTest, HasEveryMethodThatIsAboutAJob) {
  std::set<std::string> about = {"Jobs.SubmitJob", "Jobs.ListJobs"}, ruled, expected;
  for (const google::protobuf::Descriptor* message :
       {v1::SubmitJobRequest::descriptor(), v1::AgentReport::descriptor(), v1::JoinRequest::descriptor()}) {
    const google::protobuf::FileDescriptor* file = message->file();
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        const auto* method = file->service(s)->method(m);
        if (method->input_type()->FindFieldByName("job_id") != nullptr)
          about.insert(method->service()->name() + "." + method->name());
      }
    }
  }
  for (const JobRule& rule : JobRules()) EXPECT_TRUE(ruled.insert(rule.method).second) << rule.method << " has two rules";
  for (const auto& [method, least] : Expected()) expected.insert(method);
  EXPECT_EQ(ruled, about);
  EXPECT_EQ(expected, about);
}

class JobCallsTest : public AccessTest {
 protected:
  // Revokes the user, and adds a user of the same name with another role. The new user owns the jobs of the old one.
  std::string ChangeRole(const std::string& name, v1::Role role) {
    v1::RevokeUserRequest request;
    request.set_name(name);
    v1::RevokeUserResponse response;
    EXPECT_TRUE(Admin(admin_token_, &v1::Admin::Stub::RevokeUser, request, &response).ok());
    return AddUser(name, role);
  }
  // Submits a job with this key to the queue. Returns its id.
  std::string SubmitTo(const std::string& token, const std::string& key, const std::string& queue) {
    grpc::ClientContext context;
    Prepare(context, token);
    v1::SubmitJobResponse response;
    const grpc::Status status = v1::Jobs::NewStub(people_)->SubmitJob(&context, Request(key, queue), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job().id();
  }
  grpc::Status SetQueue(const std::string& token, const std::string& name, const std::vector<std::string>& managers) {
    v1::SetQueueRequest request;
    request.mutable_queue()->set_name(name);
    request.mutable_queue()->set_weight(1);
    for (const std::string& manager : managers) request.mutable_queue()->add_managers(manager);
    v1::SetQueueResponse response;
    return Jobs(token, &v1::Jobs::Stub::SetQueue, request, &response);
  }
  template <class Request, class Response>
  grpc::Status Jobs(const std::string& token,
                    grpc::Status (v1::Jobs::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    Prepare(context, token);
    return (*v1::Jobs::NewStub(people_).*method)(&context, request, response);
  }
  v1::SubmitJobRequest Request(const std::string& key, const std::string& queue) {
    v1::SubmitJobRequest request;
    *request.mutable_spec() = Spec();
    request.mutable_spec()->mutable_scheduling()->set_queue(queue);
    request.set_idempotency_key(key);
    return request;
  }
  template <class Request, class Response>
  grpc::Status AboutJob(const std::string& token,
                        grpc::Status (v1::Jobs::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                        const std::string& id) {
    Request request;
    request.set_job_id(id);
    Response response;
    return Jobs(token, method, request, &response);
  }
  // Makes one call about the job. The job was submitted to `queue`, and its key is its id.
  grpc::Status Call(const std::string& method, const std::string& token, const std::string& id, const std::string& key,
                    const std::string& queue) {
    using Stub = v1::Jobs::Stub;
    const std::map<std::string, std::function<grpc::Status()>> calls = {
        {"Jobs.SubmitJob",
         [&] {
           v1::SubmitJobResponse response;
           const grpc::Status status = Jobs(token, &Stub::SubmitJob, Request(key, queue), &response);
           EXPECT_TRUE(!status.ok() || (response.existed() && response.job().id() == id));
           return status;
         }},
        {"Jobs.CancelJob", [&] { return AboutJob<v1::CancelJobRequest, v1::CancelJobResponse>(token, &Stub::CancelJob, id); }},
        {"Jobs.HoldJob", [&] { return AboutJob<v1::HoldJobRequest, v1::HoldJobResponse>(token, &Stub::HoldJob, id); }},
        {"Jobs.ReleaseJob",
         [&] { return AboutJob<v1::ReleaseJobRequest, v1::ReleaseJobResponse>(token, &Stub::ReleaseJob, id); }},
        {"Jobs.GetJob", [&] { return AboutJob<v1::GetJobRequest, v1::GetJobResponse>(token, &Stub::GetJob, id); }},
        {"Jobs.GetLogs", [&] { return AboutJob<v1::GetLogsRequest, v1::GetLogsResponse>(token, &Stub::GetLogs, id); }},
        {"Jobs.TraceJob", [&] { return AboutJob<v1::TraceJobRequest, v1::TraceJobResponse>(token, &Stub::TraceJob, id); }},
        {"Jobs.ListJobs",
         [&] {
           v1::ListJobsResponse response;
           const grpc::Status status = Jobs(token, &Stub::ListJobs, v1::ListJobsRequest(), &response);
           bool listed = false;
           for (const v1::Job& job : response.jobs()) listed = listed || job.id() == id;
           return listed ? status : grpc::Status(grpc::PERMISSION_DENIED, "the list lacks the job");
         }},
        {"Jobs.WatchJob",
         [&] {
           grpc::ClientContext context;
           Prepare(context, token);
           v1::WatchJobRequest request;
           request.set_job_id(id);
           const auto reader = v1::Jobs::NewStub(people_)->WatchJob(&context, request);
           v1::WatchJobResponse response;
           if (!reader->Read(&response)) return reader->Finish();
           context.TryCancel();
           reader->Finish();
           return grpc::Status::OK;
         }},
    };
    return calls.at(method)();
  }
};

bool Denied(const grpc::Status& status) {
  return status.error_code() == grpc::PERMISSION_DENIED || status.error_code() == grpc::ALREADY_EXISTS;
}

TEST_F(JobCallsTest, AreForThoseWhoAreEnoughToTheJobAndNobodyElse) {
  StartServer();
  const std::string other = AddUser("other", v1::ROLE_SUBMITTER);
  std::vector<std::string> callers;
  std::map<std::string, std::string> tokens, own;
  for (const std::string& role : Roles()) {
    callers.push_back("a-" + role);
    own[role] = SubmitTo(AddUser(callers.back(), v1::ROLE_SUBMITTER), "own-" + role, "default");
  }
  ASSERT_TRUE(SetQueue(admin_token_, "managed", callers).ok());
  for (size_t i = 0; i < Roles().size(); ++i) tokens[Roles()[i]] = ChangeRole(callers[i], static_cast<v1::Role>(i + 1));
  const std::string managed = SubmitTo(other, "managed", "managed");
  const std::string others = SubmitTo(other, "others", "default");
  for (const auto& [method, least] : Expected()) {
    std::map<std::string, bool> enough;
    for (const std::string& role : Roles()) {
      SCOPED_TRACE(method + " by " + role);
      const auto check = [&](const std::string& lowest, const std::string& id, const std::string& key,
                             const std::string& queue) {
        bool& may = enough[id == own[role] ? "own" : id];
        may = may || role == lowest;
        const grpc::Status status = Call(method, tokens[role], id, key, queue);
        EXPECT_EQ(Denied(status), !may) << key << ": " << status.error_message();
      };
      check(least.own, own[role], "own-" + role, "default");
      check(least.managed, managed, "managed", "managed");
      check(least.other, others, "others", "default");
    }
  }
}

TEST_F(JobCallsTest, ARefusalSaysWhoseJobItIsAndWhoMayChangeItAndIsRecorded) {
  StartServer();
  const std::string alice = AddUser("alice", v1::ROLE_SUBMITTER), bob = AddUser("bob", v1::ROLE_SUBMITTER);
  const std::string carol = AddUser("carol", v1::ROLE_SUBMITTER);
  ASSERT_TRUE(SetQueue(admin_token_, "research", {"carol"}).ok());
  const std::string id = SubmitTo(alice, "key", "research");
  const grpc::Status refused = Call("Jobs.CancelJob", bob, id, "", "");
  EXPECT_EQ(refused.error_code(), grpc::PERMISSION_DENIED);
  EXPECT_EQ(refused.error_message(),
            "job " + id +
                " (gpt) is a job of alice; alice, the managers of queue research (carol) and operators "
                "may change it, and bob is a submitter");
  const v1::ListAuditResponse audit = Audit(/*refused_only=*/true);
  ASSERT_EQ(audit.records_size(), 1);
  EXPECT_EQ(audit.records(0).who(), "bob");
  EXPECT_EQ(audit.records(0).what(), "Jobs.CancelJob");
  EXPECT_EQ(audit.records(0).target(), id);
  EXPECT_EQ(audit.records(0).outcome(), "PERMISSION_DENIED");
  EXPECT_THAT(audit.records(0).detail(), HasSubstr("is a job of alice"));
  StartServer();
  EXPECT_EQ(Call("Jobs.CancelJob", bob, id, "", "").error_message(), refused.error_message()) << "the store knows it, too";
  EXPECT_TRUE(Call("Jobs.HoldJob", carol, id, "", "").ok());
  ASSERT_TRUE(SetQueue(admin_token_, "research", {}).ok());
  EXPECT_THAT(Call("Jobs.HoldJob", carol, id, "", "").error_message(), HasSubstr("; alice and operators may change it"));
}

TEST_F(JobCallsTest, OperatorsChangeTheJobOfAUserWhoIsGone) {
  StartServer();
  const std::string alice = AddUser("alice", v1::ROLE_SUBMITTER), bob = AddUser("bob", v1::ROLE_SUBMITTER);
  const std::string id = SubmitTo(alice, "key", "default");
  v1::RevokeUserRequest revoke;
  revoke.set_name("alice");
  v1::RevokeUserResponse revoked;
  ASSERT_TRUE(Admin(admin_token_, &v1::Admin::Stub::RevokeUser, revoke, &revoked).ok());
  EXPECT_THAT(Call("Jobs.CancelJob", bob, id, "", "").error_message(),
              HasSubstr("is a job of alice, who is no longer a user; only operators may change it"));
  EXPECT_TRUE(Call("Jobs.CancelJob", AddUser("olga", v1::ROLE_OPERATOR), id, "", "").ok());
}

// On a server without TLS, jobs have no owners. When the server gets users later, none of them owns these jobs.
TEST_F(JobCallsTest, AJobOfTheTimeWithoutTlsIsNobodys) {
  options_.tls = false;
  StartServer();
  const std::string id = SubmitTo("", "key", "default");
  for (const auto& [method, least] : Expected()) {
    if (method == "Jobs.CancelJob") continue;
    EXPECT_FALSE(Denied(Call(method, "", id, "key", "default"))) << method;
  }
  ASSERT_TRUE(SetQueue("", "research", {"anybody"}).ok()) << "there are no users to check it with";
  options_.tls = true;
  StartServer();
  const std::string bob = AddUser("bob", v1::ROLE_SUBMITTER);
  EXPECT_THAT(Call("Jobs.CancelJob", bob, id, "", "").error_message(),
              HasSubstr("has no owner, because it was submitted to the server without TLS; only operators may change it"));
  v1::AddUserRequest add;
  add.set_name(kLocalUser);
  add.set_role(v1::ROLE_SUBMITTER);
  v1::AddUserResponse added;
  EXPECT_EQ(Admin(admin_token_, &v1::Admin::Stub::AddUser, add, &added).error_code(), grpc::INVALID_ARGUMENT)
      << "such a user would own the job";
  const std::string of_bob = SubmitTo(bob, "of-bob", "default");
  options_.tls = false;
  StartServer();
  EXPECT_TRUE(Call("Jobs.SubmitJob", "", of_bob, "of-bob", "default").ok()) << "each key is everybody's again";
  EXPECT_TRUE(Call("Jobs.CancelJob", "", of_bob, "", "").ok());
}

TEST_F(JobCallsTest, ANameMeansTheCallersOwnJobBeforeAnothers) {
  StartServer();
  const std::string alice = AddUser("alice", v1::ROLE_SUBMITTER), bob = AddUser("bob", v1::ROLE_SUBMITTER);
  const std::string of_alice = SubmitTo(alice, "a", "default"), of_bob = SubmitTo(bob, "b", "default");
  v1::GetJobRequest request;
  request.set_job_id("gpt");
  v1::GetJobResponse response;
  ASSERT_TRUE(Jobs(alice, &v1::Jobs::Stub::GetJob, request, &response).ok());
  EXPECT_EQ(response.job().id(), of_alice);
  EXPECT_EQ(response.job().owner(), "alice");
  ASSERT_TRUE(Jobs(AddUser("victor", v1::ROLE_VIEWER), &v1::Jobs::Stub::GetJob, request, &response).ok());
  EXPECT_EQ(response.job().id(), of_bob) << "the newest of all";
  EXPECT_TRUE(Call("Jobs.HoldJob", alice, "gpt", "", "").ok());
}

TEST_F(JobCallsTest, AListMayHaveTheJobsOfOneUser) {
  StartServer();
  const std::string alice = AddUser("alice", v1::ROLE_SUBMITTER), bob = AddUser("bob", v1::ROLE_SUBMITTER);
  const std::string of_alice = SubmitTo(alice, "a", "default");
  SubmitTo(bob, "b", "default");
  v1::ListJobsRequest request;
  request.set_owner("alice");
  v1::ListJobsResponse response;
  ASSERT_TRUE(Jobs(bob, &v1::Jobs::Stub::ListJobs, request, &response).ok());
  ASSERT_EQ(response.jobs_size(), 1);
  EXPECT_EQ(response.jobs(0).id(), of_alice);
  EXPECT_EQ(response.owner(), "alice");
  request.set_owner("a b");
  EXPECT_THAT(Jobs(bob, &v1::Jobs::Stub::ListJobs, request, &response).error_message(), HasSubstr("owner is \"a b\""));
}

TEST_F(JobCallsTest, ManagersMustBeUsersWhoMayChangeJobs) {
  StartServer();
  AddUser("victor", v1::ROLE_VIEWER);
  EXPECT_THAT(SetQueue(admin_token_, "research", {"victor"}).error_message(),
              HasSubstr("queue.managers[0] is victor: must be a submitter"));
  EXPECT_THAT(SetQueue(admin_token_, "research", {"admin", "bbo"}).error_message(),
              HasSubstr("queue.managers[1] is bbo: must be the name of a user"));
  EXPECT_TRUE(SetQueue(admin_token_, "research", {"admin"}).ok());
}

}  // namespace
}  // namespace lynx::server
