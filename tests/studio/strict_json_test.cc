#include "studio/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace lynx {
namespace {

using ::testing::HasSubstr;

TEST(StrictJson, ReadsWhatAPageSends) {
  const auto json = ParseStrictJson(R"({"a": {"b": [1, 2.5, "x", true, null]}, "b": {"a": 1}})");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["a"]["b"].size(), 5u);
}

TEST(StrictJson, SaysWhatIsWrong) {
  const std::string deep(static_cast<size_t>(kMaxJsonDepth) + 1, '[');
  const std::string closed(static_cast<size_t>(kMaxJsonDepth) + 1, ']');
  const std::pair<std::string, const char*> cases[] = {
      {"", "not valid JSON"},
      {"{\"a\": 1,\n \"b\": }", "line 2"},
      {"{\"a\": 1} {}", "not valid JSON"},
      {"{\"a\": 1e999}", "not valid JSON"},
      {"{\"a\": \"\xff\"}", "not valid JSON"},
      {"{'a': 1}", "not valid JSON"},
      {"{\"a\": NaN}", "not valid JSON"},
      {R"({"a": 1, "a": 2})", "the key 'a' occurs twice"},
      {R"({"s": {"a": 1, "b": {}, "a": 2}})", "the key 'a' occurs twice"},
      {deep + closed, "deeper than 16"},
      {std::string(1 << 20, '['), "deeper than 16"},
  };
  for (const auto& [text, wanted] : cases) {
    const auto json = ParseStrictJson(text);
    ASSERT_FALSE(json.ok()) << text.substr(0, 60);
    EXPECT_THAT(std::string(json.status().message()), HasSubstr(wanted)) << text.substr(0, 60);
  }
}

}  // namespace
}  // namespace lynx
