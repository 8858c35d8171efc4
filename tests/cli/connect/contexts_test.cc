#include "cli/connect/contexts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/connect/client.h"
#include "cli/local/find_server.h"
#include "cli/output/exit_code.h"
#include "cli/verbs/commands.h"
#include "common/clock.h"
#include "node/file.h"
#include "security/authority.h"
#include "security/secret.h"

namespace lynx::cli {
namespace {

using testing::HasSubstr;

class ContextsTest : public testing::Test {
 protected:
  ContextsTest() {
    std::string pattern = testing::TempDir() + "lynx_contexts_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
    setenv("LYNX_HOME", (folder_ + "/none").c_str(), 1);
    unsetenv("LYNX_SERVER");
    unsetenv("LYNX_CONTEXT");
  }
  ~ContextsTest() override {
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("LYNX_HOME");
    std::filesystem::remove_all(folder_);
  }
  static std::string Message(const absl::Status& status) { return std::string(status.message()); }

  std::string folder_;
};

TEST_F(ContextsTest, OneInUseIsCalled) {
  EXPECT_EQ(FindServer({}).source, "the default");
  ASSERT_TRUE(AddContext("prod", {.server = "prod:1"}).ok());
  ASSERT_TRUE(AddContext("test", {.server = "test:2"}).ok());
  EXPECT_EQ(FindServer({}).source, "the default") << "none is in use";
  ASSERT_TRUE(UseContext("prod").ok());
  EXPECT_EQ(FindServer({}).address, "prod:1");
  ASSERT_TRUE(UseContext("test").ok());
  EXPECT_EQ(ContextInUse(), "test");
  EXPECT_EQ(FindServer({}).address, "test:2");
  EXPECT_EQ(FindServer({.context = "prod"}).address, "prod:1") << "by its name, for once";
  EXPECT_EQ(FindServer({.server = "other:3"}).address, "other:3");
  setenv("LYNX_SERVER", "variable:4", 1);
  EXPECT_EQ(FindServer({}).address, "variable:4");
  unsetenv("LYNX_SERVER");
  const std::vector<NamedContext> all = ListContexts();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].name, "prod");
  EXPECT_FALSE(all[0].in_use);
  EXPECT_TRUE(all[1].in_use);
  EXPECT_EQ(all[1].context->server, "test:2");
  ASSERT_TRUE(LeaveContext().ok());
  EXPECT_EQ(FindServer({}).source, "the default");
}

TEST_F(ContextsTest, TheTokenOfOneInUseGoesToNoOtherServer) {
  ASSERT_TRUE(AddContext("prod", {.server = "prod:1", .authority = "pem", .token = "secret"}).ok());
  ASSERT_TRUE(UseContext("prod").ok());
  EXPECT_EQ(FindServer({}).token, "secret");
  EXPECT_EQ(FindServer({.server = "other:3"}).token, "");
  EXPECT_EQ(FindServer({.server = "prod:1"}).token, "secret");
}

TEST_F(ContextsTest, NoContextTakesTheFilesThatAreNamed) {
  ASSERT_TRUE(AddContext("prod", {.server = "prod:1", .authority = "pem", .token = "secret"}).ok());
  ASSERT_TRUE(UseContext("prod").ok());
  const absl::StatusOr<Authority> authority = Authority::Open(folder_ + "/authority", RealClock().Wall());
  ASSERT_TRUE(authority.ok()) << authority.status();
  const std::string ca_file = folder_ + "/ca.pem", token_file = folder_ + "/token";
  ASSERT_TRUE(WriteFileDurably(ca_file, authority->certificate()).ok());
  ASSERT_TRUE(WriteSecretFile(token_file, "mine").ok());
  const ServerAddress found =
      FindServer({.server = "prod:1", .ca_file = ca_file, .token_file = token_file, .no_context = true});
  EXPECT_TRUE(found.status.ok()) << found.status;
  EXPECT_EQ(found.authority, authority->certificate());
  EXPECT_EQ(found.token, "mine");
  EXPECT_EQ(FindServer({.no_context = true}).source, "the default");
  EXPECT_EQ(FindServer({.server = "prod:1", .no_context = true}).token, "");
  EXPECT_THAT(Message(FindServer({.token_file = token_file, .no_context = true}).status), HasSubstr("give --ca-file"));
  EXPECT_THAT(Message(FindServer({.ca_file = folder_ + "/none", .no_context = true}).status), HasSubstr("none"));
}

TEST_F(ContextsTest, NoContextIgnoresWhatTheEnvironmentSaysOfOne) {
  const std::vector<const char*> names = {"LYNX_CONTEXT", "LYNX_CA_FILE", "LYNX_TOKEN_FILE"};
  for (const char* name : names) setenv(name, (folder_ + "/none").c_str(), 1);
  setenv("LYNX_SERVER", "variable:4", 1);
  const ServerAddress found = FindServer({.no_context = true});
  for (const char* name : names) unsetenv(name);
  unsetenv("LYNX_SERVER");
  EXPECT_TRUE(found.status.ok()) << found.status;
  EXPECT_EQ(found.address, "variable:4");
}

TEST_F(ContextsTest, AContextAndNoneExcludeEachOther) {
  EXPECT_THAT(Message(FindServer({.context = "prod", .no_context = true}).status), HasSubstr("leave one of the two out"));
}

TEST_F(ContextsTest, AContextOfSeveralServersCountsForEachOfThem) {
  ASSERT_TRUE(AddContext("prod", {.server = "a:1,b:1,c:1", .authority = "pem", .token = "secret"}).ok());
  ASSERT_TRUE(UseContext("prod").ok());
  EXPECT_EQ(FindServer({}).address, "a:1,b:1,c:1");
  EXPECT_EQ(FindServer({.server = "b:1"}).token, "secret");
  EXPECT_EQ(FindServer({.server = "c:1,a:1"}).token, "secret");
  EXPECT_EQ(FindServer({.server = "b:1,d:1"}).token, "") << "d:1 is not of the context";
  EXPECT_EQ(FindServer({.server = "b:2"}).token, "");
}

TEST_F(ContextsTest, AnAddressThatIsNoneIsNamedWithWhoGaveIt) {
  EXPECT_THAT(Message(FindServer({.server = "a:1,b"}).status), HasSubstr("--server: \"a:1,b\" does not name servers: part 2"));
  setenv("LYNX_SERVER", "a:1,,b:1", 1);
  EXPECT_THAT(Message(FindServer({}).status),
              HasSubstr("LYNX_SERVER: \"a:1,,b:1\" does not name servers: part 2 (\"\") is empty"));
  unsetenv("LYNX_SERVER");
  GlobalOptions global;
  global.connection.server = "a";
  EXPECT_EQ(AddContextCommand(global, "bad"), kExitBadInput);
  EXPECT_TRUE(ListContexts().empty());
  EXPECT_THAT(Message(Client({.address = "a:1,a:1", .source = "the test"}, Nanos(1)).Nodes().status()),
              HasSubstr("the test: \"a:1,a:1\" does not name servers: part 2 (\"a:1\") is there twice"));
}

TEST_F(ContextsTest, AContextForOthersNamesAllServers) {
  EXPECT_EQ(AddressForOthers("a:1", "a:1,b:1"), "a:1,b:1");
  EXPECT_EQ(AddressForOthers("b:1,a:1", "a:1,b:1,c:1"), "a:1,b:1,c:1");
  EXPECT_EQ(AddressForOthers("balancer:1", "a:1,b:1"), "balancer:1") << "the servers do not know it";
  EXPECT_EQ(AddressForOthers("127.0.0.1:1", "a:1"), "a:1") << "of no use on another machine";
  EXPECT_EQ(AddressForOthers("a:1", ""), "a:1") << "the server has no better one";
}

TEST_F(ContextsTest, RemovingTheOneInUseLeavesNone) {
  ASSERT_TRUE(AddContext("prod", {.server = "prod:1"}).ok());
  ASSERT_TRUE(UseContext("prod").ok());
  ASSERT_TRUE(RemoveContext("prod").ok());
  EXPECT_EQ(ContextInUse(), "");
  EXPECT_TRUE(ListContexts().empty());
  EXPECT_EQ(FindServer({}).source, "the default");
}

TEST_F(ContextsTest, WhatCannotBeSaysWhy) {
  EXPECT_THAT(Message(UseContext("prod")),
              HasSubstr("there is no context prod, nor any other; 'lynxctl context add' makes one"));
  ASSERT_TRUE(AddContext("prod", {.server = "prod:1"}).ok());
  EXPECT_THAT(Message(UseContext("test")), HasSubstr("there is no context test; there are prod"));
  EXPECT_THAT(Message(RemoveContext("test")), HasSubstr("there is no context test"));
  EXPECT_EQ(AddContext("prod", {.server = "x:1"}).code(), absl::StatusCode::kAlreadyExists);
  for (const char* name : {"", "a/b", "..", ".hidden", "two words"}) {
    EXPECT_THAT(Message(AddContext(name, {.server = "x:1"})), HasSubstr("is no name for a context")) << name;
  }
  unsetenv("XDG_CONFIG_HOME");
  const std::string home = getenv("HOME");
  unsetenv("HOME");
  EXPECT_THAT(Message(ContextPath("prod").status()), HasSubstr("set HOME or XDG_CONFIG_HOME"));
  setenv("HOME", home.c_str(), 1);
}

TEST_F(ContextsTest, AFileThatWasPutThereByHandIsNotLost) {
  ASSERT_TRUE(AddContext("prod", {.server = "prod:1"}).ok());
  const std::string standing = folder_ + "/lynx/context.json";
  ASSERT_TRUE(WriteContextFile(standing, {.server = "mine:1"}).ok());
  for (const absl::Status& status : {UseContext("prod"), LeaveContext()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status), HasSubstr("was put there by hand: keep it"));
  }
  EXPECT_EQ(FindServer({}).address, "mine:1");
}

TEST_F(ContextsTest, WhatIsNotUtf8IsRefusedAndListedAllTheSame) {
  const absl::Status refused = AddContext("prod", {.server = "caf\xe9:1"});
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused), HasSubstr("is not UTF-8: 'caf\\xe9:1'; give another"));
  ASSERT_TRUE(AddContext("prod", {.server = "prod:1"}).ok());
  std::filesystem::copy(*ContextPath("prod"), folder_ + "/lynx/contexts/caf\xe9.json");
  testing::internal::CaptureStdout();
  EXPECT_EQ(ListContextsCommand({.output = OutputFormat::kJson}), kExitOk);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("caf\xef\xbf\xbd"));
}

TEST_F(ContextsTest, OneThatCannotBeReadIsListedAndNotUsed) {
  ASSERT_TRUE(AddContext("prod", {.server = "prod:1"}).ok());
  std::filesystem::permissions(*ContextPath("prod"), std::filesystem::perms::all);
  EXPECT_THAT(Message(UseContext("prod")), HasSubstr("others than its owner may read"));
  ASSERT_EQ(ListContexts().size(), 1u);
  EXPECT_FALSE(ListContexts()[0].context.ok());
}

}  // namespace
}  // namespace lynx::cli
