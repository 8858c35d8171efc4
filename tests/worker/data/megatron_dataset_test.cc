#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/worker/test_folder.h"
#include "worker/data/dataset.h"

namespace lynx::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// A Megatron file pair (.bin and .idx). Its tokens are 0, 1, 2, ..., in sequences of the lengths `sizes`. A test may damage
// fields before it calls Index().
struct Pair {
  std::vector<int32_t> sizes = {3, 0, 5, 2};
  std::vector<int64_t> pointers, documents;
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t dtype = 8;
  std::string bin;

  template <class T>
  static Pair Of(uint8_t dtype) {
    Pair pair;
    pair.dtype = dtype;
    int64_t at = 0;
    T token = 0;
    for (const int32_t size : pair.sizes) {
      pair.pointers.push_back(at);
      at += size * static_cast<int64_t>(sizeof(T));
      for (int32_t i = 0; i < size; ++i) Append<T>(pair.bin, token++);
    }
    pair.documents = {0, 2, 4};
    return pair;
  }

  std::string Index() const {
    std::string out = magic;
    Append(out, version);
    Append(out, dtype);
    Append<uint64_t>(out, sizes.size());
    Append<uint64_t>(out, documents.size());
    for (const int32_t size : sizes) Append(out, size);
    for (const int64_t pointer : pointers) Append(out, pointer);
    for (const int64_t document : documents) Append(out, document);
    return out;
  }
};

absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& path, int32_t seq = 9, int32_t vocab = 10) {
  return OpenDataset({DataKind::kMegatron, path}, seq, vocab, 1);
}

absl::Status StatusOf(const TestFolder& folder, const std::string& index, const std::string& bin) {
  folder.Write("bad.idx", index);
  folder.Write("bad.bin", bin);
  return Open(folder.Path("bad")).status();
}

void ExpectInvalid(const absl::Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("bad."), HasSubstr(part)));
}

TEST(MegatronDataset, ReadsEveryTokenTypeByPrefixOrByFile) {
  const TestFolder folder;
  const std::vector<std::pair<std::string, Pair>> pairs = {{"u8", Pair::Of<uint8_t>(1)},  {"i8", Pair::Of<int8_t>(2)},
                                                           {"i16", Pair::Of<int16_t>(3)}, {"i32", Pair::Of<int32_t>(4)},
                                                           {"i64", Pair::Of<int64_t>(5)}, {"u16", Pair::Of<uint16_t>(8)}};
  for (const auto& [name, pair] : pairs) {
    folder.Write(name + ".idx", pair.Index());
    folder.Write(name + ".bin", pair.bin);
    for (const std::string suffix : {"", ".bin", ".idx"}) {
      const auto data = Open(folder.Path(name + suffix));
      ASSERT_TRUE(data.ok()) << data.status();
      EXPECT_EQ((*data)->SamplesPerEpoch(), 1);
      std::vector<int32_t> inputs(9), targets(9);
      ASSERT_TRUE((*data)->Read(0, inputs.data(), targets.data()).ok());
      EXPECT_EQ(inputs, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8})) << name;
      EXPECT_EQ(targets, (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9})) << name;
    }
  }
}

TEST(MegatronDataset, NegativeAndLargeTokensAreNamed) {
  const TestFolder folder;
  Pair pair = Pair::Of<int64_t>(5);
  for (const int64_t token : {int64_t{-1}, int64_t{1} << 32, std::numeric_limits<int64_t>::max()}) {
    std::memcpy(pair.bin.data() + 8 * 4, &token, 8);
    folder.Write("p.idx", pair.Index());
    folder.Write("p.bin", pair.bin);
    const auto data = Open(folder.Path("p"));
    ASSERT_TRUE(data.ok()) << data.status();
    int32_t inputs[9], targets[9];
    const absl::Status status = (*data)->Read(0, inputs, targets);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("p.bin"), HasSubstr(std::to_string(token)), HasSubstr("position 4")));
  }
}

// Other documents in the index change no token that is read. But the index is a part of the data set, so the fingerprint
// changes.
TEST(MegatronDataset, FingerprintCoversBothFiles) {
  const TestFolder folder;
  Pair pair = Pair::Of<uint16_t>(8);
  const auto fingerprint = [&] {
    folder.Write("p.idx", pair.Index());
    folder.Write("p.bin", pair.bin);
    return Open(folder.Path("p")).value()->fingerprint();
  };
  const DataFingerprint before = fingerprint();
  EXPECT_EQ(before.kind, DataKind::kMegatron);
  EXPECT_EQ(before.bytes, Bytes(static_cast<int64_t>(pair.Index().size() + pair.bin.size())));
  EXPECT_EQ(fingerprint(), before);
  pair.documents[1] = 3;
  const DataFingerprint other_index = fingerprint();
  pair.bin[0] = 5;
  EXPECT_FALSE(other_index == before);
  EXPECT_FALSE(fingerprint() == other_index);
}

TEST(MegatronDataset, MissingHalvesAreNotFound) {
  const TestFolder folder;
  const Pair pair = Pair::Of<uint16_t>(8);
  folder.Write("a.idx", pair.Index());
  folder.Write("b.bin", pair.bin);
  EXPECT_EQ(Open(folder.Path("a")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Open(folder.Path("a")).status().message()), HasSubstr("a.bin"));
  EXPECT_THAT(std::string(Open(folder.Path("b")).status().message()), HasSubstr("b.idx"));
}

TEST(MegatronDataset, WrongHeadersAreNamed) {
  const TestFolder folder;
  const Pair good = Pair::Of<uint16_t>(8);
  Pair bad = good;
  bad.magic[0] = 'X';
  ExpectInvalid(StatusOf(folder, bad.Index(), bad.bin), "MMIDIDX");
  bad = good;
  bad.version = 2;
  ExpectInvalid(StatusOf(folder, bad.Index(), bad.bin), "version 2");
  bad = good;
  bad.dtype = 7;
  ExpectInvalid(StatusOf(folder, bad.Index(), bad.bin), "floating point");
  bad.dtype = 99;
  ExpectInvalid(StatusOf(folder, bad.Index(), bad.bin), "dtype code 99");
}

TEST(MegatronDataset, EveryTruncationOfTheIndexIsRefused) {
  const TestFolder folder;
  const Pair pair = Pair::Of<uint16_t>(8);
  const std::string index = pair.Index();
  for (size_t length = 0; length < index.size(); ++length) {
    ExpectInvalid(StatusOf(folder, index.substr(0, length), pair.bin), "bad.idx");
  }
  ExpectInvalid(StatusOf(folder, index + "x", pair.bin), "1 bytes more");
}

TEST(MegatronDataset, InconsistentPairsAreRefused) {
  const TestFolder folder;
  const Pair good = Pair::Of<uint16_t>(8);
  ExpectInvalid(StatusOf(folder, good.Index(), good.bin.substr(0, 19)), "cut short");
  ExpectInvalid(StatusOf(folder, good.Index(), good.bin + "zz"), "do not belong together");
  Pair bad = good;
  bad.pointers[2] += 2;
  ExpectInvalid(StatusOf(folder, bad.Index(), bad.bin), "sequence 2 is said to start at byte 8");
  bad = good;
  bad.sizes[0] = -1;
  ExpectInvalid(StatusOf(folder, bad.Index(), bad.bin), "-1 tokens");
  bad = good;
  bad.sizes[3] = std::numeric_limits<int32_t>::max();
  ExpectInvalid(StatusOf(folder, bad.Index(), bad.bin), "reaches beyond");
  bad = good;
  bad.documents = {0, 3, 2};
  ExpectInvalid(StatusOf(folder, bad.Index(), bad.bin), "document entry 2");
  bad.documents = {0, 5};
  ExpectInvalid(StatusOf(folder, bad.Index(), bad.bin), "document entry 1");
}

// The header has a wrong count of sequences or of documents. With the largest counts, products overflow.
TEST(MegatronDataset, HostileCountsAreRefused) {
  const TestFolder folder;
  const Pair pair = Pair::Of<uint16_t>(8);
  for (const size_t field : {size_t{18}, size_t{26}}) {
    for (const uint64_t count : {std::numeric_limits<uint64_t>::max(), uint64_t{1} << 63, uint64_t{1} << 62,
                                 uint64_t{0x1555555555555556}, uint64_t{5}, uint64_t{0}}) {
      std::string index = pair.Index();
      std::memcpy(index.data() + field, &count, 8);
      ExpectInvalid(StatusOf(folder, index, pair.bin), "header promises");
    }
  }
}

// Damage at any place must cause no crash: the pair is refused, or each sample is read or refused.
TEST(MegatronDataset, RandomDamageIsSafe) {
  const TestFolder folder;
  const Pair pair = Pair::Of<int32_t>(4);
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string index = pair.Index();
    std::string bin = pair.bin;
    for (int i = 0; i < 3; ++i) {
      std::string& file = random() % 4 == 0 ? bin : index;
      file[random() % file.size()] = static_cast<char>(random());
    }
    folder.Write("r.idx", index);
    folder.Write("r.bin", bin);
    const auto data = Open(folder.Path("r"), 3);
    if (!data.ok()) continue;
    int32_t inputs[3], targets[3];
    for (int64_t i = 0; i < (*data)->SamplesPerEpoch(); ++i) {
      const absl::Status status = (*data)->Read(i, inputs, targets);
      EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kDataLoss) << "seed 7 round " << round;
    }
  }
}

}  // namespace
}  // namespace lynx::worker
