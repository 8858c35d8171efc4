#include "cli/spec/yaml_mistake.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace lynx::cli {
namespace {

using View = absl::string_view;

bool IsBlank(char c) { return c == ' ' || c == '\t'; }
bool BlankOrEnd(View line, size_t at) { return at >= line.size() || IsBlank(line[at]); }

struct Odd {
  View bytes;
  View name;
};
constexpr Odd kOddBlanks[] = {
    {"\xc2\xa0", "a no-break space (U+00A0)"},         {"\xe2\x80\xaf", "a narrow no-break space (U+202F)"},
    {"\xe2\x80\x87", "a figure space (U+2007)"},       {"\xe2\x80\x8b", "a zero-width space (U+200B)"},
    {"\xe3\x80\x80", "an ideographic space (U+3000)"}, {"\xef\xbb\xbf", "a zero-width no-break space (U+FEFF)"}};
constexpr View kOddQuotes[] = {"\xe2\x80\x9c", "\xe2\x80\x9d", "\xe2\x80\x9e", "\xe2\x80\x98", "\xe2\x80\x99", "\xc2\xab"};
constexpr View kWideColon = "\xef\xbc\x9a";

// A line that is not empty, without its comment. There is no Line for lines of block text (after '|' or '>').
struct Line {
  int32_t number = 1;
  size_t indent = 0;
  View text;             // the line's text after its indentation
  bool in_flow = false;  // the line begins inside brackets

  YamlMistake Mistake(size_t at, std::string why) const {
    return {number, static_cast<int32_t>(indent + at) + 1, std::move(why)};
  }
};

// What a scan of the lines has found. The scan knows only a part of YAML: enough for a text that is known to have a mistake.
struct Look {
  std::vector<Line> lines;
  std::optional<YamlMistake> tab, odd, quote;  // the first mistake of each kind
  struct Bracket {
    char open;
    int32_t line, column;
  };
  std::vector<Bracket> brackets;  // the brackets that are still open at the end
};

// The position at which the quote that opens at `at` closes; npos: it does not close.
size_t ClosingQuote(View text, size_t at) {
  const char quote = text[at];
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || i + 1 >= text.size() || text[i + 1] != quote) return i;
      ++i;  // '' stands for one quote
    }
  }
  return View::npos;
}

// Examines the quotes and brackets of one line from `begin` on. Returns the beginning of its comment, or its end.
size_t LookAtLine(View line, size_t begin, int32_t number, Look& look) {
  bool starts = true;  // a name or value may start here
  for (size_t i = begin; i < line.size(); ++i) {
    const char c = line[i];
    const auto note = [&](size_t at, std::string why) {
      if (!look.quote) look.quote = YamlMistake{number, static_cast<int32_t>(at) + 1, std::move(why)};
    };
    if (IsBlank(c)) continue;
    if (c == '#' && (i == 0 || IsBlank(line[i - 1]))) return i;
    if (starts && (c == '"' || c == '\'')) {
      const size_t close = ClosingQuote(line, i);
      if (close == View::npos) {
        note(i, absl::StrCat("the quote that opens here is not closed in its line; write another ", View(&c, 1),
                             " at the end of the value"));
        return line.size();
      }
      const size_t next = std::min(line.find_first_not_of(" \t", close + 1), line.size());
      if (next < line.size() && !absl::StrContains(":,]}#", line.substr(next, 1))) {
        note(next, "text follows the closing quote; put the quotes around the whole value");
      }
      i = close;
      starts = false;
      continue;
    }
    if ((c == '{' || c == '[') && starts) look.brackets.push_back({c, number, static_cast<int32_t>(i) + 1});
    if ((c == '}' || c == ']') && !look.brackets.empty()) look.brackets.pop_back();
    const bool flow = !look.brackets.empty();
    starts = (flow && absl::StrContains("{[,", View(&c, 1))) || (c == ':' && BlankOrEnd(line, i + 1)) ||
             (c == '-' && starts && BlankOrEnd(line, i + 1));
  }
  return line.size();
}

// True if the text ends with "|", ">-" or the like: then the lines below that are indented further are text.
bool OpensBlockText(View text) {
  const size_t colon = text.rfind(": ");
  if (colon == View::npos) return false;
  const View value = absl::StripAsciiWhitespace(text.substr(colon + 2));
  return !value.empty() && (value[0] == '|' || value[0] == '>') && value.find_first_not_of("|>+-0123456789") == View::npos;
}

Look LookAt(View text) {
  Look look;
  std::optional<size_t> block;  // the indentation of the line below which block text stands
  int32_t number = 0;
  for (View line : std::vector<View>(absl::StrSplit(text, '\n'))) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (number == 1) absl::ConsumePrefix(&line, "\xef\xbb\xbf");
    const size_t indent = line.find_first_not_of(' ');
    if (indent == View::npos) continue;
    if (block && indent > *block) continue;
    block.reset();
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == View::npos || line[begin] == '#') continue;
    const bool in_flow = !look.brackets.empty();
    if (begin > indent && !in_flow && !look.tab) {
      look.tab = YamlMistake{number, static_cast<int32_t>(indent) + 1,
                             "a tab in the indentation, where YAML takes blanks alone; write two blanks in place of each tab"};
    }
    const size_t end = LookAtLine(line, begin, number, look);
    const View content = absl::StripTrailingAsciiWhitespace(line.substr(begin, end - begin));
    if (content.empty()) continue;
    look.lines.push_back({number, begin, content, in_flow});
    if (const auto odd = FindOddCharacter(std::string(content)); odd && !look.odd)
      look.odd = look.lines.back().Mistake(odd->at, odd->why);
    if (OpensBlockText(content)) block = begin;
  }
  return look;
}

// The text without the dash of a list item.
View FieldOf(View text) {
  while (absl::StartsWith(text, "- ")) text = absl::StripLeadingAsciiWhitespace(text.substr(2));
  return text;
}

size_t ColonOf(View field) {
  for (size_t i = 0; i < field.size(); ++i) {
    if (field[i] == ':' && BlankOrEnd(field, i + 1)) return i;
  }
  return View::npos;
}

bool HasField(View text) { return ColonOf(FieldOf(text)) != View::npos; }
bool HasValue(View text) {
  const View field = FieldOf(text);
  return ColonOf(field) + 1 < field.size();
}

// If the line should be "field: value", says what it lacks.
std::optional<YamlMistake> LacksColon(const Line& line) {
  const View text = line.text;
  const View field = FieldOf(text);
  if (line.in_flow || field.empty() || HasField(text) || field.size() < text.size() ||
      absl::StrContains("-\"'{[|>%@`", field.substr(0, 1)))
    return std::nullopt;
  if (field.find_first_of("]}") == 0 || text == "---" || text == "...") return std::nullopt;
  if (absl::StartsWith(text, "//")) return line.Mistake(0, "a comment begins with '#', not with '//'");
  if (const std::string mended = WithBlankAfterColon(std::string(text)); !mended.empty()) {
    return line.Mistake(text.find(':'), absl::StrCat("no blank after the colon; write '", mended, "'"));
  }
  if (const size_t wide = text.find(kWideColon); wide != View::npos) {
    return line.Mistake(wide, "a full-width colon (U+FF1A); write ':' and a blank");
  }
  const size_t equals = text.find('=');
  const size_t blank = text.find(' ');
  const size_t split = std::min(equals, blank);
  const std::string example = split == View::npos
                                  ? absl::StrCat(text, ": VALUE")
                                  : absl::StrCat(text.substr(0, split), ": ",
                                                 absl::StripLeadingAsciiWhitespace(absl::StripPrefix(
                                                     absl::StripLeadingAsciiWhitespace(text.substr(split)), "=")));
  return line.Mistake(0, absl::StrCat("no colon in this line; write '", example, "'"));
}

// If the indentation of the line `at` does not fit the lines above it, says what is wrong.
std::optional<YamlMistake> WrongIndentation(const std::vector<Line>& lines, size_t at) {
  const Line& line = lines[at];
  if (at == 0 || line.in_flow || !HasField(line.text)) return std::nullopt;
  const Line& before = lines[at - 1];
  if (line.indent > before.indent && HasField(before.text) && HasValue(before.text)) {
    const bool item = before.text.size() != FieldOf(before.text).size();
    if (item && line.indent == before.indent + before.text.size() - FieldOf(before.text).size()) return std::nullopt;
    return line.Mistake(0, absl::StrCat("begins further to the right than line ", before.number,
                                        ", which has a value already; begin both in the same column"));
  }
  std::vector<size_t> open;  // columns in which open sections begin
  for (size_t i = 0; i < at; ++i) {
    while (!open.empty() && open.back() > lines[i].indent) open.pop_back();
    if (open.empty() || open.back() < lines[i].indent) open.push_back(lines[i].indent);
  }
  if (line.indent >= before.indent || std::find(open.begin(), open.end(), line.indent) != open.end()) return std::nullopt;
  const std::string columns =
      absl::StrJoin(open, " or ", [](std::string* out, size_t indent) { absl::StrAppend(out, indent + 1); });
  return line.Mistake(0, absl::StrCat("begins in column ", line.indent + 1, ", but the lines above it in column ", columns,
                                      "; fields of one section begin in the same column"));
}

std::optional<YamlMistake> WrongValue(const Line& line, View words) {
  const View field = FieldOf(line.text);
  const size_t colon = ColonOf(field);
  if (colon == View::npos) return std::nullopt;
  const size_t shift = line.text.size() - field.size();
  const size_t begin = field.find_first_not_of(" \t", colon + 1);
  if (begin == View::npos) return std::nullopt;
  const View value = field.substr(begin);
  if (absl::StrContains("%@`*", value.substr(0, 1))) {
    return line.Mistake(shift + begin, absl::StrCat("a value cannot begin with '", value.substr(0, 1), "'; put it in quotes"));
  }
  if (absl::StartsWith(value, "- ")) {
    return line.Mistake(shift + begin,
                        "a list cannot begin behind a field's name; begin each '- ' on a line of its own below it");
  }
  if (absl::StrContains(words, "unknown escape")) {
    return line.Mistake(shift + begin, "a backslash in double quotes begins an escape; write it twice, or use single quotes");
  }
  if (const size_t second = ColonOf(value); !absl::StrContains("{[\"'", value.substr(0, 1)) && second != View::npos) {
    return line.Mistake(shift + begin + second,
                        "a second colon in the line; put the value in quotes, or begin a section's fields on the next line");
  }
  return std::nullopt;
}

}  // namespace

std::optional<OddCharacter> FindOddCharacter(const std::string& plain) {
  for (const View quote : kOddQuotes) {
    const size_t at = absl::StartsWith(plain, quote) ? 0 : plain.find(absl::StrCat(": ", quote));
    if (at != std::string::npos)
      return OddCharacter{at == 0 ? 0 : at + 2, "a typographic quote, which YAML takes for a letter; write \" or '"};
  }
  for (size_t at = 0; at < plain.size(); ++at) {
    for (const Odd& odd : kOddBlanks) {
      if (!absl::StartsWith(View(plain).substr(at), odd.bytes)) continue;
      return OddCharacter{
          at,
          absl::StrCat(odd.name,
                       ", which YAML takes for a letter; write a blank, or quotes around the value where it belongs there")};
    }
  }
  return std::nullopt;
}

bool QuoteCloses(const std::string& text, size_t begin) { return ClosingQuote(text, begin) != View::npos; }

std::string WithBlankAfterColon(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == 0 || colon == std::string::npos || colon + 1 >= text.size() || IsBlank(text[colon + 1]) ||
      text[colon + 1] == '/')
    return "";
  const bool name = std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(colon),
                                [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-'; });
  if (!name || !std::isalpha(static_cast<unsigned char>(text[0]))) return "";
  const std::string value = text.substr(colon + 1);
  return absl::StrCat(text.substr(0, colon), ": ", value.substr(0, value.find(' ')));
}

YamlMistake ExplainYamlError(const std::string& text, const YamlMistake& parser) {
  const Look look = LookAt(text);
  const auto at_or_before = [&](const std::optional<YamlMistake>& mistake) { return mistake && mistake->line <= parser.line; };
  if (at_or_before(look.tab)) return *look.tab;
  if (at_or_before(look.odd)) return *look.odd;
  if (at_or_before(look.quote)) return *look.quote;
  for (const Line& line : look.lines) {
    if (line.number > parser.line) break;
    if (const auto mistake = LacksColon(line)) return *mistake;
  }
  if (!look.brackets.empty()) {
    const Look::Bracket& open = look.brackets.back();
    return {open.line, open.column,
            absl::StrCat("the '", std::string(1, open.open), "' here is not closed; write '", open.open == '{' ? "}" : "]",
                         "' after its last value")};
  }
  if (parser.why == "illegal flow end")
    return {parser.line, parser.column, "closes a bracket that nothing opens; leave it out"};
  for (size_t i = 0; i < look.lines.size(); ++i) {
    if (look.lines[i].number != parser.line) continue;
    if (const auto mistake = WrongIndentation(look.lines, i)) return *mistake;
    if (const auto mistake = WrongValue(look.lines[i], parser.why)) return *mistake;
  }
  return parser;
}

}  // namespace lynx::cli
