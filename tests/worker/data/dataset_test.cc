#include "worker/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <vector>

#include "tests/worker/test_folder.h"

namespace lynx::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::StatusOr<std::unique_ptr<Dataset>> OpenText(const std::string& path, int32_t seq, int32_t vocab = 256,
                                                  uint64_t seed = 1) {
  return OpenDataset({DataKind::kText, path}, seq, vocab, seed);
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(TextDataset, SamplesAreConsecutiveBytesAndTargetsAreShifted) {
  const TestFolder folder;
  const auto data = OpenText(folder.Write("t.txt", "abcdefghijk"), 4);  // 11 bytes: samples abcd+e, efgh+i
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->SamplesPerEpoch(), 2);
  std::set<std::string> seen;
  for (int64_t i = 0; i < 2; ++i) {
    std::vector<int32_t> inputs(4), targets(4);
    ASSERT_TRUE((*data)->Read(i, inputs.data(), targets.data()).ok());
    seen.insert(std::string(inputs.begin(), inputs.end()) + ">" + std::string(targets.begin(), targets.end()));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"abcd>bcde", "efgh>fghi"}));
}

TEST(TextDataset, EveryEpochVisitsEachSampleOnceInAnOrderOfItsOwn) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 101; ++i) text += static_cast<char>(i);
  const auto data = OpenText(folder.Write("t.txt", text), 1);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ((*data)->SamplesPerEpoch(), 100);
  std::vector<std::vector<int32_t>> epochs(3);
  for (int64_t i = 0; i < 300; ++i) {
    int32_t input = 0, target = 0;
    ASSERT_TRUE((*data)->Read(i, &input, &target).ok());
    EXPECT_EQ(target, input + 1);
    epochs[static_cast<size_t>(i / 100)].push_back(input);
  }
  for (const auto& epoch : epochs) EXPECT_EQ(std::set<int32_t>(epoch.begin(), epoch.end()).size(), 100u);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(TextDataset, FingerprintIsOfTheContentAlone) {
  const TestFolder folder;
  const auto fingerprint_of = [&](const std::string& name, const std::string& text) {
    return OpenText(folder.Write(name, text), 1).value()->fingerprint();
  };
  EXPECT_EQ(fingerprint_of("a", "some text"), fingerprint_of("b", "some text"));
  EXPECT_EQ(fingerprint_of("a", "some text"), FingerprintOf(DataKind::kText, {std::as_bytes(std::span("some text", 9))}));
  EXPECT_FALSE(fingerprint_of("a", "some text") == fingerprint_of("b", "same text"));
}

TEST(TextDataset, BytesAreUnsigned) {
  const TestFolder folder;
  const auto data = OpenText(folder.Write("t.txt", "\xff\x80"), 1);
  ASSERT_TRUE(data.ok()) << data.status();
  int32_t input = 0, target = 0;
  ASSERT_TRUE((*data)->Read(0, &input, &target).ok());
  EXPECT_EQ(input, 255);
  EXPECT_EQ(target, 128);
}

TEST(TextDataset, TokenOutsideTheVocabularyIsNamed) {
  const TestFolder folder;
  const auto data = OpenText(folder.Write("t.txt", "\x01\x02\x7f"), 2, 100);
  ASSERT_TRUE(data.ok()) << data.status();
  int32_t inputs[2], targets[2];
  const absl::Status status = (*data)->Read(0, inputs, targets);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("t.txt"), HasSubstr("token 127"), HasSubstr("position 2"), HasSubstr("vocabulary of 100")));
}

TEST(TextDataset, BadFilesAreNamed) {
  const TestFolder folder;
  auto status = OpenText(folder.Path("absent.txt"), 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr("absent.txt"));

  status = OpenText(folder.Write("empty.txt", ""), 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("empty.txt"), HasSubstr("empty")));

  status = OpenText(folder.Write("short.txt", "abcd"), 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("short.txt"), HasSubstr("4 tokens"), HasSubstr("at most 3")));

  status = OpenText(folder.Path(""), 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("not a regular file"));

  EXPECT_TRUE(OpenText(folder.Write("enough.txt", "abcde"), 4).ok());
}

}  // namespace
}  // namespace lynx::worker
