#include "cli/frameworks/shell_script.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/frameworks/shell_tokens.h"
#include "cli/frameworks/shell_words.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

using Tokens = std::vector<ShellToken>;

constexpr size_t kMaxScriptBytes = 1 << 20;
constexpr size_t kMaxCommandWords = 100'000;
constexpr int kMaxBlocks = 64;  // ifs inside one another

// How a command ends, as far as the text tells.
enum class Outcome : uint8_t { kSuccess, kFailure, kUnknown };
Outcome OutcomeOf(std::optional<bool> holds) {
  if (!holds.has_value()) return Outcome::kUnknown;
  return *holds ? Outcome::kSuccess : Outcome::kFailure;
}

bool IsWord(const ShellToken& token, const char* text) { return token.kind == ShellTokenKind::kWord && token.text == text; }

// Splits "NAME=value" or "NAME+=value" as it is written. Returns the position of the value; npos: the word is no assignment.
size_t AssignedValue(const std::string& word, std::string& name, bool& append) {
  size_t i = 0;
  while (i < word.size() && (absl::ascii_isalnum(static_cast<unsigned char>(word[i])) || word[i] == '_')) ++i;
  if (i == 0 || absl::ascii_isdigit(static_cast<unsigned char>(word[0]))) return std::string::npos;
  append = word.compare(i, 2, "+=") == 0;
  if (!append && (i >= word.size() || word[i] != '=')) return std::string::npos;
  name = word.substr(0, i);
  return i + (append ? 2 : 1);
}

// Tests such as [ "$X" = y ] and [[ -z $X && $Y -gt 1 ]]. nullopt: only a run could tell, as for tests of files.
class Test {
 public:
  explicit Test(std::vector<std::string> words) : words_(std::move(words)) {}

  std::optional<bool> Run() {
    const std::optional<bool> value = Or();
    return at_ == words_.size() ? value : std::nullopt;
  }

 private:
  bool Take(const char* word) {
    if (at_ >= words_.size() || words_[at_] != word) return false;
    ++at_;
    return true;
  }
  std::optional<bool> Or() {
    std::optional<bool> left = And();
    while (Take("||") || Take("-o")) {
      const std::optional<bool> right = And();
      left = left == true || right == true ? std::optional<bool>(true) : !left || !right ? std::nullopt : std::optional(false);
    }
    return left;
  }
  std::optional<bool> And() {
    std::optional<bool> left = One();
    while (Take("&&") || Take("-a")) {
      const std::optional<bool> right = One();
      left = left == false || right == false ? std::optional<bool>(false)
             : !left || !right               ? std::nullopt
                                             : std::optional(true);
    }
    return left;
  }
  std::optional<bool> One() {
    bool negated = false;
    while (Take("!")) negated = !negated;
    const std::optional<bool> value = Plain();
    return value && negated ? std::optional(!*value) : value;
  }
  std::optional<bool> Plain() {
    if (at_ >= words_.size()) return std::nullopt;
    const std::string first = words_[at_++];
    const bool last = at_ >= words_.size() || words_[at_] == "&&" || words_[at_] == "||";
    if (last) return HasUnknown(first) ? std::nullopt : std::optional(!first.empty());
    if (first.size() == 2 && first[0] == '-') {
      const std::string value = words_[at_++];
      if (HasUnknown(value) || (first != "-z" && first != "-n")) return std::nullopt;
      return value.empty() == (first == "-z");
    }
    const std::string operation = words_[at_++];
    const std::string second = at_ < words_.size() && words_[at_] != "&&" && words_[at_] != "||" ? words_[at_++] : "";
    if (HasUnknown(first) || HasUnknown(second)) return std::nullopt;
    return Compare(first, operation, second);
  }
  static std::optional<bool> Compare(const std::string& a, const std::string& operation, const std::string& b) {
    const bool pattern = b.find_first_of("*?[") != std::string::npos;
    if (operation == "=" || operation == "==") return pattern ? std::nullopt : std::optional(a == b);
    if (operation == "!=") return pattern ? std::nullopt : std::optional(a != b);
    int64_t x = 0, y = 0;
    if (!absl::SimpleAtoi(a, &x) || !absl::SimpleAtoi(b, &y)) return std::nullopt;
    if (operation == "-eq") return x == y;
    if (operation == "-ne") return x != y;
    if (operation == "-gt") return x > y;
    if (operation == "-ge") return x >= y;
    if (operation == "-lt") return x < y;
    if (operation == "-le") return x <= y;
    return std::nullopt;
  }

  const std::vector<std::string> words_;
  size_t at_ = 0;
};

class Interpreter {
 public:
  Interpreter(const Tokens& tokens, const std::string& file, const std::map<std::string, std::string>& given)
      : tokens_(tokens), file_(file), given_(given), variables_(given_) {}

  absl::StatusOr<ShellScript> Run() {
    LYNX_RETURN_IF_ERROR(Block(0, tokens_.size(), 0));
    if (const std::string unused = variables_.UnusedGiven(); !unused.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--set ", unused, ": ", file_, " does not use a variable of this name; leave it out, or correct the name"));
    }
    for (const std::string& name : variables_.ArrayNames()) {
      script_.arrays.push_back({name, variables_.Find(name).value_or(std::vector<std::string>())});
    }
    return std::move(script_);
  }

 private:
  absl::Status Error(int32_t line, const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", line, ": ", why));
  }

  static bool EndsCommand(const ShellToken& token) {
    return token.kind == ShellTokenKind::kOperator && token.text != "(" && token.text != ")";
  }
  // The end of the simple command that begins at `at`. Inside [[ ]], "&&" and "||" belong to the test.
  size_t CommandEnd(size_t at, size_t end) const {
    const bool test = IsWord(tokens_[at], "[[");
    size_t i = at;
    while (i < end && (!EndsCommand(tokens_[i]) || (test && !IsWord(tokens_[i - 1], "]]") && tokens_[i].text != "\n"))) ++i;
    return i;
  }

  // Executes the commands of [begin, end).
  absl::Status Block(size_t begin, size_t end, int depth) {
    if (depth > kMaxBlocks) return Error(tokens_[begin].line, "too many blocks inside one another");
    bool after_and = false, after_or = false;
    Outcome result = Outcome::kSuccess;
    for (size_t at = begin; at < end;) {
      const ShellToken& token = tokens_[at];
      if (token.kind == ShellTokenKind::kOperator) {
        after_and = token.text == "&&";
        after_or = token.text == "||";
        ++at;
        continue;
      }
      // The commands of functions and of { } are taken as if they ran where they stand.
      if (IsWord(token, "{") || IsWord(token, "}") || IsWord(token, "exec") || IsWord(token, "time")) {
        ++at;
        continue;
      }
      const bool skipped = (after_and && result == Outcome::kFailure) || (after_or && result == Outcome::kSuccess);
      const bool unsure = (after_and || after_or) && result == Outcome::kUnknown;
      const size_t stop = IsKeyword(token) ? CompoundEnd(at, end) : CommandEnd(at, end);
      if (stop == std::string::npos) return Error(token.line, absl::StrCat("'", token.text, "' has no end"));
      if (!skipped) {
        if (IsWord(token, "if") && !unsure) {
          LYNX_RETURN_IF_ERROR(If(at, stop, depth));
          result = Outcome::kUnknown;
        } else if (IsKeyword(token) || (unsure && (after_or || Assigns(at, stop)))) {
          LYNX_RETURN_IF_ERROR(Forget(at, stop));
          result = Outcome::kUnknown;
        } else {
          result = OutcomeOf(Simple(at, stop));
        }
      }
      after_and = after_or = false;
      at = stop;
    }
    return absl::OkStatus();
  }

  static bool IsKeyword(const ShellToken& token) {
    if (token.kind != ShellTokenKind::kWord) return false;
    static const auto& words = *new std::set<std::string>{"if", "for", "while", "until", "case", "select"};
    return words.count(token.text) > 0;
  }

  // The position after the end of the compound command at `at`; npos: it has none.
  size_t CompoundEnd(size_t at, size_t end) const {
    int depth = 0;
    bool begins = true;  // the next word is the first of a command
    for (size_t i = at; i < end; ++i) {
      const ShellToken& token = tokens_[i];
      if (token.kind == ShellTokenKind::kWord && begins) {
        const std::string& word = token.text;
        if (IsKeyword(token)) {
          ++depth;
        } else if ((word == "fi" || word == "esac" || word == "done") && --depth == 0) {
          return i + 1;
        }
      }
      const bool opens =
          token.kind == ShellTokenKind::kWord && begins &&
          (token.text == "then" || token.text == "else" || token.text == "do" || token.text == "elif" || token.text == "{" ||
           token.text == "!" || token.text == "if" || token.text == "while" || token.text == "until");
      begins = token.kind == ShellTokenKind::kOperator || opens;
    }
    return std::string::npos;
  }

  bool Assigns(size_t begin, size_t end) const {
    std::string name;
    bool append = false;
    return std::any_of(
        tokens_.begin() + static_cast<ptrdiff_t>(begin), tokens_.begin() + static_cast<ptrdiff_t>(end),
        [&](const ShellToken& token) {
          return token.kind == ShellTokenKind::kArray ||
                 (token.kind == ShellTokenKind::kWord && AssignedValue(token.text, name, append) != std::string::npos);
        });
  }

  // Does not execute what depends on more than the text. Variables that it assigns are unknown afterwards.
  absl::Status Forget(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const ShellToken& token = tokens_[i];
      std::string name;
      bool append = false;
      if (token.kind == ShellTokenKind::kArray) {
        variables_.Forget(token.text);
      } else if (token.kind == ShellTokenKind::kWord) {
        if (AssignedValue(token.text, name, append) != std::string::npos) variables_.Forget(name);
        if (i > begin && (IsWord(tokens_[i - 1], "for") || IsWord(tokens_[i - 1], "read"))) variables_.Forget(token.text);
      }
    }
    return absl::OkStatus();
  }

  // "if TEST; then ... elif TEST; then ... else ... fi" in [begin, end).
  absl::Status If(size_t begin, size_t end, int depth) {
    size_t at = begin + 1;
    bool unsure = false;
    while (at < end) {
      const size_t then = Find(at, end, "then");
      if (then == end) return Error(tokens_[begin].line, "an 'if' has no 'then'");
      const std::optional<bool> holds = Condition(at, then);
      const size_t next = NextBranch(then + 1, end);
      unsure = unsure || !holds;
      if (unsure) {
        LYNX_RETURN_IF_ERROR(Forget(then + 1, next));
      } else if (*holds) {
        return Block(then + 1, next, depth + 1);
      }
      if (IsWord(tokens_[next], "else")) {
        if (!unsure) return Block(next + 1, end - 1, depth + 1);
        return Forget(next + 1, end - 1);
      }
      if (IsWord(tokens_[next], "fi")) break;
      at = next + 1;
    }
    return absl::OkStatus();
  }

  size_t Find(size_t begin, size_t end, const char* word) const {
    size_t i = begin;
    while (i < end && !IsWord(tokens_[i], word)) ++i;
    return i;
  }
  // The "elif", "else" or "fi" that ends the branch that begins at `begin`. `end` is the position after the "fi".
  size_t NextBranch(size_t begin, size_t end) const {
    for (size_t i = begin; i < end; ++i) {
      const bool first = tokens_[i - 1].kind == ShellTokenKind::kOperator || i == begin;
      if (first && IsKeyword(tokens_[i])) {
        const size_t after = CompoundEnd(i, end);
        if (after == std::string::npos) return end - 1;
        i = after - 1;
      } else if (first && (IsWord(tokens_[i], "elif") || IsWord(tokens_[i], "else") || IsWord(tokens_[i], "fi"))) {
        return i;
      }
    }
    return end - 1;
  }

  // A list of tests, joined by && and ||.
  std::optional<bool> Condition(size_t begin, size_t end) {
    std::vector<std::string> words;
    for (size_t i = begin; i < end; ++i) {
      const ShellToken& token = tokens_[i];
      if (token.kind == ShellTokenKind::kOperator) {
        if (token.text == "&&" || token.text == "||") words.push_back(token.text);
        continue;
      }
      if (token.kind == ShellTokenKind::kArray) return std::nullopt;
      if (token.text == "[" || token.text == "[[" || token.text == "]" || token.text == "]]") continue;
      if (i == begin && token.text != "!" && token.text != "test") return std::nullopt;  // a command
      if (token.text == "test") continue;
      words.push_back(absl::StrJoin(ExpandWord(token.text, variables_, false), " "));
    }
    return Test(std::move(words)).Run();
  }

  // Executes an assignment, or keeps a command. Returns whether it succeeds, if the text tells.
  std::optional<bool> Simple(size_t begin, size_t end) {
    if (IsWord(tokens_[begin], "[") || IsWord(tokens_[begin], "[[") || IsWord(tokens_[begin], "test")) {
      return Condition(begin, end);
    }
    size_t at = begin;
    static const auto& declares = *new std::set<std::string>{"export", "declare", "local", "readonly", "typeset"};
    const bool declaration = tokens_[at].kind == ShellTokenKind::kWord && declares.count(tokens_[at].text) > 0;
    if (declaration) ++at;
    while (at < end && AssignOne(tokens_[at])) ++at;
    if (declaration || at == end) return true;
    if (IsWord(tokens_[begin], "unset")) {
      for (size_t i = begin + 1; i < end; ++i) variables_.Assign(tokens_[i].text, {}, false);
      return true;
    }
    ShellCommand command{tokens_[at].line, {}};
    for (; at < end; ++at) {
      if (tokens_[at].kind != ShellTokenKind::kWord) continue;
      for (std::string& word : ExpandWord(tokens_[at].text, variables_)) {
        if (command.words.size() < kMaxCommandWords) command.words.push_back(std::move(word));
      }
    }
    if (!command.words.empty()) script_.commands.push_back(std::move(command));
    return std::nullopt;
  }

  bool AssignOne(const ShellToken& token) {
    if (token.kind == ShellTokenKind::kArray) {
      std::vector<std::string> words;
      for (const std::string& element : token.elements) {
        for (std::string& word : ExpandWord(element, variables_)) words.push_back(std::move(word));
      }
      if (token.append) {
        variables_.Append(token.text, words, true);
      } else {
        variables_.Assign(token.text, std::move(words), true);
      }
      return true;
    }
    std::string name;
    bool append = false;
    if (token.kind != ShellTokenKind::kWord) return false;
    const size_t at = AssignedValue(token.text, name, append);
    if (at == std::string::npos) return false;
    const std::string value = absl::StrJoin(ExpandWord(token.text.substr(at), variables_, false), " ");
    if (append) {
      variables_.Append(name, {value}, false);
    } else {
      variables_.Assign(name, {value}, false);
    }
    return true;
  }

  const Tokens& tokens_;
  const std::string& file_;
  const std::map<std::string, std::string>& given_;
  ShellVariables variables_;
  ShellScript script_;
};

absl::Status CheckBytes(const std::string& text, const std::string& file) {
  if (text.size() > kMaxScriptBytes) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": a script of ", text.size(), " bytes; at most ", kMaxScriptBytes));
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 || c == '\n' || c == '\t' || c == '\r') continue;
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": the byte ", static_cast<int>(c), " at position ", i, " is not text; is this a script?"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShellScript> ReadShellScript(const std::string& text, const std::string& file,
                                            const std::map<std::string, std::string>& given) {
  LYNX_RETURN_IF_ERROR(CheckBytes(text, file));
  for (const auto& [name, value] : given) LYNX_RETURN_IF_ERROR(CheckBytes(value, absl::StrCat("--set ", name)));
  LYNX_ASSIGN_OR_RETURN(const std::vector<ShellToken> tokens, ShellTokens(text, file));
  return Interpreter(tokens, file, given).Run();
}

absl::StatusOr<std::vector<std::string>> SplitShellWords(const std::string& line) {
  LYNX_ASSIGN_OR_RETURN(const std::vector<ShellToken> tokens, ShellTokens(line, "the command"));
  const std::map<std::string, std::string> none;
  ShellVariables variables(none);
  std::vector<std::string> words;
  for (const ShellToken& token : tokens) {
    if (token.kind != ShellTokenKind::kWord) continue;
    for (std::string& word : ExpandWord(token.text, variables)) words.push_back(std::move(word));
  }
  return words;
}

}  // namespace lynx::cli
