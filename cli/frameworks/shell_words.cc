#include "cli/frameworks/shell_words.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/frameworks/shell_script.h"
#include "cli/frameworks/shell_tokens.h"

namespace lynx::cli {
namespace {

// These bytes do not occur in scripts. In an expanded word they enclose a part whose value is unknown.
constexpr char kBegin = '\x01', kEnd = '\x02';
// The end of an unknown part that stands for the words that a script may add to a variable.
constexpr char kRest[] = "+=...";
// Limits for the values that expansion makes, so that a short script cannot make very long ones.
constexpr size_t kMaxValueBytes = 1 << 20;
constexpr int kMaxDepth = 64;

bool IsNameChar(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

class Expander {
 public:
  Expander(ShellVariables& variables, bool split, int depth) : variables_(variables), split_(split), depth_(depth) {}

  std::vector<std::string> Run(const std::string& written) {
    if (depth_ > kMaxDepth) return {UnknownPart(written)};
    Expand(written, 0, written.size(), false);
    End();
    return std::move(words_);
  }

 private:
  void Add(const std::string& text) {
    if (word_.size() + text.size() <= kMaxValueBytes) word_ += text;
    open_ = true;
  }
  void End() {
    if (open_) words_.push_back(word_);
    word_.clear();
    open_ = false;
  }
  // Adds the value of an expansion. Outside quotes, blanks separate words.
  void AddValue(const std::string& value, bool quoted) {
    if (quoted || !split_) {
      Add(value);
      return;
    }
    std::string piece;
    bool unknown = false;
    for (const char c : value) {
      if (c == kBegin) unknown = true;
      if (c == kEnd) unknown = false;
      if (!unknown && (c == ' ' || c == '\t' || c == '\n')) {
        if (!piece.empty()) Add(piece);
        piece.clear();
        End();
      } else {
        piece += c;
      }
    }
    if (!piece.empty()) Add(piece);
  }
  void AddWords(const std::vector<std::string>& words, bool quoted) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (i > 0 && split_) End();
      if (i > 0 && !split_) Add(" ");
      AddValue(words[i], quoted);
    }
  }

  void Expand(const std::string& text, size_t begin, size_t end, bool quoted) {
    for (size_t i = begin; i < end;) {
      const char c = text[i];
      if (c == '\'' && !quoted) {
        const size_t close = std::min(text.find('\'', i + 1), end);
        Add(text.substr(i + 1, close - i - 1));
        i = close + 1;
      } else if (c == '"') {
        const size_t close = quoted ? i : ClosingQuote(text, i, end);
        if (!quoted) {
          // If ARRAY is empty, "${ARRAY[@]}" gives no word, whereas all other text in quotes gives at least an empty word.
          if (!IsWholeArray(text.substr(i + 1, close - i - 1))) Add("");
          Expand(text, i + 1, close, true);
        }
        i = close + 1;
      } else if (c == '\\' && i + 1 < end) {
        const bool keeps = quoted && std::string("$`\"\\\n").find(text[i + 1]) == std::string::npos;
        Add(keeps ? text.substr(i, 2) : text[i + 1] == '\n' ? "" : text.substr(i + 1, 1));
        i += 2;
      } else if (c == '`') {
        const size_t close = std::min(text.find('`', i + 1), end);
        Add(UnknownPart(text.substr(i, close + 1 - i)));
        i = close + 1;
      } else if (c == '$') {
        i = Dollar(text, i, end, quoted);
      } else {
        Add(std::string(1, c));
        ++i;
      }
    }
  }

  static bool IsWholeArray(const std::string& text) {
    const size_t close = text.find('}');
    return text == "$@" || (text.size() > 6 && text.compare(0, 2, "${") == 0 && close + 1 == text.size() &&
                            text.compare(text.size() - 4, 4, "[@]}") == 0);
  }

  static size_t ClosingQuote(const std::string& text, size_t open, size_t end) {
    for (size_t i = open + 1; i < end; ++i) {
      if (text[i] == '"') return i;
      if (text[i] == '\\') ++i;
      if (text[i] == '$' && i + 1 < end && (text[i + 1] == '(' || text[i + 1] == '{')) {
        const size_t after = AfterBracket(text, i + 1);
        if (after == std::string::npos) return end;
        i = after - 1;
      }
    }
    return end;
  }

  // Expands the variable or expression that begins with the dollar sign at `at`. Returns the position after it.
  size_t Dollar(const std::string& text, size_t at, size_t end, bool quoted) {
    if (at + 1 >= end) {
      Add("$");
      return at + 1;
    }
    const char next = text[at + 1];
    if (next == '(' || next == '{') {
      const size_t after = std::min(AfterBracket(text, at + 1), end);
      const std::string whole = text.substr(at, after - at);
      if (next == '{') {
        Braces(whole, quoted);
      } else if (whole.size() > 5 && whole[2] == '(' && whole[whole.size() - 2] == ')') {
        const std::optional<int64_t> value = ShellArithmetic(whole.substr(3, whole.size() - 5), variables_);
        AddValue(value ? absl::StrCat(*value) : UnknownPart(whole), quoted);
      } else {
        Add(UnknownPart(whole));
      }
      return after;
    }
    size_t stop = at + 1;
    if (IsDigit(next) || next == '@' || next == '*' || next == '#' || next == '?' || next == '$' || next == '!') {
      stop = at + 2;
    } else {
      while (stop < end && IsNameChar(text[stop])) ++stop;
    }
    if (stop == at + 1) {
      Add("$");
      return stop;
    }
    Named(text.substr(at + 1, stop - at - 1), text.substr(at, stop - at), quoted);
    return stop;
  }

  // Adds the value of a variable. The value of "$ARRAY" is the first word of the array.
  void Named(const std::string& name, const std::string& written, bool quoted) {
    const auto value = variables_.Find(name);
    if (!value) {
      Add(UnknownPart(written));
    } else if (!value->empty()) {
      AddValue(value->front(), quoted);
    } else if (quoted) {
      Add("");
    }
  }

  // Expands "${...}".
  void Braces(const std::string& whole, bool quoted) {
    const std::string inside = whole.substr(2, whole.size() - 3);
    size_t stop = 0;
    while (stop < inside.size() && IsNameChar(inside[stop])) ++stop;
    const std::string name = inside.substr(0, stop), rest = inside.substr(stop);
    if (name.empty()) {
      const bool all = inside == "@" || inside == "*";
      Add(all ? UnknownPart("$@") : UnknownPart(whole));
      return;
    }
    if (rest.empty()) return Named(name, whole, quoted);
    if (rest == "[@]" || rest == "[*]") {
      const auto value = variables_.Find(name);
      if (value) {
        AddWords(*value, quoted && rest == "[@]");
      } else {
        Add(UnknownPart(whole));
      }
      return;
    }
    Default(name, rest, whole, quoted);
  }

  // Expands ${X:-d}, ${X-d}, ${X:=d}, ${X=d}, ${X:?text}, ${X?text}, ${X:+other} and ${X+other}.
  void Default(const std::string& name, const std::string& rest, const std::string& whole, bool quoted) {
    const bool colon = rest[0] == ':';
    const char form = rest.size() > (colon ? 1U : 0U) ? rest[colon ? 1 : 0] : '\0';
    const auto value = variables_.Find(name);
    if (std::string("-=?+").find(form) == std::string::npos || form == '\0') {
      Add(UnknownPart(whole));
      return;
    }
    const bool has = value && (!colon || (!value->empty() && !value->front().empty()));
    const std::string other = rest.substr(colon ? 2 : 1);
    if (form == '?' || (form != '+' && has)) return Named(name, whole, quoted);
    if (form == '+' && !has) {
      if (quoted) Add("");
      return;
    }
    const std::vector<std::string> words = Expander(variables_, split_ && !quoted, depth_ + 1).Run(other);
    if (form == '=') variables_.Assign(name, {absl::StrJoin(words, " ")}, false);
    if (words.empty() && quoted) Add("");
    AddWords(words, true);
  }

  ShellVariables& variables_;
  const bool split_;
  const int depth_;
  std::vector<std::string> words_;
  std::string word_;
  bool open_ = false;  // true: word_ counts as a word, even if it is empty
};

// Parses expressions over whole numbers, with + - * / %, comparisons, && || ! and brackets.
class Arithmetic {
 public:
  Arithmetic(const std::string& text, ShellVariables& variables, int depth)
      : text_(text), variables_(variables), depth_(depth) {}

  std::optional<int64_t> Run() {
    const std::optional<int64_t> value = Or(0);
    Blanks();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  void Blanks() {
    while (at_ < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool Take(char c) {
    Blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool Take(const char* operation) {
    Blanks();
    const size_t size = std::string(operation).size();
    if (text_.compare(at_, size, operation) != 0) return false;
    at_ += size;
    return true;
  }

  std::optional<int64_t> Or(int nesting) {
    std::optional<int64_t> left = And(nesting);
    while (left && Take("||")) {
      const std::optional<int64_t> right = And(nesting);
      if (!right) return std::nullopt;
      left = *left != 0 || *right != 0 ? 1 : 0;
    }
    return left;
  }
  std::optional<int64_t> And(int nesting) {
    std::optional<int64_t> left = Comparison(nesting);
    while (left && Take("&&")) {
      const std::optional<int64_t> right = Comparison(nesting);
      if (!right) return std::nullopt;
      left = *left != 0 && *right != 0 ? 1 : 0;
    }
    return left;
  }
  std::optional<int64_t> Comparison(int nesting) {
    const std::optional<int64_t> left = Sum(nesting);
    if (!left) return std::nullopt;
    for (const char* operation : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (!Take(operation)) continue;
      const std::optional<int64_t> right = Sum(nesting);
      if (!right) return std::nullopt;
      const std::string text = operation;
      if (text == "==") return *left == *right;
      if (text == "!=") return *left != *right;
      if (text == "<=") return *left <= *right;
      if (text == ">=") return *left >= *right;
      return text == "<" ? *left < *right : *left > *right;
    }
    return left;
  }

  std::optional<int64_t> Sum(int nesting) {
    std::optional<int64_t> left = Product(nesting);
    while (left) {
      const bool plus = Take('+');
      if (!plus && !Take('-')) break;
      const std::optional<int64_t> right = Product(nesting);
      int64_t result = 0;
      if (!right || (plus ? __builtin_add_overflow(*left, *right, &result) : __builtin_sub_overflow(*left, *right, &result))) {
        return std::nullopt;
      }
      left = result;
    }
    return left;
  }

  std::optional<int64_t> Product(int nesting) {
    std::optional<int64_t> left = Atom(nesting);
    while (left) {
      const char c = Take('*') ? '*' : Take('/') ? '/' : Take('%') ? '%' : '\0';
      if (c == '\0') break;
      const std::optional<int64_t> right = Atom(nesting);
      int64_t result = 0;
      if (!right || (c != '*' && (*right == 0 || *right == -1))) return std::nullopt;
      if (c == '*' && __builtin_mul_overflow(*left, *right, &result)) return std::nullopt;
      if (c == '/') result = *left / *right;
      if (c == '%') result = *left % *right;
      left = result;
    }
    return left;
  }

  std::optional<int64_t> Atom(int nesting) {
    if (nesting > kMaxDepth) return std::nullopt;
    if (Take('(')) {
      const std::optional<int64_t> value = Or(nesting + 1);
      return Take(')') ? value : std::nullopt;
    }
    if (Take("++") || Take("--")) return std::nullopt;  // changes a variable
    if (Take('!')) {
      const std::optional<int64_t> value = Atom(nesting + 1);
      return value ? std::optional<int64_t>(*value == 0) : std::nullopt;
    }
    if (Take('-')) {
      const std::optional<int64_t> value = Atom(nesting + 1);
      int64_t result = 0;
      return value && !__builtin_sub_overflow(int64_t{0}, *value, &result) ? std::optional<int64_t>(result) : std::nullopt;
    }
    Blanks();
    if (at_ < text_.size() && text_[at_] == '$') return Expanded();
    const size_t begin = at_;
    while (at_ < text_.size() && IsNameChar(text_[at_])) ++at_;
    const std::string name = text_.substr(begin, at_ - begin);
    int64_t value = 0;
    if (name.empty() || name.size() > 64) return std::nullopt;
    if (IsDigit(name[0])) return absl::SimpleAtoi(name, &value) ? std::optional<int64_t>(value) : std::nullopt;
    const auto words = variables_.Find(name);
    return words && words->size() == 1 ? Inner(words->front()) : std::nullopt;
  }

  std::optional<int64_t> Expanded() {
    const size_t begin = at_++;
    if (at_ < text_.size() && (text_[at_] == '{' || text_[at_] == '(')) {
      const size_t after = AfterBracket(text_, at_);
      if (after == std::string::npos) return std::nullopt;
      at_ = after;
    } else {
      while (at_ < text_.size() && IsNameChar(text_[at_])) ++at_;
    }
    const std::vector<std::string> words = Expander(variables_, false, depth_ + 1).Run(text_.substr(begin, at_ - begin));
    return words.size() == 1 ? Inner(words.front()) : std::nullopt;
  }

  // The value of a variable in an expression must be a number. An expression as value is not evaluated.
  static std::optional<int64_t> Inner(const std::string& text) {
    int64_t value = 0;
    return absl::SimpleAtoi(text, &value) ? std::optional<int64_t>(value) : std::nullopt;
  }

  const std::string text_;
  ShellVariables& variables_;
  const int depth_;
  size_t at_ = 0;
};

}  // namespace

std::string UnknownPart(const std::string& as_written) {
  std::string plain;
  for (const char c : as_written) {
    if (c != kBegin && c != kEnd) plain += c;
  }
  return kBegin + plain + kEnd;
}

bool HasUnknown(const std::string& word) { return word.find(kBegin) != std::string::npos; }

std::string FirstUnknown(const std::string& word) {
  const size_t begin = word.find(kBegin);
  if (begin == std::string::npos) return "";
  const size_t first = std::min(word.find_first_not_of(kBegin, begin), word.size());  // skips marks of enclosing parts
  return word.substr(first, word.find(kEnd, first) - first);
}

std::string UnknownRest(const std::string& name) { return UnknownPart(absl::StrCat("$", name, kRest)); }

bool IsUnknownRest(const std::string& word) {
  return !word.empty() && word[0] == kBegin && absl::EndsWith(ShownWord(word), kRest);
}

std::string ShownWord(const std::string& word) {
  std::string shown;
  for (const char c : word) {
    if (c != kBegin && c != kEnd) shown += c;
  }
  return shown;
}

void ShellVariables::Assign(const std::string& name, std::vector<std::string> words, bool array) {
  mentioned_.insert(name);
  if (given_.count(name) > 0) return;
  if (array && arrays_.insert(name).second) array_names_.push_back(name);
  size_t bytes = 0;
  for (const std::string& word : words) bytes += word.size() + 1;
  if (bytes > kMaxValueBytes) words = {UnknownPart("$" + name)};
  if (!replaced_.empty()) {
    const auto [old, first] = replaced_.back().try_emplace(name);
    if (const auto value = values_.find(name); first && value != values_.end()) old->second = std::move(value->second);
  }
  values_[name] = std::move(words);
}

void ShellVariables::EndSubshell() {
  for (auto& [name, value] : replaced_.back()) {
    if (value) {
      values_[name] = *std::move(value);
    } else {
      values_.erase(name);
    }
  }
  replaced_.pop_back();
}

void ShellVariables::Append(const std::string& name, const std::vector<std::string>& words, bool array) {
  std::vector<std::string> joined = Find(name).value_or(std::vector<std::string>());
  if (array) {
    joined.insert(joined.end(), words.begin(), words.end());
  } else {
    joined.resize(std::max<size_t>(joined.size(), 1));
    joined.front() += absl::StrJoin(words, " ");
  }
  Assign(name, std::move(joined), array || IsArray(name));
}

void ShellVariables::Forget(const std::string& name) { Assign(name, {UnknownPart("$" + name)}, false); }

std::optional<std::vector<std::string>> ShellVariables::Find(const std::string& name) {
  mentioned_.insert(name);
  if (const auto given = given_.find(name); given != given_.end()) return std::vector<std::string>{given->second};
  if (const auto value = values_.find(name); value != values_.end()) return value->second;
  return std::nullopt;
}

std::string ShellVariables::UnusedGiven() const {
  for (const auto& [name, value] : given_) {
    if (mentioned_.count(name) == 0) return name;
  }
  return "";
}

std::vector<std::string> ExpandWord(const std::string& written, ShellVariables& variables, bool split) {
  return Expander(variables, split, 0).Run(written);
}

std::optional<int64_t> ShellArithmetic(const std::string& expression, ShellVariables& variables) {
  return Arithmetic(expression, variables, 0).Run();
}

}  // namespace lynx::cli
