// TestFolder: a folder for a test's files, in GoogleTest's temporary folder.
#ifndef LYNX_TESTS_WORKER_TEST_FOLDER_H_
#define LYNX_TESTS_WORKER_TEST_FOLDER_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace lynx::worker {

// A folder of the running test. It is removed together with the object.
class TestFolder {
 public:
  TestFolder() {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = "lynx-" + std::to_string(getpid()) + "-" + test->test_suite_name() + "." + test->name();
    std::replace(name.begin(), name.end(), '/', '-');  // in a parameterized test a slash precedes the parameter's name
    path_ = std::filesystem::path(testing::TempDir()) / name;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ / name; }
  std::string Read(const std::string& name) const {
    std::ifstream in(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Replaces the whole file at once. A process that has the file open or mapped keeps the old content.
  std::string Write(const std::string& name, const std::string& content) const {
    const std::filesystem::path file = path_ / name, fresh = path_ / (name + ".fresh");
    std::ofstream(fresh, std::ios::binary) << content;
    std::filesystem::rename(fresh, file);
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_TEST_FOLDER_H_
