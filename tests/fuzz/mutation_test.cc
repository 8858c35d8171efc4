// Mutates valid inputs and passes them to the fuzz targets. By default each target gets kDefaultInputs inputs, which are the
// same in every run. For a longer search:
//   LYNX_FUZZ_SECONDS=600 LYNX_FUZZ_SEED=7 build/bin/fuzz_mutation_test
// The seed is printed. A longer search first writes each input to fuzz-TARGET.input. So if an input ends the process, the input
// is kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/targets.h"

namespace lynx {
namespace {

constexpr int kDefaultInputs = 1500;  // number of inputs for each target
constexpr size_t kMaxInput = 20'000;  // bytes

uint64_t Setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : rng_(seed) {}

  std::string Next(const std::vector<std::string>& corpus) {
    std::string text = Pick(corpus);
    for (size_t i = Below(4) + 1; i > 0; --i) Mutate(text, corpus);
    if (text.size() > kMaxInput) text.resize(kMaxInput);
    return text;
  }

 private:
  size_t Below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(rng_() % n); }
  template <class T>
  const T& Pick(const std::vector<T>& from) {
    return from[Below(from.size())];
  }

  // Chooses a random place in the text. Returns the begin and the end of the word or number there, or of one byte if there is
  // none.
  std::pair<size_t, size_t> Word(const std::string& text) {
    const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_'; };
    size_t begin = Below(text.size());
    while (begin > 0 && part(text[begin]) && part(text[begin - 1])) --begin;
    size_t end = begin;
    while (end < text.size() && part(text[end])) ++end;
    return {begin, std::max(end, std::min(begin + 1, text.size()))};
  }

  // Returns the begin and the end of a few whole lines at a random place.
  std::pair<size_t, size_t> Lines(const std::string& text) {
    const size_t at = text.rfind('\n', Below(text.size()));
    const size_t begin = at == std::string::npos ? 0 : at + 1;
    size_t end = begin;
    for (size_t i = Below(3) + 1; i > 0 && end < text.size(); --i) end = std::min(text.find('\n', end), text.size() - 1) + 1;
    return {begin, end};
  }

  void Mutate(std::string& text, const std::vector<std::string>& corpus) {
    const auto [begin, end] = Word(text);
    const auto [first, last] = Lines(text);
    switch (Below(9)) {
      case 0: text.replace(begin, end - begin, Pick(FuzzWords())); break;
      case 1: text.insert(begin, Pick(FuzzWords())); break;
      case 2: text.replace(begin, end - begin, std::to_string(static_cast<int64_t>(rng_() >> Below(64)))); break;
      case 3: text.erase(begin, end - begin); break;
      case 4: text.erase(first, last - first); break;
      case 5: text.insert(first, text.substr(first, last - first)); break;
      case 6: {
        const std::string& other = Pick(corpus);
        const auto [from, to] = Lines(other);
        text.insert(first, other.substr(from, to - from));
        break;
      }
      case 7:
        if (!text.empty()) text[Below(text.size())] = static_cast<char>(rng_());
        break;
      default: text.resize(Below(text.size() + 1)); break;
    }
  }

  std::mt19937_64 rng_;
};

class Fuzz : public testing::TestWithParam<size_t> {};

TEST_P(Fuzz, NoInputIsTakenInAWrongWay) {
  const FuzzTarget& target = FuzzTargets()[GetParam()];
  const uint64_t seed = Setting("LYNX_FUZZ_SEED", 1);
  const uint64_t seconds = Setting("LYNX_FUZZ_SECONDS", 0);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Mutator mutator(seed);
  for (const std::string& good : target.corpus) target.run(good);
  const std::string kept = "fuzz-" + target.name + ".input";
  const auto begin = std::chrono::steady_clock::now();
  const auto over = [&](uint64_t inputs) {
    if (seconds == 0) return inputs >= kDefaultInputs;
    return std::chrono::steady_clock::now() - begin >= std::chrono::seconds(seconds);
  };
  uint64_t inputs = 0;
  for (; !over(inputs); ++inputs) {
    const std::string input = mutator.Next(target.corpus);
    if (seconds > 0) std::ofstream(kept, std::ios::binary) << input;
    target.run(input);
  }
  std::printf("%llu inputs\n", static_cast<unsigned long long>(inputs));
  if (seconds > 0) std::remove(kept.c_str());
}

// Tests the inputs that coverage-guided runs (libfuzzer.cc) have kept.
TEST_P(Fuzz, TheKeptCorpusIsTakenInNoWrongWay) {
  const FuzzTarget& target = FuzzTargets()[GetParam()];
  const std::string path = std::string(LYNX_SOURCE_DIR) + "/tests/fuzz/corpus/" + target.name;
  std::ifstream file(path, std::ios::binary);  // see corpus.py
  ASSERT_TRUE(file.is_open()) << path;
  size_t length = 0;
  int inputs = 0;
  for (; file >> length; ++inputs) {
    std::string input(length, '\0');
    ASSERT_TRUE(file.ignore(1).read(input.data(), static_cast<std::streamsize>(length)))
        << path << " ends within input " << inputs;
    SCOPED_TRACE(absl::StrCat("input ", inputs, " of ", path));
    target.run(input);
  }
  EXPECT_TRUE(file.eof()) << path;
  EXPECT_GT(inputs, 0);
}

INSTANTIATE_TEST_SUITE_P(All, Fuzz, testing::Range<size_t>(0, kFuzzTargetCount),
                         [](const auto& info) { return FuzzTargets()[info.param].name; });

}  // namespace
}  // namespace lynx
