// Files for the data tests, in GoogleTest's temporary folder.
#ifndef LYNX_TESTS_WORKER_DATA_DATA_FILES_H_
#define LYNX_TESTS_WORKER_DATA_DATA_FILES_H_

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace lynx {

// A folder of the running test's own, removed with the object.
class TestFolder {
 public:
  TestFolder() {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(testing::TempDir()) /
            ("lynx-" + std::to_string(getpid()) + "-" + test->test_suite_name() + "." + test->name());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string Path(const std::string& name) const { return path_ / name; }
  std::string Write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lynx

#endif  // LYNX_TESTS_WORKER_DATA_DATA_FILES_H_
