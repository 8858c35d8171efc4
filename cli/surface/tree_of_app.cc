#include "cli/surface/tree_of_app.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace lynx::cli {
namespace {

// The name of the value of an option or positional argument; nullptr: the value can be any text.
const char* ValueName(const std::string& name) {
  static const std::map<std::string, const char*> kNames = {
      {"--file", "FILE"},    {"--out", "FILE"},        {"--cluster", "FILE"},      {"--with-cluster", "FILE"},
      {"--profile", "FILE"}, {"--html", "FILE"},       {"--trace", "FILE"},        {"--context", "FILE"},
      {"--ca-file", "FILE"}, {"--token-file", "FILE"}, {"--context-file", "FILE"}, {"--dir", "FILE"},
      {"path", "FILE"},      {"job", "JOB"},           {"node", "NODE"},           {"--node", "NODE"},
      {"queue", "QUEUE"},    {"user", "USER"},         {"context", "CONTEXT"}};
  const auto found = kNames.find(name);
  return found == kNames.end() ? nullptr : found->second;
}

ValueKind KindOf(const std::string& type) {
  const std::map<std::string, ValueKind> kinds = {{"FILE", ValueKind::kFile}, {"JOB", ValueKind::kJob},
                                                  {"NODE", ValueKind::kNode}, {"QUEUE", ValueKind::kQueue},
                                                  {"USER", ValueKind::kUser}, {"CONTEXT", ValueKind::kContext}};
  const auto found = kinds.find(type);
  return found == kinds.end() ? ValueKind::kText : found->second;
}

// The values that an option accepts: "a", "b" for "TEXT:{a,b}" or "a|b".
std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  std::string text = option.get_option_text();
  if (text.empty()) {
    const std::string type = option.get_type_name();
    const size_t open = type.find('{'), close = type.find('}');
    if (open == std::string::npos || close == std::string::npos) return {};
    text = absl::StrReplaceAll(type.substr(open + 1, close - open - 1), {{",", "|"}});
  }
  return absl::StrSplit(text, '|', absl::SkipWhitespace());
}

// The name of the option's value. An option may have several names; the first of them that is in the table decides. nullptr: no
// name of the option is in the table.
const char* ValueNameOf(const CLI::Option& option) {
  if (const char* name = ValueName(option.get_positional() ? option.get_name(true) : ""); name != nullptr) return name;
  for (const std::string& name : option.get_lnames()) {
    if (const char* value = ValueName("--" + name); value != nullptr) return value;
  }
  return nullptr;
}

CommandOption OptionOf(const CLI::Option& option) {
  CommandOption made{.help = option.get_description(),
                     .choices = ChoicesOf(option),
                     .fallback = option.get_default_str(),
                     .required = option.get_required()};
  if (option.get_positional()) {
    made.names = {option.get_name(true)};
  } else {
    for (const std::string& name : option.get_snames()) made.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) made.names.push_back("--" + name);
  }
  const char* const value = ValueNameOf(option);
  if (option.get_items_expected_max() > 0) made.value = KindOf(value == nullptr ? "" : value);
  return made;
}

}  // namespace

CommandTree TreeOf(const CLI::App& app) {
  // The program's own name is the path by which it was called, so it is not used.
  CommandTree tree{.name = app.get_parent() == nullptr ? "lynxctl" : app.get_name(), .help = app.get_description()};
  const auto take = [&](const CLI::App& group) {
    for (const CLI::Option* option : group.get_options()) {
      if (option == app.get_help_ptr() && app.get_parent() != nullptr) continue;  // help is listed once, for the program
      (option->get_positional() ? tree.arguments : tree.options).push_back(OptionOf(*option));
    }
  };
  take(app);
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name().empty()) {
      take(*verb);  // this is an option group, not a verb
    } else if (!verb->get_group().empty()) {
      tree.verbs.push_back(TreeOf(*verb));
    }
  }
  return tree;
}

void NameValues(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const char* const value = option->get_items_expected_max() > 0 ? ValueNameOf(*option) : nullptr;
    if (value != nullptr) option->type_name(value);
  }
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) NameValues(*verb);
}

}  // namespace lynx::cli
