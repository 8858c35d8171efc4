#include "node/flags.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/version.h"

namespace lynx {
namespace {

// The Levenshtein distance between two texts: the number of letters to insert, delete or replace.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

absl::Status Unknown(const std::string& argument, const std::string& name, const std::vector<Flag>& flags) {
  std::string text = absl::StrCat("unknown argument '", argument, "'");
  const auto nearest = std::min_element(flags.begin(), flags.end(), [&](const Flag& a, const Flag& b) {
    return Distance(name, a.name) < Distance(name, b.name);
  });
  if (nearest != flags.end() && Distance(name, nearest->name) <= 3) {
    absl::StrAppend(&text, "; did you mean --", nearest->name, "?");
  }
  return absl::InvalidArgumentError(text);
}

absl::Status Assign(const Flag& flag, const std::string& text) {
  if (auto* const* value = std::get_if<std::string*>(&flag.value)) {
    **value = text;
  } else if (auto* const* number = std::get_if<int64_t*>(&flag.value)) {
    if (!absl::SimpleAtoi(text, *number)) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag.name, " '", text, "' is not a whole number"));
    }
  } else if (text == "true" || text == "false") {
    **std::get_if<bool*>(&flag.value) = text == "true";
  } else {
    return absl::InvalidArgumentError(absl::StrCat("--", flag.name, " '", text, "' is neither true nor false"));
  }
  return absl::OkStatus();
}

std::string DefaultText(const Flag& flag) {
  if (auto* const* value = std::get_if<std::string*>(&flag.value)) {
    return (*value)->empty() ? "" : absl::StrCat(" [", **value, "]");
  }
  if (auto* const* number = std::get_if<int64_t*>(&flag.value)) {
    return **number == 0 ? "" : absl::StrCat(" [", **number, "]");
  }
  return "";
}

}  // namespace

absl::Status ParseFlags(const std::vector<std::string>& arguments, const std::vector<Flag>& flags) {
  std::set<std::string> seen;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const bool dashed = argument.rfind("--", 0) == 0;
    const std::string name = dashed ? argument.substr(2, equals == std::string::npos ? equals : equals - 2) : argument;
    const auto flag = std::find_if(flags.begin(), flags.end(), [&](const Flag& f) { return f.name == name; });
    if (!dashed || flag == flags.end()) return Unknown(argument, name, flags);
    if (!seen.insert(name).second) return absl::InvalidArgumentError(absl::StrCat("--", name, " is given twice"));
    std::string value = "true";
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (!std::holds_alternative<bool*>(flag->value)) {
      if (++i == arguments.size()) return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
      value = arguments[i];
    }
    if (absl::Status assigned = Assign(*flag, value); !assigned.ok()) return assigned;
  }
  return absl::OkStatus();
}

std::string FlagsText(const std::vector<Flag>& flags) {
  std::string text;
  for (const Flag& flag : flags) {
    const std::string head = absl::StrCat("  --", flag.name, std::holds_alternative<bool*>(flag.value) ? "" : " VALUE");
    absl::StrAppend(&text, head, std::string(head.size() < 26 ? 26 - head.size() : 2, ' '), flag.help, DefaultText(flag), "\n");
  }
  return text;
}

void ParseCommandLine(int argc, char** argv, const std::string& program, const std::string& purpose,
                      const std::vector<Flag>& flags) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  for (const std::string& argument : arguments) {
    if (argument == "--version") {
      std::printf("%s %s\n", program.c_str(), kVersion);
      std::exit(0);
    }
    if (argument == "--help" || argument == "-h") {
      std::printf("%s %s: %s\n\n%s  --help, --version\n", program.c_str(), kVersion, purpose.c_str(), FlagsText(flags).c_str());
      std::exit(0);
    }
  }
  const absl::Status parsed = ParseFlags(arguments, flags);
  if (parsed.ok()) return;
  std::fprintf(stderr, "%s: %s; see %s --help\n", program.c_str(), std::string(parsed.message()).c_str(), program.c_str());
  std::exit(2);
}

}  // namespace lynx
