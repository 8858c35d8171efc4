// The tokens of a bash script: words as they are written, assignments of arrays, and operators. Pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_SHELL_TOKENS_H_
#define LYNX_CLI_FRAMEWORKS_SHELL_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lynx::cli {

// kWord: one word with its quotes and dollar signs. kArray: NAME=( ... ) or NAME+=( ... ). kOperator: ";", "&&", "||", "|",
// "&",
// "(", ")", ";;", or "\n" for the end of a line. Redirections and here-documents are left out.
enum class ShellTokenKind : uint8_t { kWord, kArray, kOperator };

// A word that begins with "((" is a whole arithmetic command. "<" and ">" inside [[ ]] are words.
struct ShellToken {
  ShellTokenKind kind = ShellTokenKind::kWord;
  int32_t line = 1;
  std::string text;                   // kArray: the name of the array
  bool append = false;                // kArray: NAME+=
  std::vector<std::string> elements;  // kArray: the words as they are written
};

// InvalidArgument: "FILE:LINE: ..." if a quote or bracket is not closed.
absl::StatusOr<std::vector<ShellToken>> ShellTokens(const std::string& text, const std::string& file);

// Returns the position after the bracket that closes the one at `open`, which is "(" or "{". Quotes hide brackets.
// std::string::npos: it is not closed.
size_t AfterBracket(const std::string& text, size_t open);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_SHELL_TOKENS_H_
