#include "worker/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/worker/checkpoint/hugging_face_folder.h"
#include "tests/worker/test_folder.h"
#include "worker/checkpoint/safetensors_file.h"

namespace lynx::worker {
namespace {

using testing::HasSubstr;

SafetensorsHeader SmallHeader() {
  SafetensorsHeader header;
  header.metadata = {{"step", "3"}};
  header.Append("w", {2, 3});
  header.Append("empty", {0, 3});
  header.Append("b", {2});
  return header;
}

// The bytes must be exactly those of the format's description, because other programs read these files.
TEST(Safetensors, GoldenHeader) {
  const std::string json = R"({"__metadata__":{"step":"3"},"b":{"data_offsets":[24,32],"dtype":"F32","shape":[2]},)"
                           R"("empty":{"data_offsets":[24,24],"dtype":"F32","shape":[0,3]},)"
                           R"("w":{"data_offsets":[0,24],"dtype":"F32","shape":[2,3]}})";
  const std::string encoded = EncodeSafetensorsHeader(SmallHeader());
  const size_t padded = (json.size() + 7) / 8 * 8;
  EXPECT_EQ(encoded.substr(0, 8), std::string({static_cast<char>(padded), 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(encoded.substr(8), json + std::string(padded - json.size(), ' '));
}

absl::StatusOr<SafetensorsHeader> Decode(const std::string& json, int64_t data_bytes) {
  return DecodeSafetensorsHeader(json, data_bytes);
}

TEST(Safetensors, ReadsWhatItWrites) {
  const std::string encoded = EncodeSafetensorsHeader(SmallHeader());
  const auto length = DecodeSafetensorsPrefix(encoded.substr(0, 8), static_cast<int64_t>(encoded.size()) + 32);
  ASSERT_TRUE(length.ok()) << length.status();
  EXPECT_EQ(*length, static_cast<int64_t>(encoded.size()) - 8);
  const auto header = Decode(encoded.substr(8), 32);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(*header, SmallHeader());
}

TEST(Safetensors, ScalarsAndEmptyFilesAreAllowed) {
  const auto scalar = Decode(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4);
  ASSERT_TRUE(scalar.ok()) << scalar.status();
  EXPECT_TRUE(Decode("{}", 0).ok());
}

TEST(Safetensors, HostileLengthsAreRefused) {
  for (const uint64_t length : {~uint64_t{0}, uint64_t{1} << 63, uint64_t{100'000'001}, uint64_t{93}}) {
    std::string prefix(8, '\0');
    std::memcpy(prefix.data(), &length, 8);
    EXPECT_TRUE(absl::IsDataLoss(DecodeSafetensorsPrefix(prefix, 100).status())) << length;
  }
  EXPECT_TRUE(absl::IsDataLoss(DecodeSafetensorsPrefix(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8), 1'000'000'000).status()));
}

TEST(Safetensors, MalformedHeadersAreRefusedByName) {
  const auto tensor = [](const std::string& fields) { return "{\"t\":{" + fields + "}}"; };
  const struct {
    std::string json;
    int64_t data_bytes;
    std::string message;
  } cases[] = {
      {"", 0, "not a JSON object"},
      {"[1]", 0, "not a JSON object"},
      {"{\"t\":", 0, "not a JSON object"},
      {"{} x", 0, "not a JSON object"},
      {std::string(200'000, '['), 0, "not a JSON object"},
      {"{\"\xff\":1}", 0, "not a JSON object"},
      {"{\"t\":1}", 0, "not an object of"},
      {tensor(R"("dtype":"F32","shape":[1])"), 4, "not an object of"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1)"), 4, "not an object of"},
      {tensor(R"("dtype":"F16","shape":[2],"data_offsets":[0,4])"), 4, "dtype \"F16\""},
      {tensor(R"("dtype":3,"shape":[2],"data_offsets":[0,4])"), 4, "dtype 3"},
      {tensor(R"("dtype":"F32","shape":4,"data_offsets":[0,4])"), 4, "shape is not an array"},
      {tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4, "-1 in shape"},
      {tensor(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), 4, "1.0 in shape"},
      {tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])"), 4, "in shape"},
      {tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0, "does not fill"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4, "does not fill"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4, "not a range"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4, "not a range"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])"), 4, "not a range"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8, "overlap or leave a gap"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 3, "3 follow it"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 8, "8 follow it"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12,
       "overlap or leave a gap"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
       "the name a appears twice"},
      {R"({"__metadata__":3})", 0, "__metadata__ is not an object"},
      {R"({"__metadata__":{"a":3}})", 0, "a is not a string"},
  };
  for (const auto& c : cases) {
    const absl::Status status = Decode(c.json, c.data_bytes).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << c.json.substr(0, 100) << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.json.substr(0, 100);
  }
}

// Damage at any place must cause no crash. A header that is still accepted must be consistent.
TEST(Safetensors, RandomDamageIsSafe) {
  const std::string json = EncodeSafetensorsHeader(SmallHeader()).substr(8);
  std::mt19937 random(5);
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = json;
    for (int i = 0; i < 2; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto header = Decode(damaged, 32);
    if (header.ok()) {
      EXPECT_EQ(header->DataBytes(), 32) << "seed 5 round " << round;
    }
  }
}

// Reads files that other programs write.
TEST(SafetensorsFile, ReadsEveryTypeThatFp32Holds) {
  const std::string json = R"({"half":{"dtype":"F16","shape":[7],"data_offsets":[0,14]},)"
                           R"("brain":{"dtype":"BF16","shape":[1,3],"data_offsets":[14,20]},)"
                           R"("full":{"dtype":"F32","shape":[1],"data_offsets":[20,24]},)"
                           R"("mask":{"dtype":"BOOL","shape":[3],"data_offsets":[24,27]}})";
  // Seven binary16 numbers: 1, -2, the largest, the smallest normal one, the smallest one, -0 and infinity.
  const uint16_t half[] = {0x3C00, 0xC000, 0x7BFF, 0x0400, 0x0001, 0x8000, 0x7C00};
  const uint16_t brain[] = {0x3F80, 0xC040, 0x7F80};
  const float full = 0.1f;
  const TestFolder folder;
  std::string content(8, '\0');
  content[0] = static_cast<char>(json.size());
  content[1] = static_cast<char>(json.size() >> 8);
  content += json;
  content.append(reinterpret_cast<const char*>(half), sizeof(half));
  content.append(reinterpret_cast<const char*>(brain), sizeof(brain));
  content.append(reinterpret_cast<const char*>(&full), sizeof(full));
  content += std::string("\1\0\1", 3);
  const std::string path = folder.Write("a.safetensors", content);

  FileSystem& files = PosixFileSystem();
  const absl::StatusOr<SafetensorsFile> file = OpenSafetensorsFile(files, path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->header.tensors.size(), 4u);
  const auto read = [&](size_t tensor) { return ReadAsFloat(files, *file, file->header.tensors[tensor]); };
  EXPECT_EQ(read(0).value(), (std::vector<float>{1, -2, 65504, 0x1p-14f, 0x1p-24f, 0, INFINITY}));
  EXPECT_TRUE(std::signbit(read(0).value()[5]));
  EXPECT_EQ(read(1).value(), (std::vector<float>{1, -3, INFINITY}));
  EXPECT_EQ(read(2).value(), (std::vector<float>{0.1f}));
  EXPECT_TRUE(absl::IsInvalidArgument(read(3).status()));
  EXPECT_THAT(std::string(read(3).status().message()), HasSubstr("mask is of type BOOL"));

  // Shards of Lynx may have only one type.
  EXPECT_FALSE(DecodeSafetensorsHeader(json, 27).ok());
  for (const size_t length : {size_t{0}, size_t{7}, size_t{100}, content.size() - 1}) {
    folder.Write("a.safetensors", content.substr(0, length));
    const absl::Status status = OpenSafetensorsFile(files, path).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
  EXPECT_THAT(
      std::string(DecodeSafetensorsHeader(R"({"t":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1, SafetensorsTypes::kAll)
                      .status()
                      .message()),
      HasSubstr("which is not known"));
}

// The two tensors are longer than a block, and only their last elements may differ.
TEST(SafetensorsFile, SameContentComparesValuesToTheLastOne) {
  constexpr size_t kElements = (size_t{1} << 20) + 3;
  std::vector<float> values(kElements, 1.5f);
  FileSystem& files = PosixFileSystem();
  const TestFolder folder;
  const auto write = [&](const std::string& name, const ForeignTensor& tensor) {
    return OpenSafetensorsFile(files, folder.Write(name, ForeignFile({{"t", tensor}}))).value();
  };
  const auto same = [&](const SafetensorsFile& a, const SafetensorsFile& b) {
    return SameContent(files, {&a, &a.header.tensors[0]}, {&b, &b.header.tensors[0]});
  };
  const SafetensorsFile a = write("a", Floats(values)), b = write("b", Floats(values));
  EXPECT_TRUE(same(a, b).value());
  values.back() = 1.25f;
  EXPECT_FALSE(same(a, write("c", Floats(values))).value());
  // `brain` has 1.5 in bfloat16, and `half` has 1.5 in binary16.
  std::string brain, half;
  for (size_t i = 0; i < kElements; ++i) {
    brain += "\xC0\x3F";
    half += std::string("\x00\x3E", 2);
  }
  const std::vector<int64_t> shape = {static_cast<int64_t>(kElements)};
  EXPECT_TRUE(same(a, write("d", {shape, "BF16", brain})).value());
  EXPECT_TRUE(same(write("e", {shape, "F16", half}), a).value());
  brain.back() = '\x40';
  EXPECT_FALSE(same(a, write("f", {shape, "BF16", brain})).value());
  // The shape matters, and so does the sign of zero. A NaN equals itself.
  EXPECT_FALSE(same(write("g", Floats({1, 2}, {2, 1})), write("h", Floats({1, 2}, {1, 2}))).value());
  EXPECT_FALSE(same(write("i", Floats({0.0f})), write("j", Floats({-0.0f}))).value());
  EXPECT_TRUE(same(write("k", Floats({NAN})), write("l", Floats({NAN}))).value());
  const absl::Status other = same(write("m", {{1}, "I8", "x"}), write("n", {{1}, "I8", "x"})).status();
  EXPECT_TRUE(absl::IsInvalidArgument(other)) << other;
}

}  // namespace
}  // namespace lynx::worker
