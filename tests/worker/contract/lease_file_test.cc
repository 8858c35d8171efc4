#include "worker/contract/lease_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/worker/test_folder.h"

namespace lynx {
namespace {

using testing::HasSubstr;

class LeaseFileTest : public testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/lease"; }
  worker::TestFolder folder_;
};

TEST_F(LeaseFileTest, WhatIsWrittenIsReadAtOnceAndOutlivesTheWriter) {
  std::optional<LeaseFile> writer(LeaseFile::OpenToWrite(path()).value());
  EXPECT_EQ(writer->Deadline(), Nanos(INT64_MAX));
  const absl::StatusOr<LeaseFile> reader = LeaseFile::OpenToRead(path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  writer->Set(Nanos(42));
  EXPECT_EQ(reader->Deadline(), Nanos(42));
  writer.reset();
  EXPECT_EQ(reader->Deadline(), Nanos(42));
  EXPECT_EQ(LeaseFile::OpenToWrite(path()).value().Deadline(), Nanos(42));
}

TEST_F(LeaseFileTest, WhatAnEarlierBootLeftDoesNotCount) {
  LeaseFile::OpenToWrite(path()).value().Set(Nanos(42));
  std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8);
  file.write("another boot", 12);
  file.close();
  EXPECT_EQ(LeaseFile::OpenToWrite(path()).value().Deadline(), Nanos(INT64_MAX));
}

TEST_F(LeaseFileTest, SaysWhichFileIsMissingOrIsNone) {
  const absl::Status missing = LeaseFile::OpenToRead(path()).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(path()));
  for (const size_t size : {0, 10, 4096}) {
    std::ofstream(path()) << std::string(size, 'x');
    const absl::Status damaged = LeaseFile::OpenToRead(path()).status();
    EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss) << size;
    EXPECT_THAT(std::string(damaged.message()), HasSubstr(path() + " is not a lease file"));
  }
  EXPECT_EQ(LeaseFile::OpenToWrite(folder_.path() + "/no/lease").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lynx
