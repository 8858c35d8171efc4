// FakeDriver decides what the tests' libnvidia-ml.so.1 (fake_nvml.cc) answers, for as long as the object lives. Only one such
// object may exist at a time, because it sets an environment variable.
#ifndef LYNX_TESTS_AGENT_FAKE_DRIVER_H_
#define LYNX_TESTS_AGENT_FAKE_DRIVER_H_

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace lynx::agent::testing {

class FakeDriver {
 public:
  explicit FakeDriver(const std::string& text) {
    char pattern[] = "/tmp/lynx-fake-nvml-XXXXXX";
    ::close(::mkstemp(pattern));
    path_ = pattern;
    ::setenv("LYNX_FAKE_NVML", path_.c_str(), 1);
    Write(text);
  }
  ~FakeDriver() {
    ::unsetenv("LYNX_FAKE_NVML");
    std::filesystem::remove(path_);
  }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  // Sets the answers from now on. The file is replaced as a whole, because another process may be reading it.
  void Write(const std::string& text) const {
    std::ofstream(path_ + ".new") << text;
    std::filesystem::rename(path_ + ".new", path_);
  }

  static std::string Folder() { return std::string(LYNX_BINARY_DIR) + "/lib/fake_nvml"; }
  static std::string Library() { return Folder() + "/libnvidia-ml.so.1"; }
  static std::string OldLibrary() { return std::string(LYNX_BINARY_DIR) + "/lib/old_nvml/libnvidia-ml.so.1"; }

 private:
  std::string path_;
};

}  // namespace lynx::agent::testing

#endif  // LYNX_TESTS_AGENT_FAKE_DRIVER_H_
