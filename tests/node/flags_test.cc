#include "node/flags.h"

#include <gtest/gtest.h>

namespace lynx {
namespace {

struct Values {
  std::string node = "here";
  int64_t devices = 4;
  bool stop = false;
  std::vector<Flag> Flags() {
    return {{"node", &node, "name"}, {"devices", &devices, "how many"}, {"stop-ranks", &stop, "whether"}};
  }
};

TEST(ParseFlags, ReadsEveryForm) {
  Values values;
  ASSERT_TRUE(ParseFlags({"--node", "a=b", "--devices=7", "--stop-ranks"}, values.Flags()).ok());
  EXPECT_EQ(values.node, "a=b");
  EXPECT_EQ(values.devices, 7);
  EXPECT_TRUE(values.stop);
  ASSERT_TRUE(ParseFlags({"--node=", "--stop-ranks=false"}, values.Flags()).ok());
  EXPECT_EQ(values.node, "");
  EXPECT_FALSE(values.stop);
}

TEST(ParseFlags, KeepsDefaults) {
  Values values;
  ASSERT_TRUE(ParseFlags({}, values.Flags()).ok());
  EXPECT_EQ(values.node, "here");
  EXPECT_EQ(values.devices, 4);
}

TEST(ParseFlags, RefusesAndSaysWhy) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--nodes", "a"}, "did you mean --node?"},
      {{"stray"}, "unknown argument 'stray'"},
      {{"node"}, "did you mean --node?"},
      {{"--completely-other"}, "unknown argument '--completely-other'"},
      {{"--node"}, "--node needs a value"},
      {{"--devices", "few"}, "--devices 'few' is not a whole number"},
      {{"--stop-ranks=maybe"}, "neither true nor false"},
      {{"--node=a", "--node=b"}, "given twice"},
  };
  for (const auto& [arguments, text] : cases) {
    Values values;
    const absl::Status status = ParseFlags(arguments, values.Flags());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos) << status;
  }
}

TEST(FlagsText, ShowsDefaults) {
  Values values;
  const std::string text = FlagsText(values.Flags());
  EXPECT_NE(text.find("--node VALUE"), std::string::npos);
  EXPECT_NE(text.find("how many [4]"), std::string::npos);
}

}  // namespace
}  // namespace lynx
