#include "worker/daemon/allowed_paths.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include "worker/daemon/job_user.h"

namespace lynx::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class AllowedPathsTest : public ::testing::Test {
 protected:
  AllowedPathsTest() {
    std::string pattern = ::testing::TempDir() + "lynx_paths_XXXXXX";
    folder_ = fs::canonical(::mkdtemp(pattern.data())).string();
    for (const char* name : {"/data", "/data-too", "/outside"}) fs::create_directory(folder_ + name);
    for (const char* name : {"/data/text", "/data-too/text", "/outside/text"}) std::ofstream(folder_ + name) << "text";
    roots_ = RootsOf("--data-root", folder_ + "/data").value();
  }
  ~AllowedPathsTest() override { fs::remove_all(folder_); }

  bool Allowed(const std::string& path) { return CheckWithin(roots_, "data.path", folder_ + path).ok(); }

  std::string folder_;
  std::vector<std::string> roots_;
};

TEST_F(AllowedPathsTest, WhatIsBelowARootIsAllowedAndNothingElse) {
  EXPECT_TRUE(Allowed("/data/text"));
  EXPECT_TRUE(Allowed("/data"));
  EXPECT_TRUE(Allowed("/data/not/there/yet"));
  EXPECT_TRUE(Allowed("/data/../data/text"));
  EXPECT_FALSE(Allowed("/outside/text"));
  EXPECT_FALSE(Allowed("/data/../outside/text"));
  EXPECT_FALSE(Allowed("/data/not/there/../../../outside/new"));
  EXPECT_FALSE(Allowed("/data-too/text")) << "a name that only begins alike";
  EXPECT_FALSE(Allowed(""));
}

TEST_F(AllowedPathsTest, LinksAreFollowed) {
  fs::create_symlink(folder_ + "/outside", folder_ + "/data/out");
  fs::create_symlink(folder_ + "/outside/text", folder_ + "/data/file");
  fs::create_symlink(folder_ + "/outside/nothing-yet", folder_ + "/data/dangling");
  fs::create_symlink(folder_ + "/data/text", folder_ + "/data/inside");
  fs::create_symlink(folder_ + "/data", folder_ + "/into");
  EXPECT_FALSE(Allowed("/data/out/text"));
  EXPECT_FALSE(Allowed("/data/out/new"));
  EXPECT_FALSE(Allowed("/data/file"));
  EXPECT_FALSE(Allowed("/data/dangling"));
  EXPECT_FALSE(Allowed("/data/dangling/new"));
  EXPECT_FALSE(Allowed("/data/out/../text")) << "the kernel's '..' is the link's target's";
  EXPECT_TRUE(Allowed("/data/inside"));
  EXPECT_TRUE(Allowed("/into/text"));
  const absl::Status refused = CheckWithin(roots_, "data.path", folder_ + "/data/file");
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("it leads to " + folder_ + "/outside/text"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--data-root"));
}

// The target of a link may appear later, or exist on another node. So if a path cannot be followed, this is not the job's
// fault.
TEST_F(AllowedPathsTest, APathThatCannotBeFollowedIsNotOneThatIsRefused) {
  fs::create_symlink(folder_ + "/outside/nothing-yet", folder_ + "/data/dangling");
  fs::create_symlink(folder_ + "/data/loop", folder_ + "/data/loop");
  for (const auto& [path, why] : {std::pair("/data/dangling", "has a link to something that is not there on this node"),
                                  {"/data/loop/text", "cannot be followed on this node: Too many levels of symbolic links"}}) {
    const absl::Status refused = CheckWithin(roots_, "data.path", folder_ + path);
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << path;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("data.path " + folder_ + path + " " + why));
  }
}

TEST_F(AllowedPathsTest, RootsMayBeLinksAndMany) {
  fs::create_symlink(folder_ + "/data-too", folder_ + "/link");
  roots_ = RootsOf("--data-root", folder_ + "/data," + folder_ + "/link").value();
  EXPECT_TRUE(Allowed("/data/text"));
  EXPECT_TRUE(Allowed("/data-too/text"));
  EXPECT_FALSE(Allowed("/outside/text"));
  EXPECT_TRUE(CheckWithin({}, "data.path", "/anywhere").ok());
  EXPECT_EQ(RootsOf("--data-root", "relative").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RootsOf("--data-root", folder_ + "/none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(RootsOf("--data-root", "")->empty());
}

TEST_F(AllowedPathsTest, EveryPathOfAJobIsLookedAt) {
  const std::string in = folder_ + "/data/text", out = folder_ + "/outside/text";
  const AllowedPaths allowed{.data_roots = roots_, .checkpoint_roots = roots_};
  const auto check = [&](const std::string& data, const std::string& validation, const std::string& checkpoint,
                         const std::string& from) {
    RankConfig config;
    config.spec.data.path = data;
    config.spec.data.validation_path = validation;
    config.checkpoint_directory = checkpoint;
    config.spec.checkpoint.from = from;
    return std::string(CheckPaths(allowed, config).message());
  };
  EXPECT_EQ(check(in, "", in, ""), "");
  EXPECT_EQ(check(in, in, in, in), "");
  EXPECT_THAT(check(out, "", in, ""), HasSubstr("data.path"));
  EXPECT_THAT(check(in, out, in, ""), HasSubstr("data.validationPath"));
  EXPECT_THAT(check(in, "", out, ""), HasSubstr("checkpoint.directory"));
  EXPECT_THAT(check(in, "", in, out), HasSubstr("checkpoint.from"));
}

// The prefix of a Megatron data set stands for two files. The daemon checks these files, because the rank opens them.
TEST_F(AllowedPathsTest, TheFilesOfAPrefixAreLookedAt) {
  fs::create_symlink(folder_ + "/outside/text", folder_ + "/data/tokens.bin");
  RankConfig config;
  config.spec.data = {.kind = DataKind::kMegatron, .path = folder_ + "/data/tokens"};
  config.checkpoint_directory = folder_ + "/data";
  const absl::Status refused = CheckPaths({.data_roots = roots_, .checkpoint_roots = roots_}, config);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("tokens.bin"));
}

TEST(JobUserTest, IsNeverRoot) {
  EXPECT_EQ(FindJobUser("root").status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status unknown = FindJobUser("nobody-of-this-name").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("nobody-of-this-name"));
  EXPECT_EQ(FindJobUser("")->user, 0u);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can start ranks as another user";
  const JobUser nobody = FindJobUser("nobody").value();
  EXPECT_EQ(nobody.user, ::getpwnam("nobody")->pw_uid);
  EXPECT_THAT(RightsText(nobody), HasSubstr(std::to_string(nobody.user) + ":" + std::to_string(nobody.group) + ":"));
}

TEST(JobUserTest, JobsOfPeopleDoNotRunAsRootUnlessToldSo) {
  if (::geteuid() != 0) GTEST_SKIP() << "this is not root";
  const absl::Status refused = CheckNotRoot({}, RootRanks::kNobody);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--job-user"));
  EXPECT_TRUE(CheckNotRoot({}, RootRanks::kNoTls).ok()) << "a cluster on one machine";
  EXPECT_TRUE(CheckNotRoot({}, RootRanks::kOperator).ok());
  EXPECT_TRUE(CheckNotRoot({.user = 65534}, RootRanks::kNobody).ok());
}

}  // namespace
}  // namespace lynx::worker
