// A temporary folder that is removed with the object.
#ifndef LYNX_TESTS_SECURITY_FOLDER_H_
#define LYNX_TESTS_SECURITY_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace lynx {

struct Folder {
  std::string path;

  Folder() {
    std::string pattern = ::testing::TempDir() + "lynx_security_XXXXXX";
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

}  // namespace lynx

#endif  // LYNX_TESTS_SECURITY_FOLDER_H_
