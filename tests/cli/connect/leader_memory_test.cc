#include "cli/connect/leader_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace lynx::cli {
namespace {

class LeaderMemoryTest : public testing::Test {
 protected:
  LeaderMemoryTest() {
    std::string pattern = testing::TempDir() + "lynx_leaders_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    file_ = directory_ + "/lynx/leaders";
  }
  ~LeaderMemoryTest() override { std::filesystem::remove_all(directory_); }
  std::string Content() const {
    std::ostringstream text;
    text << std::ifstream(file_).rdbuf();
    return text.str();
  }

  std::string directory_, file_;
};

TEST_F(LeaderMemoryTest, RemembersTheNewestLeaderOfEachList) {
  EXPECT_EQ(RememberedLeader(file_, "a:1,b:2"), "");
  RememberLeader(file_, "a:1,b:2", "b:2");
  RememberLeader(file_, "c:3,d:4", "c:3");
  EXPECT_EQ(RememberedLeader(file_, "a:1,b:2"), "b:2");
  EXPECT_EQ(RememberedLeader(file_, "c:3,d:4"), "c:3");
  EXPECT_EQ(RememberedLeader(file_, "b:2,a:1"), "") << "another list";
  RememberLeader(file_, "a:1,b:2", "a:1");
  EXPECT_EQ(Content(), "a:1,b:2 a:1\nc:3,d:4 c:3\n");
  const std::filesystem::directory_iterator files(directory_ + "/lynx");
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "nothing else is left there";
}

TEST_F(LeaderMemoryTest, OldListsAreForgotten) {
  for (int n = 0; n < kMaxRemembered + 5; ++n) RememberLeader(file_, absl::StrCat("a:1,b:", n + 2), "a:1");
  EXPECT_EQ(RememberedLeader(file_, "a:1,b:2"), "");
  EXPECT_EQ(RememberedLeader(file_, absl::StrCat("a:1,b:", kMaxRemembered + 6)), "a:1");
  const std::string content = Content();
  EXPECT_EQ(std::count(content.begin(), content.end(), '\n'), kMaxRemembered);
}

TEST_F(LeaderMemoryTest, AFileOfOtherContentIsNoReasonToFail) {
  std::filesystem::create_directories(directory_ + "/lynx");
  std::ofstream(file_) << "nonsense\n\n\x01\x02 \xff\n" << std::string(20'000, 'x') << " y\n";
  EXPECT_EQ(RememberedLeader(file_, "a:1,b:2"), "");
  RememberLeader(file_, "a:1,b:2", "b:2");
  EXPECT_EQ(RememberedLeader(file_, "a:1,b:2"), "b:2");
  RememberLeader(file_, "a:1,b:2", "b:2\nc:3,d:4 evil:1");
  EXPECT_EQ(RememberedLeader(file_, "c:3,d:4"), "") << "what is not one word is not written";
}

TEST_F(LeaderMemoryTest, WhatCannotBeWrittenIsNotRemembered) {
  RememberLeader("/proc/nowhere/leaders", "a:1,b:2", "b:2");
  RememberLeader(directory_ + "/not/there/leaders", "a:1,b:2", "b:2");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/not")) << "no folder of another program is made";
  EXPECT_EQ(RememberedLeader("/proc/nowhere/leaders", "a:1,b:2"), "");
  RememberLeader("", "a:1,b:2", "b:2");
  EXPECT_EQ(RememberedLeader("", "a:1,b:2"), "");
  std::filesystem::create_directories(file_);  // a folder has the name of the file
  RememberLeader(file_, "a:1,b:2", "b:2");
  EXPECT_EQ(RememberedLeader(file_, "a:1,b:2"), "");
}

}  // namespace
}  // namespace lynx::cli
