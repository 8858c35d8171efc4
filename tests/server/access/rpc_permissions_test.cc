// Tests who may call what: every method of every service, with every role.
#include "server/access/rpc_permissions.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>

#include "tests/server/access/access_fixture.h"

namespace lynx::server {
namespace {

// Returns for each method the lowest role that may call it. This repeats the server's table, so that nobody changes the table
// by accident.
const std::map<std::string, std::string>& Least() {
  static const auto* least = new std::map<std::string, std::string>{
      {"Jobs.SubmitJob", "submitter"},      {"Jobs.GetJob", "viewer"},       {"Jobs.ListJobs", "viewer"},
      {"Jobs.CancelJob", "submitter"},      {"Jobs.HoldJob", "submitter"},   {"Jobs.ReleaseJob", "submitter"},
      {"Jobs.ListQueues", "viewer"},        {"Jobs.SetQueue", "operator"},   {"Jobs.WatchJob", "viewer"},
      {"Jobs.GetLogs", "viewer"},           {"Jobs.TraceJob", "viewer"},     {"Cluster.AttachAgent", "node"},
      {"Cluster.AttachWorker", "node"},     {"Cluster.ListNodes", "viewer"}, {"Cluster.CordonNode", "operator"},
      {"Cluster.UncordonNode", "operator"}, {"Admin.WhoAmI", "viewer"},      {"Admin.CreateJoinToken", "admin"},
      {"Admin.RevokeJoinTokens", "admin"},  {"Admin.Join", "join token"},    {"Admin.RotateCertificate", "node"},
      {"Admin.RevokeNode", "admin"},        {"Admin.AddUser", "admin"},      {"Admin.ListUsers", "admin"},
      {"Admin.RevokeUser", "admin"},        {"Admin.AddToken", "admin"},     {"Admin.RevokeToken", "admin"},
      {"Admin.ListAudit", "admin"},         {"Admin.ListServers", "admin"},
  };
  return *least;
}

std::vector<const google::protobuf::MethodDescriptor*> Methods() {
  std::vector<const google::protobuf::MethodDescriptor*> methods;
  for (const google::protobuf::Descriptor* message :
       {v1::SubmitJobRequest::descriptor(), v1::AgentReport::descriptor(), v1::JoinRequest::descriptor()}) {
    const google::protobuf::FileDescriptor* file = message->file();
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) methods.push_back(file->service(s)->method(m));
    }
  }
  return methods;
}

std::string NameOf(const google::protobuf::MethodDescriptor& method) { return method.service()->name() + "." + method.name(); }

TEST(AccessTableTest, HasEveryMethodAndNoOther) {
  std::set<std::string> methods, ruled, expected;
  for (const auto* method : Methods()) methods.insert(NameOf(*method));
  for (const MethodRule& rule : MethodRules()) EXPECT_TRUE(ruled.insert(rule.method).second) << rule.method << " has two rules";
  for (const auto& [method, least] : Least()) expected.insert(method);
  EXPECT_EQ(ruled, methods);
  EXPECT_EQ(expected, methods);
}

class EveryMethodTest : public AccessTest {
 protected:
  // Calls `method` with an empty request. If the method is a stream of a node, sends nothing.
  // `join_secret`: the secret of a join token that is sent with the call; empty: none.
  grpc::Status Call(const google::protobuf::MethodDescriptor& method, const std::shared_ptr<grpc::Channel>& channel,
                    const std::string& token, const std::string& join_secret = "") {
    grpc::GenericStub stub(channel);
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    Prepare(context, token);
    if (!join_secret.empty()) context.AddMetadata("authorization", "Join " + join_secret);
    const auto call = stub.PrepareCall(&context, "/" + method.service()->full_name() + "/" + method.name(), &queue);
    const auto wait = [&] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    call->StartCall(nullptr);
    wait();
    if (method.client_streaming()) {
      call->WritesDone(nullptr);
    } else {
      const grpc::Slice empty{std::string()};
      call->WriteLast(grpc::ByteBuffer(&empty, 1), grpc::WriteOptions(), nullptr);
    }
    wait();
    grpc::ByteBuffer buffer;
    bool more = true;
    while (more) {
      call->Read(&buffer, nullptr);
      more = wait();
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    wait();
    return status;
  }
};

bool Denied(const grpc::Status& status) {
  return status.error_code() == grpc::UNAUTHENTICATED || status.error_code() == grpc::PERMISSION_DENIED;
}

TEST_F(EveryMethodTest, IsForThoseWhoAreEnoughForItAndNobodyElse) {
  StartServer();
  const std::vector<std::string> roles = {"viewer", "submitter", "operator", "admin"};
  std::map<std::string, std::string> tokens;
  for (size_t i = 0; i < roles.size(); ++i) tokens[roles[i]] = AddUser("a-" + roles[i], static_cast<v1::Role>(i + 1));
  ASSERT_TRUE(Join(MakeJoinSecret(), "n0", "n0").ok());
  const std::shared_ptr<grpc::Channel> node = NodeChannel("n0");
  for (const auto* method : Methods()) {
    const std::string& least = Least().at(NameOf(*method));
    const auto call = [&](const std::shared_ptr<grpc::Channel>& channel, const std::string& token) {
      const grpc::Status status = Call(*method, channel, token);
      EXPECT_NE(status.error_code(), grpc::UNIMPLEMENTED) << NameOf(*method);
      return status;
    };
    SCOPED_TRACE(NameOf(*method));
    EXPECT_EQ(call(people_, std::string(64, '0')).error_code(), grpc::UNAUTHENTICATED) << "a token that nobody has";
    EXPECT_EQ(call(node, std::string(64, '0')).error_code(), grpc::UNAUTHENTICATED) << "a bad token beside a certificate";
    EXPECT_EQ(call(people_, "").error_code(), grpc::UNAUTHENTICATED) << "nobody";
    const grpc::Status by_joiner = Call(*method, people_, "", MakeJoinSecret());
    EXPECT_EQ(by_joiner.error_code() == grpc::UNAUTHENTICATED, least != "join token") << by_joiner.error_message();
    if (least == "join token") continue;
    const grpc::Status by_node = call(node, "");
    EXPECT_EQ(Denied(by_node), least != "node") << by_node.error_message();
    EXPECT_NE(by_node.error_code(), grpc::UNAUTHENTICATED) << by_node.error_message();
    bool enough = false;
    for (const std::string& role : roles) {
      enough = enough || role == least;
      const grpc::Status status = call(people_, tokens[role]);
      EXPECT_EQ(Denied(status), !enough) << role << ": " << status.error_message();
      EXPECT_NE(status.error_code(), grpc::UNAUTHENTICATED) << role;
    }
  }
}

// If a caller calls any method too often, the server must say when to call again. Reports of nodes have no limit.
TEST_F(EveryMethodTest, HasARateForEachCaller) {
  const Rate once{.per_second = 1e-6, .burst = 1};
  StartServer();
  const std::string admin = admin_token_;
  ASSERT_TRUE(Join(MakeJoinSecret(), "n0", "n0").ok());
  options_.limits = {.reads = once, .changes = once};
  StartServer();
  const std::shared_ptr<grpc::Channel> node = NodeChannel("n0");
  std::map<Cost, int> taken;
  for (const MethodRule& rule : MethodRules()) {
    SCOPED_TRACE(rule.method);
    const auto methods = Methods();
    const auto method = std::find_if(methods.begin(), methods.end(), [&](const auto* m) { return NameOf(*m) == rule.method; });
    const bool of_node = rule.need == Need::kNode;
    if (rule.need == Need::kJoinToken) continue;  // anybody may call: the limit is by address, not by caller
    const grpc::Status status = Call(**method, of_node ? node : people_, of_node ? "" : admin);
    const bool first = of_node || taken[rule.cost]++ == 0;
    EXPECT_EQ(status.error_code() == grpc::RESOURCE_EXHAUSTED, !first) << status.error_message();
    EXPECT_EQ(status.error_details().find("google.rpc.RetryInfo") != std::string::npos, !first);
  }
  EXPECT_GT(taken[Cost::kRead], 2);
  EXPECT_GT(taken[Cost::kChange], 2);
}

TEST_F(EveryMethodTest, IsForEverybodyWithoutTls) {
  options_.tls = false;
  StartServer();
  for (const auto* method : Methods()) {
    const grpc::Status status = Call(*method, people_, "");
    EXPECT_FALSE(Denied(status)) << NameOf(*method) << ": " << status.error_message();
    EXPECT_NE(status.error_code(), grpc::UNIMPLEMENTED) << NameOf(*method);
  }
}

}  // namespace
}  // namespace lynx::server
