// YamlMistake: for text that is not valid YAML, explains in plain words what the person most likely did wrong and how to
// correct it. The parser's own messages use terms of YAML's grammar, and name the place where the parser noticed the mistake.
// That place may be far below the mistake.
//
// Pure functions of text; thread-safe.
#ifndef LYNX_CLI_SPEC_YAML_MISTAKE_H_
#define LYNX_CLI_SPEC_YAML_MISTAKE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace lynx::cli {

struct YamlMistake {
  int32_t line = 1;  // counted from 1
  int32_t column = 1;
  std::string why;  // a clause that says what to write instead
};

// `parser`: where the parser stopped and what it says. It is returned unchanged if no better explanation is known.
YamlMistake ExplainYamlError(const std::string& text, const YamlMistake& parser);

struct OddCharacter {
  size_t at = 0;  // position of the character, in bytes
  std::string why;
};
// Finds a character in an unquoted name or value that looks like one of YAML's own: an unusual space anywhere, or a typographic
// quote at the beginning of the text or after ": ".
std::optional<OddCharacter> FindOddCharacter(const std::string& plain);

// True if the quote at `begin` is closed anywhere in the text. A parser may take the end of the text for the end of a quote
// that is not closed.
bool QuoteCloses(const std::string& text, size_t begin);

// The corrected form of "layers:2", which is not a field because a space is missing: "layers: 2". Empty: the text is
// not of that form.
std::string WithBlankAfterColon(const std::string& text);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_YAML_MISTAKE_H_
