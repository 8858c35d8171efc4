#include "worker/rank/records/report_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <sstream>
#include <vector>

#include "tests/worker/test_folder.h"

namespace lynx::worker {
namespace {

// While an object of this class lives, no file of this process can grow beyond `bytes`. This is like a disk that becomes full
// during a write.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(uintmax_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{static_cast<rlim_t>(bytes), before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

// Returns the reports in a file, line by line: the step of a StepReport, or -1 for any other line.
std::vector<int64_t> StepsByLine(const std::string& text) {
  std::vector<int64_t> steps;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const absl::StatusOr<RankReport> report = ParseRankReport(line);
    steps.push_back(report.ok() ? std::get<StepReport>(*report).step : -1);
  }
  return steps;
}

// Each report that could be written must be on a line of its own, whatever happened to earlier reports.
TEST(ReportFile, ATornReportDestroysNoOther) {
  for (const uintmax_t torn_bytes : {0, 1, 20, 100}) {
    const TestFolder folder;
    const std::string path = folder.Path("reports");
    ReportFile reports = ReportFile::Open(path).value();
    reports.Append(StepReport{.step = 1});
    {
      const FileSizeLimit full(std::filesystem::file_size(path) + torn_bytes);
      reports.Append(StepReport{.step = 2});
      reports.Append(StepReport{.step = 3});
    }
    reports.Append(StepReport{.step = 4});
    reports.Append(StepReport{.step = 5});
    const std::vector<int64_t> expected = torn_bytes == 0 ? std::vector<int64_t>{1, 4, 5} : std::vector<int64_t>{1, -1, 4, 5};
    EXPECT_EQ(StepsByLine(folder.Read("reports")), expected) << torn_bytes;
  }
}

// After an incomplete report there may be room only for a newline.
TEST(ReportFile, ATornReportMayBeFollowedByAnother) {
  const TestFolder folder;
  const std::string path = folder.Path("reports");
  ReportFile reports = ReportFile::Open(path).value();
  for (const uintmax_t torn_bytes : {7, 1, 30}) {
    const uintmax_t size = std::filesystem::exists(path) ? std::filesystem::file_size(path) : 0;
    const FileSizeLimit full(size + torn_bytes);
    reports.Append(StepReport{.step = 2});
  }
  reports.Append(StepReport{.step = 4});
  EXPECT_EQ(StepsByLine(folder.Read("reports")), (std::vector<int64_t>{-1, -1, 4}));
}

TEST(ReportFile, AFolderThatIsNotThereIsAnError) {
  const TestFolder folder;
  EXPECT_FALSE(ReportFile::Open(folder.Path("absent/reports")).ok());
}

}  // namespace
}  // namespace lynx::worker
