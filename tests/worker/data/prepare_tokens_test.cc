// Tests that scripts/prepare_tokens.py writes files that the engine can read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/test_folder.h"
#include "worker/data/dataset.h"

namespace lynx::worker {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Answer {
  int exit_code = 0;
  std::string text;  // standard output and error
};

// Runs the script in the folder. `before`: environment variables, which are put before the command.
Answer Prepare(const TestFolder& folder, const std::string& arguments, const std::string& before = "") {
  const std::string command = absl::StrCat("cd ", folder.path(), " && ", before, " python3 -B ", LYNX_SOURCE_DIR,
                                           "/scripts/prepare_tokens.py ", arguments, " > answer 2>&1 < /dev/null");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, folder.Read("answer")};
}

// Reads all tokens of the Megatron file pair "out" (.bin and .idx), which has `count` tokens. They are read as one sample.
std::vector<int32_t> TokensOf(const TestFolder& folder, int32_t count, int32_t vocab) {
  const auto dataset = OpenDataset({DataKind::kMegatron, folder.Path("out")}, count - 1, vocab, 1);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  if (!dataset.ok()) return {};
  EXPECT_EQ((*dataset)->SamplesPerEpoch(), 1);
  std::vector<int32_t> tokens(static_cast<size_t>(count)), targets(static_cast<size_t>(count) - 1);
  EXPECT_EQ((*dataset)->Read(0, tokens.data(), targets.data()), absl::OkStatus());
  tokens.back() = targets.back();
  return tokens;
}

TEST(PrepareTokens, IdsComeBackAsTheyWere) {
  const TestFolder folder;
  folder.Write("a", "5 0 65535\n\n  7\n");
  folder.Write("b", "50256 1\n2");
  Answer answer = Prepare(folder, "--ids --out out a b");
  EXPECT_EQ(answer.exit_code, 0) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("4 documents, 7 tokens, the largest 65535: out.bin, out.idx"));
  EXPECT_EQ(std::filesystem::file_size(folder.Path("out.bin")), 14u);
  EXPECT_EQ(TokensOf(folder, 7, 65536), (std::vector<int32_t>{5, 0, 65535, 7, 50256, 1, 2}));

  // The ids are larger, each file is one document, and each document gets an end token.
  answer = Prepare(folder, "--ids --whole-files --end-of-document 100000 --out out a b");
  EXPECT_EQ(answer.exit_code, 0) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("2 documents, 9 tokens, the largest 100000"));
  EXPECT_EQ(std::filesystem::file_size(folder.Path("out.bin")), 36u);
  EXPECT_EQ(TokensOf(folder, 9, 100001), (std::vector<int32_t>{5, 0, 65535, 7, 100000, 50256, 1, 2, 100000}));
}

// A fake of the library returns each character's code, and says from which files it was made.
TEST(PrepareTokens, AsksTheLibraryForBpe) {
  const TestFolder folder;
  folder.Write("tokenizers.py",
               "import collections, sys\n"
               "Encoding = collections.namedtuple('Encoding', 'ids')\n"
               "class ByteLevelBPETokenizer:\n"
               "    def __init__(self, vocab, merges): print('made from', vocab, merges)\n"
               "    def encode(self, text): return Encoding([ord(c) for c in text])\n"
               "class Tokenizer(ByteLevelBPETokenizer):\n"
               "    @staticmethod\n"
               "    def from_file(path): return Tokenizer(path, '')\n");
  folder.Write("a", "ab\nc");
  for (const auto& [arguments, made] : {std::pair("--vocab v.json --merges m.txt", "made from v.json m.txt"),
                                        std::pair("--tokenizer t.json", "made from t.json")}) {
    const Answer answer = Prepare(folder, absl::StrCat(arguments, " --out out a"), "PYTHONPATH=.");
    EXPECT_EQ(answer.exit_code, 0) << answer.text;
    EXPECT_THAT(answer.text, HasSubstr(made));
    EXPECT_EQ(TokensOf(folder, 3, 256), (std::vector<int32_t>{'a', 'b', 'c'}));
  }
}

TEST(PrepareTokens, SaysWhichFilesTheLibraryCannotRead) {
  const TestFolder folder;
  folder.Write("tokenizers.py",
               "class Tokenizer:\n"
               "    @staticmethod\n"
               "    def from_file(path): raise Exception('No such file or directory (os error 2)')\n");
  const Answer answer = Prepare(folder, "--tokenizer t.json --out out a", "PYTHONPATH=.");
  EXPECT_EQ(answer.text, "prepare_tokens.py: t.json: No such file or directory (os error 2)\n");
}

TEST(PrepareTokens, SaysWhatIsWrong) {
  const TestFolder folder;
  folder.Write("good", "1 2");
  folder.Write("words", "1\ntwo");
  folder.Write("negative", "-1");
  folder.Write("empty", "\n\n");
  folder.Write("latin", "1 2\n3 4 \xe9\n");
  folder.Write("tokenizers.py", "raise ImportError");
  const struct {
    const char* arguments;
    const char* part;
  } cases[] = {
      {"--ids --out out words", "words:2: invalid literal"},
      {"--ids --out out negative", "negative:1: ids must be from 0"},
      {"--ids --out out empty", "there are no tokens"},
      {"--ids --tokenizer t.json --out out good", "name one of"},
      {"--vocab v.json --out out good", "name one of"},
      {"--ids --out out good missing", "prepare_tokens.py: missing: No such file or directory\n"},
      {"--ids --out out .", "prepare_tokens.py: .: Is a directory\n"},
      {"--ids --out out latin", "prepare_tokens.py: latin:2: byte 5 of the line, 0xe9, is not UTF-8; convert the file\n"},
      {"--ids --whole-files --out out latin", "prepare_tokens.py: latin:2: byte 5 of the line"},
      {"--ids --out none/out good", "prepare_tokens.py: none/out.bin.part: No such file or directory\n"},
      {"--tokenizer t.json --out out good", "pip install tokenizers"}};
  for (const auto& [arguments, part] : cases) {
    const Answer answer = Prepare(folder, arguments, "PYTHONPATH=.");
    EXPECT_NE(answer.exit_code, 0) << arguments;
    EXPECT_THAT(answer.text, HasSubstr(part)) << arguments;
    EXPECT_THAT(answer.text, Not(HasSubstr("Traceback"))) << arguments;
    EXPECT_FALSE(std::filesystem::exists(folder.Path("out.bin"))) << arguments;
  }
}

}  // namespace
}  // namespace lynx::worker
