// What tests of config.json files share: changed texts, and the errors of texts that cannot be read.
#ifndef LYNX_TESTS_CLI_SPEC_MODEL_CONFIG_TEXTS_H_
#define LYNX_TESTS_CLI_SPEC_MODEL_CONFIG_TEXTS_H_

#include <gtest/gtest.h>

#include <string>

#include "cli/spec/model_config.h"

namespace lynx::cli {

// `text` with the first `from` replaced by `to`. The test fails if `text` does not contain `from`.
inline std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// The message with which ParseModelConfig refuses the text. The test fails if it does not.
inline std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<ModelSpec> model = ParseModelConfig(text, "config.json");
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(model.status().message());
}

}  // namespace lynx::cli

#endif  // LYNX_TESTS_CLI_SPEC_MODEL_CONFIG_TEXTS_H_
