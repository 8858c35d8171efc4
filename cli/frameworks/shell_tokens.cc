#include "cli/frameworks/shell_tokens.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

bool IsNameText(std::string_view text) {
  if (text.empty() || absl::ascii_isdigit(static_cast<unsigned char>(text[0]))) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

// The maximum depth of quotes and brackets inside each other. Scripts that people write have only a few levels.
constexpr int kMaxNesting = 64;

size_t AfterBracketWithin(const std::string& text, size_t open, int nesting);

// Returns the position after the quote that closes the one at `open`. std::string::npos: the quote has no end, or `nesting` is
// too large.
size_t AfterQuote(const std::string& text, size_t open, int nesting = 0) {
  if (nesting > kMaxNesting) return std::string::npos;
  const char quote = text[open];
  for (size_t i = open + 1; i < text.size(); ++i) {
    if (text[i] == quote) return i + 1;
    if (quote == '\'') continue;
    if (text[i] == '\\') {
      ++i;
    } else if (quote == '"' && text[i] == '$' && i + 1 < text.size() && (text[i + 1] == '(' || text[i + 1] == '{')) {
      const size_t after = AfterBracketWithin(text, i + 1, nesting + 1);
      if (after == std::string::npos) return after;
      i = after - 1;
    }
  }
  return std::string::npos;
}

size_t AfterBracketWithin(const std::string& text, size_t open, int nesting) {
  const char opening = text[open], closing = opening == '(' ? ')' : '}';
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      ++i;
    } else if (c == '\'' || c == '"' || c == '`') {
      const size_t after = AfterQuote(text, i, nesting + 1);
      if (after == std::string::npos) return after;
      i = after - 1;
    } else if (c == opening) {
      ++depth;
    } else if (c == closing && --depth == 0) {
      return i + 1;
    }
  }
  return std::string::npos;
}

class Lexer {
 public:
  Lexer(const std::string& text, const std::string& file) : text_(text), file_(file) {}

  absl::StatusOr<std::vector<ShellToken>> Run() {
    while (true) {
      Blanks();
      if (at_ >= text_.size()) return std::move(tokens_);
      if (text_[at_] == '\n') {
        Operator("\n");
        SkipHereDocuments();
      } else if (text_[at_] == '#') {
        SkipComment();
      } else if (IsOperatorChar(text_[at_])) {
        LYNX_RETURN_IF_ERROR(ReadOperator());
      } else {
        LYNX_RETURN_IF_ERROR(ReadWordToken());
      }
    }
  }

 private:
  static bool IsOperatorChar(char c) {
    return c == ';' || c == '&' || c == '|' || c == '(' || c == ')' || c == '<' || c == '>';
  }

  absl::Status Error(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", line_, ": ", why));
  }

  // Moves to the position `end`, and counts the lines up to there.
  void MoveTo(size_t end) {
    for (; at_ < end; ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
  }

  void Blanks() {
    while (at_ < text_.size()) {
      if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r') {
        ++at_;
      } else if (text_.compare(at_, 2, "\\\n") == 0) {
        MoveTo(at_ + 2);
      } else if (text_.compare(at_, 3, "\\\r\n") == 0) {
        MoveTo(at_ + 3);
      } else {
        return;
      }
    }
  }

  void SkipComment() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

  void Operator(const std::string& text) {
    tokens_.push_back({ShellTokenKind::kOperator, line_, text, false, {}});
    MoveTo(at_ + text.size());
  }

  absl::Status ReadOperator() {
    for (const char* pair : {"&&", "||", ";;"}) {
      if (text_.compare(at_, 2, pair) == 0) {
        Operator(pair);
        return absl::OkStatus();
      }
    }
    const char c = text_[at_];
    if (text_.compare(at_, 2, "((") == 0 && subshells_ < kMaxNesting) {
      // "((a); (b))" is a subshell in a subshell.
      const size_t after = AfterBracket(text_, at_), inner = AfterBracket(text_, at_ + 1);
      if (after != std::string::npos && inner + 1 == after) {
        tokens_.push_back({ShellTokenKind::kWord, line_, text_.substr(at_, after - at_), false, {}});
        MoveTo(after);
        return absl::OkStatus();
      }
      ++subshells_;
    }
    if (in_test_ && (c == '<' || c == '>')) {
      tokens_.push_back({ShellTokenKind::kWord, line_, std::string(1, text_[at_++]), false, {}});
      return absl::OkStatus();
    }
    if (c == '<' || c == '>' || text_.compare(at_, 2, "&>") == 0) return SkipRedirection();
    Operator(std::string(1, c));
    return absl::OkStatus();
  }

  // A number right before the operator, as in 2>&1, was read as a word. This word belongs to the redirection, and is removed.
  absl::Status SkipRedirection() {
    if (!tokens_.empty() && at_ > 0 && absl::ascii_isdigit(static_cast<unsigned char>(text_[at_ - 1])) &&
        tokens_.back().kind == ShellTokenKind::kWord && tokens_.back().text.size() == 1) {
      tokens_.pop_back();
    }
    const bool here = text_.compare(at_, 2, "<<") == 0 && text_.compare(at_, 3, "<<<") != 0;
    while (at_ < text_.size() && (text_[at_] == '<' || text_[at_] == '>' || text_[at_] == '&' || text_[at_] == '-')) ++at_;
    Blanks();
    if (at_ < text_.size() && text_[at_] == '(') {  // <(command)
      const size_t after = AfterBracket(text_, at_);
      if (after == std::string::npos) return Error("a '(' is not closed");
      MoveTo(after);
      return absl::OkStatus();
    }
    std::string target;
    LYNX_RETURN_IF_ERROR(ReadWord(target));
    if (here) {
      std::string plain;
      for (const char c : target) {
        if (c != '\'' && c != '"' && c != '\\') plain += c;
      }
      here_ends_.push_back(plain);
    }
    return absl::OkStatus();
  }

  void SkipHereDocuments() {
    for (const std::string& end : here_ends_) {
      while (at_ < text_.size()) {
        const size_t newline = std::min(text_.find('\n', at_), text_.size());
        const std::string line(absl::StripAsciiWhitespace(text_.substr(at_, newline - at_)));
        MoveTo(std::min(newline + 1, text_.size()));
        if (line == end) break;
      }
    }
    here_ends_.clear();
  }

  // Reads a word without expanding it. The word ends before a blank or an operator that is outside quotes and brackets.
  absl::Status ReadWord(std::string& word) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || (IsOperatorChar(c))) break;
      if (text_.compare(at_, 2, "\\\n") == 0) {
        MoveTo(at_ + 2);
        continue;
      }
      size_t end = at_ + 1;
      if (c == '\'' || c == '"' || c == '`') {
        end = AfterQuote(text_, at_);
        if (end == std::string::npos) return Error(absl::StrCat("a quote ", std::string(1, c), " is not closed"));
      } else if (c == '$' && at_ + 1 < text_.size() && (text_[at_ + 1] == '(' || text_[at_ + 1] == '{')) {
        end = AfterBracket(text_, at_ + 1);
        if (end == std::string::npos) return Error(absl::StrCat("'$", std::string(1, text_[at_ + 1]), "' is not closed"));
      } else if (c == '\\') {
        end = std::min(at_ + 2, text_.size());
      }
      word.append(text_, at_, end - at_);
      MoveTo(end);
    }
    return absl::OkStatus();
  }

  absl::Status ReadWordToken() {
    ShellToken token{ShellTokenKind::kWord, line_, "", false, {}};
    LYNX_RETURN_IF_ERROR(ReadWord(token.text));
    if (token.text == "[[" || token.text == "]]") in_test_ = token.text == "[[";
    const bool assigns = !token.text.empty() && token.text.back() == '=' && at_ < text_.size() && text_[at_] == '(';
    if (assigns) {
      std::string name = token.text.substr(0, token.text.size() - 1);
      token.append = !name.empty() && name.back() == '+';
      if (token.append) name.pop_back();
      if (IsNameText(name)) {
        token.kind = ShellTokenKind::kArray;
        token.text = name;
        ++at_;
        LYNX_RETURN_IF_ERROR(ReadElements(token));
      }
    }
    tokens_.push_back(std::move(token));
    return absl::OkStatus();
  }

  absl::Status ReadElements(ShellToken& array) {
    while (true) {
      Blanks();
      if (at_ >= text_.size()) return Error(absl::StrCat("the array ", array.text, " is not closed with ')'"));
      const char c = text_[at_];
      if (c == ')') {
        ++at_;
        return absl::OkStatus();
      }
      if (c == '\n') {
        MoveTo(at_ + 1);
      } else if (c == '#') {
        SkipComment();
      } else if (IsOperatorChar(c)) {
        return Error(absl::StrCat("'", std::string(1, c), "' inside the array ", array.text, "; put it into quotes"));
      } else {
        std::string word;
        LYNX_RETURN_IF_ERROR(ReadWord(word));
        array.elements.push_back(std::move(word));
      }
    }
  }

  const std::string& text_;
  const std::string& file_;
  size_t at_ = 0;
  int32_t line_ = 1;
  int subshells_ = 0;     // number of "((" that began no arithmetic; it limits the time for finding their ends
  bool in_test_ = false;  // true between [[ and ]]
  std::vector<std::string> here_ends_;
  std::vector<ShellToken> tokens_;
};

}  // namespace

size_t AfterBracket(const std::string& text, size_t open) { return AfterBracketWithin(text, open, 0); }

absl::StatusOr<std::vector<ShellToken>> ShellTokens(const std::string& text, const std::string& file) {
  return Lexer(text, file).Run();
}

}  // namespace lynx::cli
