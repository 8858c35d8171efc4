#include "worker/rank/records/run_log.h"

#include <signal.h>
#include <sys/resource.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/test_folder.h"

namespace lynx::worker {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

// While an object of this class lives, no file of this process can grow beyond this number of bytes, as on a full disk. A
// larger write is done only in part.
class FilesEndAt {
 public:
  explicit FilesEndAt(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FilesEndAt() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST(RunLogTest, AFullDiskLeavesWholeLines) {
  const TestFolder folder;
  const RealClock clock;
  RankConfig config;
  config.job = JobId("small");
  config.checkpoint_directory = folder.path();
  {
    RunLog log(config, 0, clock);
    for (int64_t step = 0; step < 3; ++step) log.Add({.step = step, .loss = 1.25}, std::nullopt);
    const std::string whole = folder.Read("metrics-small/metrics.csv");
    const FilesEndAt limit(whole.size() + 5);
    log.Add({.step = 3, .loss = 1.25}, std::nullopt);
    EXPECT_EQ(folder.Read("metrics-small/metrics.csv"), whole);
  }
  // The next generation continues after the complete lines of the previous one.
  RunLog log(config, 5, clock);
  log.Add({.step = 5, .loss = 1}, std::nullopt);
  EXPECT_THAT(folder.Read("metrics-small/metrics.csv"), StartsWith("step,loss"));
  EXPECT_THAT(folder.Read("metrics-small/metrics.csv"), EndsWith("3,1.25,0,0,\n6,1,0,0,\n"));
}

}  // namespace
}  // namespace lynx::worker
