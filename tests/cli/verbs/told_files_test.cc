#include "cli/verbs/told_files.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

namespace lynx::cli {
namespace {

TEST(ToldFiles, TellsWhatIsReadAndWritten) {
  std::string folder = testing::TempDir() + "lynx_told_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::vector<std::string> told;
  ToldFiles files([&](const std::string& text) { told.push_back(text); });
  const std::string path = folder + "/model.safetensors";
  std::string block(8 << 20, 'x');
  {
    auto file = files.CreateFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*file)->Append(block).ok());
  }
  {
    auto file = files.OpenFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->size(), Bytes(24 << 20));
    ASSERT_TRUE((*file)->Read(block).ok());
    ASSERT_TRUE((*file)->Skip(8 << 20).ok());
    EXPECT_FALSE((*file)->Skip(9 << 20).ok()) << "errors are those of the disk";
  }
  EXPECT_EQ(told, (std::vector<std::string>{"model.safetensors", "16.0 MiB written, model.safetensors",
                                            "24.0 MiB written, model.safetensors",
                                            "8.0 MiB read, 24.0 MiB written, model.safetensors"}));
  EXPECT_TRUE(absl::IsNotFound(files.OpenFile(folder + "/none").status()));
  std::filesystem::remove_all(folder);
}

TEST(ToldFiles, ControlsInANameAreWrittenOut) {
  std::string folder = testing::TempDir() + "lynx_told_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::vector<std::string> told;
  ToldFiles files([&](const std::string& text) { told.push_back(text); });
  ASSERT_TRUE(files.CreateFile(folder + "/model\033[2J\nall is well").ok());
  EXPECT_EQ(told, std::vector<std::string>{"model\\x1b[2J\\nall is well"});
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lynx::cli
