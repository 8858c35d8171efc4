// See command_pages.h.
#include "cli/surface/command_pages.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace lynx::cli {
namespace {

// The word that stands for the option's value on a page: "FILE", "a|b".
std::string ValueText(const CommandOption& option) {
  if (!option.choices.empty()) return absl::StrJoin(option.choices, "|");
  switch (option.value) {
    case ValueKind::kNone: return "";
    case ValueKind::kText: return "VALUE";
    case ValueKind::kFile: return "FILE";
    case ValueKind::kJob: return "JOB";
    case ValueKind::kNode: return "NODE";
    case ValueKind::kQueue: return "QUEUE";
    case ValueKind::kUser: return "USER";
    case ValueKind::kContext: return "CONTEXT";
  }
  return "";
}

std::string OptionText(const CommandOption& option) {
  const std::string value = ValueText(option);
  return absl::StrCat(absl::StrJoin(option.names, ", "), value.empty() ? "" : " ", value);
}

std::string ArgumentText(const CommandOption& argument) {
  const std::string name = argument.names.front();
  return argument.required ? name : absl::StrCat("[", name, "]");
}

std::string HelpText(const CommandOption& option) {
  return absl::StrCat(option.help, option.fallback.empty() ? "" : absl::StrCat(" (default: ", option.fallback, ")"),
                      option.required ? "; required" : "");
}

// The line that shows how the verb is called: "lynxctl queue set [OPTION]... queue".
std::string Synopsis(const std::string& path, const CommandTree& command) {
  std::string text = path;
  if (!command.verbs.empty()) return text + " VERB ...";
  for (const CommandOption& option : command.options) {
    if (option.required) absl::StrAppend(&text, " ", option.names.back(), " ", ValueText(option));
  }
  absl::StrAppend(&text, " [OPTION]...");
  for (const CommandOption& argument : command.arguments) absl::StrAppend(&text, " ", ArgumentText(argument));
  return text;
}

// --- Markdown

std::string Cell(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}}); }

void AppendTable(const std::vector<CommandOption>& options, std::string& text) {
  if (options.empty()) return;
  absl::StrAppend(&text, "\n| | |\n|---|---|\n");
  for (const CommandOption& option : options) {
    absl::StrAppend(&text, "| `", Cell(OptionText(option)), "` | ", Cell(HelpText(option)), " |\n");
  }
}

void AppendMarkdown(const std::string& path, const CommandTree& command, std::string& text) {
  absl::StrAppend(&text, "\n## ", path, "\n\n", command.help, ".\n");
  if (command.verbs.empty()) {
    absl::StrAppend(&text, "\n    ", Synopsis(path, command), "\n");
    std::vector<CommandOption> rows;
    for (CommandOption argument : command.arguments) {
      argument.value = ValueKind::kNone;  // the name is shown in any case
      argument.required = false;          // the synopsis shows it
      rows.push_back(std::move(argument));
    }
    rows.insert(rows.end(), command.options.begin(), command.options.end());
    AppendTable(rows, text);
    return;
  }
  for (const CommandTree& verb : command.verbs) AppendMarkdown(absl::StrCat(path, " ", verb.name), verb, text);
}

// --- roff

// Escapes text for roff: a line must not begin with a control character, and hyphens must be ones that can be copied.
std::string Roff(const std::string& text) {
  std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"\n.", "\n\\&."}, {"\n'", "\n\\&'"}});
  if (!escaped.empty() && (escaped.front() == '.' || escaped.front() == '\'')) escaped.insert(0, "\\&");
  return escaped;
}

void AppendOptions(const std::string& title, const std::vector<CommandOption>& options, std::string& text) {
  if (options.empty()) return;
  absl::StrAppend(&text, ".SH ", title, "\n");
  for (const CommandOption& option : options) {
    absl::StrAppend(&text, ".TP\n\\fB", absl::StrReplaceAll(Roff(absl::StrJoin(option.names, ", ")), {{", ", "\\fR, \\fB"}}),
                    "\\fR");
    if (const std::string value = ValueText(option); !value.empty() && option.names.front().front() == '-') {
      absl::StrAppend(&text, " \\fI", Roff(value), "\\fR");
    }
    absl::StrAppend(&text, "\n", Roff(HelpText(option)), "\n");
  }
}

std::string PageName(const std::string& path) { return absl::StrReplaceAll(path, {{" ", "-"}}); }

void AppendPages(const std::string& path, const CommandTree& command, const CommandTree& program, const std::string& version,
                 const std::string& closing, std::vector<ManPage>& pages) {
  const std::string name = PageName(path);
  std::string text =
      absl::StrCat(".TH \"", absl::AsciiStrToUpper(Roff(name)), "\" 1 \"\" \"lynx ", Roff(version), "\" \"Lynx\"\n.SH NAME\n",
                   Roff(name), " \\- ", Roff(command.help), "\n.SH SYNOPSIS\n.B ", Roff(Synopsis(path, command)), "\n");
  AppendOptions("ARGUMENTS", command.arguments, text);
  if (!command.verbs.empty()) {
    absl::StrAppend(&text, ".SH VERBS\n");
    for (const CommandTree& verb : command.verbs) {
      absl::StrAppend(&text, ".TP\n.BR ", Roff(PageName(absl::StrCat(path, " ", verb.name))), " (1)\n", Roff(verb.help), "\n");
    }
  }
  AppendOptions("OPTIONS", command.options, text);
  if (&command != &program) AppendOptions("OPTIONS OF EVERY VERB", program.options, text);
  absl::StrAppend(&text, ".SH EXIT STATUS\n", Roff(closing), "\n");
  if (&command != &program) absl::StrAppend(&text, ".SH SEE ALSO\n.BR ", Roff(program.name), " (1)\n");
  pages.push_back({absl::StrCat(name, ".1"), std::move(text)});
  for (const CommandTree& verb : command.verbs)
    AppendPages(absl::StrCat(path, " ", verb.name), verb, program, version, closing, pages);
}

}  // namespace

std::string CommandReference(const CommandTree& tree, const std::string& closing) {
  std::string text = absl::StrCat(
      "# ", tree.name, "\n\n", tree.help,
      ".\n\nThis page is what `lynxctl reference` prints. [`lynxctl man`](#lynxctl-man) makes manual pages of the same, and ",
      "[`lynxctl completion`](#lynxctl-completion) completions for bash, zsh and fish.\n\n## Options of every verb\n");
  AppendTable(tree.options, text);
  absl::StrAppend(&text, "\n", closing, "\n");
  for (const CommandTree& verb : tree.verbs) AppendMarkdown(absl::StrCat(tree.name, " ", verb.name), verb, text);
  return text;
}

std::vector<ManPage> ManPages(const CommandTree& tree, const std::string& version, const std::string& closing) {
  std::vector<ManPage> pages;
  AppendPages(tree.name, tree, tree, version, closing, pages);
  return pages;
}

}  // namespace lynx::cli
