#include "node/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace lynx {
namespace {

using testing::AllOf;
using testing::ExitedWithCode;
using testing::HasSubstr;
using testing::Not;

// A log is started once in a process, so each test is a process of its own.
void Tell(const char* level) {
  if (!StartLog(level).ok()) std::_Exit(1);
  LogDebug("small {}", 1);
  LogInfo("{} of {}", "{x} {", 3);
  LogWarn("seven {}", 7);
  WriteLog(LogLevel::kError, "100% {} of it");
  std::_Exit(0);
}

TEST(LogDeathTest, WritesTextsWithBracesAsTheyAre) {
  EXPECT_EXIT(Tell("debug"), ExitedWithCode(0),
              AllOf(HasSubstr(" debug small 1\n"), HasSubstr(" info {x} { of 3\n"), HasSubstr(" warning seven 7\n"),
                    HasSubstr(" error 100% {} of it\n")));
}

TEST(LogDeathTest, ShowsItsLevelAndThoseAbove) {
  EXPECT_EXIT(Tell("warn"), ExitedWithCode(0),
              AllOf(Not(HasSubstr("small")), Not(HasSubstr("of 3")), HasSubstr("seven 7\n"), HasSubstr("100% {} of it\n")));
}

TEST(LogDeathTest, OtherLevelsAreRefused) {
  EXPECT_EQ(StartLog("loud").message(), "--log-level 'loud' is not one of trace, debug, info, warn, error");
}

}  // namespace
}  // namespace lynx
