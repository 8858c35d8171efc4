// YamlMistake: what a person most likely did wrong where YAML cannot be read, in plain words and with the remedy. A
// parser's own words name its grammar, and the place where it noticed, which may be far below the mistake.
//
// Pure functions of text; thread-safe.
#ifndef LYNX_CLI_SPEC_YAML_MISTAKE_H_
#define LYNX_CLI_SPEC_YAML_MISTAKE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace lynx {

struct YamlMistake {
  int32_t line = 1;  // from 1
  int32_t column = 1;
  std::string why;  // a clause with what to write instead
};

// `parser`: where the parser stopped and what it says; returned as it is where nothing better is known.
YamlMistake ExplainYamlError(const std::string& text, const YamlMistake& parser);

struct OddCharacter {
  size_t at = 0;  // in bytes
  std::string why;
};
// A character of a name or value without quotes that looks like one of YAML's own: a no-break space, a typographic
// quote that it begins with.
std::optional<OddCharacter> FindOddCharacter(const std::string& plain);

// Whether the quote at `begin` closes anywhere in the text: a parser may take its end for the quote's.
bool QuoteCloses(const std::string& text, size_t begin);

// "layers:2", which is no field for want of a blank: how it is to be written, "layers: 2". Empty: it is not like
// that.
std::string WithBlankAfterColon(const std::string& text);

}  // namespace lynx

#endif  // LYNX_CLI_SPEC_YAML_MISTAKE_H_
