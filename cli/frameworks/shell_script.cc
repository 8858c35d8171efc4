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
constexpr int kMaxBlocks = 64;  // maximum depth of blocks ("if" and others) inside blocks

// How a command ends, as far as this can be known without running it.
enum class Outcome : uint8_t { kSuccess, kFailure, kUnknown };
Outcome OutcomeOf(std::optional<bool> holds) {
  if (!holds.has_value()) return Outcome::kUnknown;
  return *holds ? Outcome::kSuccess : Outcome::kFailure;
}

bool IsWord(const ShellToken& token, const char* text) { return token.kind == ShellTokenKind::kWord && token.text == text; }

// Splits "NAME=value" or "NAME+=value" unexpanded. Returns the position of the value; npos: the word is no assignment.
size_t AssignedValue(const std::string& word, std::string& name, bool& append) {
  size_t i = 0;
  while (i < word.size() && (absl::ascii_isalnum(static_cast<unsigned char>(word[i])) || word[i] == '_')) ++i;
  if (i == 0 || absl::ascii_isdigit(static_cast<unsigned char>(word[0]))) return std::string::npos;
  append = word.compare(i, 2, "+=") == 0;
  if (!append && (i >= word.size() || word[i] != '=')) return std::string::npos;
  name = word.substr(0, i);
  return i + (append ? 2 : 1);
}

bool IsOperator(const ShellToken& token, const char* text) {
  return token.kind == ShellTokenKind::kOperator && token.text == text;
}
bool IsArithmetic(const ShellToken& token) {
  return token.kind == ShellTokenKind::kWord && token.text.compare(0, 2, "((") == 0;
}

// The names that an arithmetic expression changes: X in "X = 8", "X += 1", "X++" and "--X".
std::vector<std::string> ChangedNames(const std::string& text) {
  std::vector<std::string> names;
  const auto is_name = [&](size_t i) {
    return i < text.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_');
  };
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (!is_name(begin)) continue;
    size_t end = begin;
    while (is_name(end)) ++end;
    size_t next = end;
    while (next < text.size() && text[next] == ' ') ++next;
    const size_t operation = std::min(text.find_first_not_of("+-*/%<>&|^", next), text.size());
    const bool compares = operation == next + 1 && (text[next] == '<' || text[next] == '>');
    const bool assigns =
        operation < text.size() && text[operation] == '=' && text.compare(operation, 2, "==") != 0 && !compares;
    const std::string after = text.substr(next, 2), before = begin >= 2 ? text.substr(begin - 2, 2) : "";
    if (assigns || after == "++" || after == "--" || before == "++" || before == "--") {
      names.push_back(text.substr(begin, end - begin));
    }
    begin = end;
  }
  return names;
}

// Evaluates tests such as [ "$X" = y ] and [[ -z $X && $Y -gt 1 ]]. nullopt: only a run has the result, as for tests of files.
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
    PairBrackets();
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
    size_t i = at;
    while (i + 1 < end && IsWord(tokens_[i], "!")) ++i;
    const bool test = IsWord(tokens_[i], "[[");
    while (i < end && (!EndsCommand(tokens_[i]) || (test && !IsWord(tokens_[i - 1], "]]") && tokens_[i].text != "\n"))) ++i;
    return i;
  }

  // Executes the commands at the positions [begin, end).
  absl::Status Block(size_t begin, size_t end, int depth) {
    if (depth > kMaxBlocks) return Error(tokens_[begin].line, "too many blocks inside one another");
    bool after_and = false, after_or = false;
    Outcome result = Outcome::kSuccess;
    for (size_t at = begin; at < end;) {
      const ShellToken& token = tokens_[at];
      const bool skipped = (after_and && result == Outcome::kFailure) || (after_or && result == Outcome::kSuccess);
      const bool unsure = (after_and || after_or) && result == Outcome::kUnknown;
      if (const size_t close = IsOperator(token, "(") ? SubshellEnd(at, end) : end; close < end) {
        if (!skipped) {
          if (!unsure || after_and) LYNX_RETURN_IF_ERROR(Subshell(at + 1, close, depth));
          result = Outcome::kUnknown;
        }
        after_and = after_or = false;
        at = close + 1;
        continue;
      }
      if (token.kind == ShellTokenKind::kOperator) {
        after_and = token.text == "&&";
        after_or = token.text == "||";
        ++at;
        continue;
      }
      // Commands in functions and in { } are executed at the place where they are written, as if the script called them there.
      if (IsWord(token, "{") || IsWord(token, "}") || IsWord(token, "exec") || IsWord(token, "time")) {
        ++at;
        continue;
      }
      const size_t stop = IsKeyword(token) ? CompoundEnd(at, end) : CommandEnd(at, end);
      if (stop == std::string::npos) return Error(token.line, absl::StrCat("'", token.text, "' has no end"));
      if (!skipped) {
        if (IsWord(token, "if") && !unsure) {
          LYNX_RETURN_IF_ERROR(If(at, stop, depth));
          result = Outcome::kUnknown;
        } else if (IsKeyword(token) || (unsure && (after_or || Assigns(at, stop)))) {
          Forget(at, stop);
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

  // Finds the ")" of each "(". The ")" after a pattern of 'case' belongs to no "(".
  void PairBrackets() {
    std::vector<size_t> open;  // npos: a 'case'
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const ShellToken& token = tokens_[i];
      const bool begins = i == 0 || tokens_[i - 1].kind == ShellTokenKind::kOperator || IsOpening(tokens_[i - 1]);
      if (IsOperator(token, "(")) {
        open.push_back(i);
      } else if (IsOperator(token, ")") && !open.empty() && open.back() != std::string::npos) {
        closing_[open.back()] = i;
        open.pop_back();
      } else if (begins && IsWord(token, "case")) {
        open.push_back(std::string::npos);
      } else if (begins && IsWord(token, "esac")) {
        while (!open.empty() && open.back() != std::string::npos) open.pop_back();
        if (!open.empty()) open.pop_back();
      }
    }
  }
  // Returns the position of the ")" that belongs to the "(" at `at`; `end` if there is none.
  size_t SubshellEnd(size_t at, size_t end) const {
    const auto found = closing_.find(at);
    return found == closing_.end() ? end : std::min(found->second, end);
  }

  // Assignments inside ( ... ) have no effect after the ")".
  absl::Status Subshell(size_t begin, size_t end, int depth) {
    variables_.BeginSubshell();
    LYNX_RETURN_IF_ERROR(Block(begin, end, depth + 1));
    variables_.EndSubshell();
    return absl::OkStatus();
  }

  static bool IsKeyword(const ShellToken& token) {
    if (token.kind != ShellTokenKind::kWord) return false;
    static const auto& words = *new std::set<std::string>{"if", "for", "while", "until", "case", "select"};
    return words.count(token.text) > 0;
  }

  // True if a command follows this word.
  static bool IsOpening(const ShellToken& token) {
    static const auto& words = *new std::set<std::string>{"then", "else", "do", "elif", "{", "!", "if", "while", "until"};
    return token.kind == ShellTokenKind::kWord && words.count(token.text) > 0;
  }

  // Returns the position after the compound command that begins at `at`; npos: the command has no end.
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
      begins = token.kind == ShellTokenKind::kOperator || (begins && IsOpening(token));
    }
    return std::string::npos;
  }

  bool Assigns(size_t begin, size_t end) const {
    std::string name;
    bool append = false;
    return std::any_of(
        tokens_.begin() + static_cast<ptrdiff_t>(begin), tokens_.begin() + static_cast<ptrdiff_t>(end),
        [&](const ShellToken& token) {
          return token.kind == ShellTokenKind::kArray || IsArithmetic(token) || IsSetter(token) ||
                 (token.kind == ShellTokenKind::kWord && AssignedValue(token.text, name, append) != std::string::npos);
        });
  }

  // Used for commands that may run or not: the text alone does not tell. Does not execute them. The variables that they assign
  // become unknown. If they add words to a variable, an unknown part is added to it.
  void Forget(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const ShellToken& token = tokens_[i];
      std::string name;
      bool append = false;
      if (token.kind == ShellTokenKind::kArray) {
        if (token.append) {
          variables_.Append(token.text, {UnknownRest(token.text)}, true);
        } else {
          variables_.Forget(token.text);
        }
      } else if (token.kind == ShellTokenKind::kWord) {
        const size_t value = AssignedValue(token.text, name, append);
        if (value != std::string::npos && append && token.text.find(' ', value) != std::string::npos) {
          variables_.Append(name, {" " + UnknownRest(name)}, variables_.IsArray(name));
        } else if (value != std::string::npos) {
          variables_.Forget(name);
        }
        if (i > begin && (IsWord(tokens_[i - 1], "for") || IsWord(tokens_[i - 1], "select"))) variables_.Forget(token.text);
        if (IsArithmetic(token)) ForgetNames(ChangedNames(token.text));
        if (IsSetter(token)) Set(i, CommandEnd(i, end));
      }
    }
  }

  void ForgetNames(const std::vector<std::string>& names) {
    for (const std::string& name : names) variables_.Forget(name);
  }

  // True for commands that assign a variable a value that is known only in a run, and for commands that execute another file.
  static bool IsSetter(const ShellToken& token) {
    if (token.kind != ShellTokenKind::kWord) return false;
    static const auto& words =
        *new std::set<std::string>{"let", "read", "printf", "mapfile", "readarray", "getopts", "source", "."};
    return words.count(token.text) > 0;
  }

  // Makes the variables unknown that the command in [begin, end) assigns (see IsSetter). Returns true unless it only prints.
  bool Set(size_t begin, size_t end) {
    const std::string& verb = tokens_[begin].text;
    std::vector<std::string> words;
    for (size_t i = begin + 1; i < end; ++i) {
      if (tokens_[i].kind != ShellTokenKind::kWord) continue;
      for (std::string& word : ExpandWord(tokens_[i].text, variables_)) words.push_back(std::move(word));
    }
    if (verb == "source" || verb == ".") {
      const bool first = begin == 0 || tokens_[begin - 1].kind == ShellTokenKind::kOperator || IsOpening(tokens_[begin - 1]);
      if (first && !words.empty()) script_.sourced.push_back(ShownWord(words[0]));
      return first;
    }
    if (verb == "printf") {
      if (words.size() < 2 || words[0] != "-v") return false;
      words.resize(2);
    }
    for (const std::string& word : words) {
      if (verb == "let") {
        ForgetNames(ChangedNames(word));
      } else if (!word.empty() && word[0] != '-' && !absl::ascii_isdigit(static_cast<unsigned char>(word[0]))) {
        variables_.Forget(word);
      }
    }
    return true;
  }

  // Executes "if TEST; then ... elif TEST; then ... else ... fi" in [begin, end).
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
        Forget(then + 1, next);
      } else if (*holds) {
        return Block(then + 1, next, depth + 1);
      }
      if (IsWord(tokens_[next], "else")) {
        if (!unsure) return Block(next + 1, end - 1, depth + 1);
        Forget(next + 1, end - 1);
        break;
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
  // Returns the position of the "elif", "else" or "fi" that ends the branch at `begin`. `end` is the position after the "fi".
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

  // Executes commands joined by && and ||. Returns whether they succeed; nullopt: only a run could tell.
  std::optional<bool> Condition(size_t begin, size_t end) {
    while (end > begin && (IsOperator(tokens_[end - 1], ";") || IsOperator(tokens_[end - 1], "\n"))) --end;
    std::optional<bool> result = true;
    bool joins_and = true;
    for (size_t at = begin; at < end;) {
      bool negated = false;
      for (; at < end && IsWord(tokens_[at], "!"); ++at) negated = !negated;
      const size_t stop = at < end ? CommandEnd(at, end) : end;
      const bool last = stop == end;
      const bool joined = !last && (IsOperator(tokens_[stop], "&&") || IsOperator(tokens_[stop], "||"));
      if (stop == at || (!last && !joined) || stop + 1 == end) {
        Forget(begin, end);
        return std::nullopt;
      }
      std::optional<bool> one = One(at, stop);
      if (one && negated) one = !*one;
      if (joins_and) {
        result = result == false || one == false ? std::optional(false) : result && one ? std::optional(true) : std::nullopt;
      } else {
        result = result == true || one == true ? std::optional(true) : result && one ? std::optional(false) : std::nullopt;
      }
      joins_and = !last && IsOperator(tokens_[stop], "&&");
      at = stop + 1;
    }
    return result;
  }

  // Executes one command of a condition: a test, an arithmetic expression, true or false.
  std::optional<bool> One(size_t begin, size_t end) {
    const std::string& verb = tokens_[begin].text;
    if (IsArithmetic(tokens_[begin])) {
      const std::string inside = verb.substr(2, verb.size() - 4);
      const std::optional<int64_t> value = ShellArithmetic(inside, variables_);
      ForgetNames(ChangedNames(inside));
      return value && end == begin + 1 ? std::optional(*value != 0) : std::nullopt;
    }
    if (verb != "[" && verb != "[[" && verb != "test") return Fixed(begin, end);
    if (verb != "test") {
      --end;
      if (!IsWord(tokens_[end], verb == "[" ? "]" : "]]")) return std::nullopt;
    }
    std::vector<std::string> words;
    for (size_t i = begin + 1; i < end; ++i) {
      const ShellToken& token = tokens_[i];
      const bool joins = IsOperator(token, "&&") || IsOperator(token, "||");
      if (!joins && (token.kind != ShellTokenKind::kWord || IsArithmetic(token))) return std::nullopt;
      words.push_back(joins ? token.text : absl::StrJoin(ExpandWord(token.text, variables_, false), " "));
    }
    return Test(std::move(words)).Run();
  }

  // Executes another command of a condition. Whether it succeeds is known only for "true" and "false".
  std::optional<bool> Fixed(size_t begin, size_t end) {
    if (tokens_[begin].kind == ShellTokenKind::kWord && end == begin + 1) {
      const std::vector<std::string> words = ExpandWord(tokens_[begin].text, variables_);
      if (words.size() == 1 && (words[0] == "true" || words[0] == ":")) return true;
      if (words.size() == 1 && words[0] == "false") return false;
    }
    Forget(begin, end);
    return std::nullopt;
  }

  // Executes an assignment, or stores a command. Returns whether it succeeds; nullopt if the text does not tell.
  std::optional<bool> Simple(size_t begin, size_t end) {
    if (IsWord(tokens_[begin], "!") && begin + 1 < end) {
      const std::optional<bool> holds = Simple(begin + 1, end);
      return holds ? std::optional(!*holds) : std::nullopt;
    }
    if (IsWord(tokens_[begin], "[") || IsWord(tokens_[begin], "[[") || IsWord(tokens_[begin], "test") ||
        IsArithmetic(tokens_[begin])) {
      return One(begin, end);
    }
    if (IsSetter(tokens_[begin]) && Set(begin, end)) return std::nullopt;
    static const auto& declares = *new std::set<std::string>{"export", "declare", "local", "readonly", "typeset"};
    if (tokens_[begin].kind == ShellTokenKind::kWord && declares.count(tokens_[begin].text) > 0) {
      for (size_t i = begin + 1; i < end; ++i) Declare(tokens_[i]);
      return true;
    }
    size_t at = begin;
    while (at < end && AssignOne(tokens_[at])) ++at;
    if (at == end) return true;
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
    if (command.words == std::vector<std::string>{"true"}) return true;
    if (command.words == std::vector<std::string>{"false"}) return false;
    if (!command.words.empty()) script_.commands.push_back(std::move(command));
    return std::nullopt;
  }

  // Handles a word after "export", "declare" or the like: an assignment (possibly in quotes), an option, or a name.
  void Declare(const ShellToken& token) {
    if (AssignOne(token) || token.kind != ShellTokenKind::kWord) return;
    const std::string word = absl::StrJoin(ExpandWord(token.text, variables_, false), " ");
    std::string name;
    bool append = false;
    const size_t at = AssignedValue(word, name, append);
    if (at != std::string::npos && !append) variables_.Assign(name, {word.substr(at)}, false);
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
  std::map<size_t, size_t> closing_;  // the position of each "(" that is closed, and of its ")"
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
