#include "worker/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace lynx {
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

// Byte for byte by the format's description: other programs read these files.
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
  EXPECT_TRUE(
      absl::IsDataLoss(DecodeSafetensorsPrefix(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8), 1'000'000'000).status()));
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
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, "overlap or leave a gap"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "twice"},
      {R"({"__metadata__":3})", 0, "__metadata__ is not an object"},
      {R"({"__metadata__":{"a":3}})", 0, "a is not a string"},
  };
  for (const auto& c : cases) {
    const absl::Status status = Decode(c.json, c.data_bytes).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << c.json.substr(0, 100) << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.json.substr(0, 100);
  }
}

// Damage anywhere never crashes, and what is still accepted is consistent.
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

}  // namespace
}  // namespace lynx
