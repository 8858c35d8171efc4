// Expands words of a bash script: quotes, variables, arrays and arithmetic. One thread.
#ifndef LYNX_CLI_FRAMEWORKS_SHELL_WORDS_H_
#define LYNX_CLI_FRAMEWORKS_SHELL_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lynx::cli {

// A part of a word that the text of the script does not determine, such as "$DATA".
std::string UnknownPart(const std::string& as_written);

// Returns a word that stands for any number of words. The script adds these words to a variable under a condition that only a
// run can decide.
std::string UnknownRest(const std::string& name);

class ShellVariables {
 public:
  // Given values replace the values that the script assigns.
  explicit ShellVariables(const std::map<std::string, std::string>& given) : given_(given) {}

  void Assign(const std::string& name, std::vector<std::string> words, bool array);
  void Append(const std::string& name, const std::vector<std::string>& words, bool array);
  // From here on, the value of the variable is not known.
  void Forget(const std::string& name);
  // The words of the variable, one unless it is an array. nullopt: neither the script nor the user sets it.
  std::optional<std::vector<std::string>> Find(const std::string& name);
  bool IsArray(const std::string& name) const { return arrays_.count(name) > 0; }
  const std::vector<std::string>& ArrayNames() const { return array_names_; }
  // EndSubshell undoes all assignments since BeginSubshell.
  void BeginSubshell() { replaced_.emplace_back(); }
  void EndSubshell();
  // The first given variable that the script neither assigns nor uses; "" if there is none.
  std::string UnusedGiven() const;

 private:
  const std::map<std::string, std::string>& given_;
  std::map<std::string, std::vector<std::string>> values_;
  // The values that each subshell has replaced; the innermost subshell is last. nullopt: the variable had no value.
  std::vector<std::map<std::string, std::optional<std::vector<std::string>>>> replaced_;
  std::set<std::string> arrays_;
  std::vector<std::string> array_names_;  // in the order of their first assignment
  std::set<std::string> mentioned_;
};

// Expands one word as it is written. The result has several words where an unquoted value has blanks, or where an array stands;
// none where an unquoted value is empty. `split`: false for values of assignments, which stay one word.
std::vector<std::string> ExpandWord(const std::string& written, ShellVariables& variables, bool split = true);

// The value of an arithmetic expression of whole numbers; a comparison is 1 or 0. nullopt: it cannot be computed.
std::optional<int64_t> ShellArithmetic(const std::string& expression, ShellVariables& variables);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_SHELL_WORDS_H_
