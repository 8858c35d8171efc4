// See completion.h.
#include "cli/surface/completion.h"

#include <functional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace lynx::cli {
namespace {

// A function that is called for each verb. `path`: the words that lead to the verb, such as "queue set"; "" is the program
// itself.
using Visit = std::function<void(const std::string& path, const CommandTree& command)>;

void ForEach(const std::string& path, const CommandTree& command, const Visit& visit) {
  visit(path, command);
  for (const CommandTree& verb : command.verbs) {
    ForEach(path.empty() ? verb.name : absl::StrCat(path, " ", verb.name), verb, visit);
  }
}

// Puts the text between single quotes for a shell. Between such quotes, fish has other escapes than bash and zsh.
std::string Quoted(const std::string& text, bool fish = false) {
  return absl::StrCat(
      "'", fish ? absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}) : absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// The options of all verbs that take a value. The word after such an option is not a verb.
std::set<std::string> Valued(const CommandTree& tree) {
  std::set<std::string> names;
  ForEach("", tree, [&](const std::string&, const CommandTree& command) {
    for (const CommandOption& option : command.options) {
      if (option.value != ValueKind::kNone) names.insert(option.names.begin(), option.names.end());
    }
  });
  return names;
}

// How the scripts encode an option's possible values: words, "@files", "@jobs" and so on, or "".
std::string Values(const CommandOption& option) {
  if (!option.choices.empty()) return absl::StrJoin(option.choices, " ");
  if (option.value == ValueKind::kFile) return "@files";
  const std::string kind = CompletionKind(option.value);
  return kind.empty() ? "" : absl::StrCat("@", kind);
}

std::vector<std::string> Names(const std::vector<CommandOption>& options) {
  std::vector<std::string> names;
  for (const CommandOption& option : options) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

// The patterns of a shell's `case` over "VERB:OPTION" that match this option. An option of the program is valid with every
// verb.
std::string ValuePatterns(const std::string& path, const CommandOption& option, const CommandTree& command,
                          const CommandTree& tree) {
  std::vector<std::string> patterns;
  for (const std::string& name : option.names) {
    patterns.push_back(&command == &tree ? absl::StrCat("*:", name) : absl::StrCat("'", path, ":", name, "'"));
  }
  return absl::StrJoin(patterns, "|");
}

// The text of the shell function that sets `values` for "VERB:OPTION". It is valid in bash and zsh.
std::string ValueFunction(const CommandTree& tree) {
  std::string text = "_lynxctl_values() {\n  values=\n  case \"$1\" in\n";
  ForEach("", tree, [&](const std::string& path, const CommandTree& command) {
    for (const CommandOption& option : command.options) {
      if (const std::string values = Values(option); !values.empty()) {
        absl::StrAppend(&text, "    ", ValuePatterns(path, option, command, tree), ") values=", Quoted(values), " ;;\n");
      }
    }
  });
  return absl::StrCat(text, "  esac\n}\n");
}

// The possible values of the first positional argument.
std::string ArgumentValues(const CommandTree& command) {
  return command.arguments.empty() ? "" : Values(command.arguments.front());
}

// --- bash

// Reads lines and keeps those that begin with the typed text, as words that the shell does not interpret. compgen -W would
// expand them. Then the shell could execute a context's name, or text from a server.
constexpr const char* kBashMatches = R"sh(_lynxctl_matches() {
  local line
  while IFS= read -r line; do
    if [[ -n $line && $line == "$cur"* ]]; then
      printf -v line %q "$line"
      COMPREPLY+=("$line")
    fi
  done
}
)sh";

std::string BashScript(const CommandTree& tree) {
  std::string text =
      "# Completion of lynxctl for bash: source <(lynxctl completion bash)\n_lynxctl_at() {\n  verbs= options= argument=\n  "
      "case \"$1\" in\n";
  ForEach("", tree, [&](const std::string& path, const CommandTree& command) {
    std::vector<std::string> verbs;
    for (const CommandTree& verb : command.verbs) verbs.push_back(verb.name);
    std::vector<std::string> options = Names(command.options);
    if (&command != &tree) {
      const std::vector<std::string> of_all = Names(tree.options);
      options.insert(options.end(), of_all.begin(), of_all.end());
    }
    absl::StrAppend(&text, "    ", Quoted(path), ") verbs=", Quoted(absl::StrJoin(verbs, " ")),
                    " options=", Quoted(absl::StrJoin(options, " ")), " argument=", Quoted(ArgumentValues(command)), " ;;\n");
  });
  absl::StrAppend(&text, "  esac\n}\n", ValueFunction(tree), kBashMatches);
  absl::StrAppend(&text, "_lynxctl() {\n  local valued=", Quoted(absl::StrJoin(Valued(tree), " ")), R"sh(
  local cur="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" path= skip= word verbs options argument values i
  if [[ $cur == = ]]; then cur=; elif [[ $before == = ]]; then before="${COMP_WORDS[COMP_CWORD-2]}"; fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word="${COMP_WORDS[i]}"
    if [[ $word == = ]]; then skip=1; continue; fi
    if [[ -n $skip ]]; then skip=; continue; fi
    if [[ $word == -* ]]; then
      if [[ " $valued " == *" $word "* ]]; then skip=1; fi
      continue
    fi
    _lynxctl_at "$path"
    if [[ " $verbs " == *" $word "* ]]; then path="${path:+$path }$word"; fi
  done
  COMPREPLY=()
  _lynxctl_at "$path"
  if [[ $before == -* && " $valued " == *" $before "* ]]; then
    _lynxctl_values "$path:$before"
  elif [[ $cur == -* ]]; then
    values="$options"
  else
    values="$verbs$argument"
  fi
  case "$values" in
    @files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    @*) _lynxctl_matches < <("${COMP_WORDS[0]}" __complete "${values#@}" 2>/dev/null) ;;
    *) _lynxctl_matches <<< "${values// /$'\n'}" ;;
  esac
}
complete -F _lynxctl lynxctl
)sh");
  return text;
}

// --- zsh

// "name:help" for _describe. Colons in the name are escaped, because a colon ends the name.
std::string Described(const std::string& name, const std::string& help) {
  return Quoted(absl::StrCat(absl::StrReplaceAll(name, {{":", "\\:"}}), ":", help));
}

std::string ZshScript(const CommandTree& tree) {
  std::string text =
      "#compdef lynxctl\n# Completion of lynxctl for zsh: source <(lynxctl completion zsh)\n_lynxctl_at() {\n"
      "  verbs=() options=() argument=\n  case \"$1\" in\n";
  ForEach("", tree, [&](const std::string& path, const CommandTree& command) {
    std::vector<std::string> verbs, options;
    for (const CommandTree& verb : command.verbs) verbs.push_back(Described(verb.name, verb.help));
    const auto describe = [&](const std::vector<CommandOption>& all) {
      for (const CommandOption& option : all) {
        for (const std::string& name : option.names) options.push_back(Described(name, option.help));
      }
    };
    describe(command.options);
    if (&command != &tree) describe(tree.options);
    absl::StrAppend(&text, "    ", Quoted(path), ")\n      verbs=(", absl::StrJoin(verbs, " "), ")\n      options=(",
                    absl::StrJoin(options, " "), ")\n      argument=", Quoted(ArgumentValues(command)), " ;;\n");
  });
  absl::StrAppend(&text, "  esac\n}\n", ValueFunction(tree));
  absl::StrAppend(&text, "_lynxctl() {\n  local valued=", Quoted(absl::StrJoin(Valued(tree), " ")), R"sh(
  local cur="${words[CURRENT]}" before="${words[CURRENT-1]}" at= skip= word argument values
  local -a verbs options
  for word in "${(@)words[2,CURRENT-1]}"; do
    if [[ -n $skip ]]; then skip=; continue; fi
    if [[ $word == -* ]]; then
      if [[ " $valued " == *" $word "* ]]; then skip=1; fi
      continue
    fi
    _lynxctl_at "$at"
    if (( ${verbs[(I)$word:*]} )); then at="${at:+$at }$word"; fi
  done
  _lynxctl_at "$at"
  if [[ $before == -* && " $valued " == *" $before "* ]]; then
    _lynxctl_values "$at:$before"
  elif [[ $cur == -* ]]; then
    _describe -o option options
    return
  elif (( $#verbs )); then
    _describe verb verbs
    return
  else
    values="$argument"
  fi
  case "$values" in
    @files) _files ;;
    @*) compadd -- ${(f)"$("${words[1]}" __complete "${values#@}" 2>/dev/null)"} ;;
    ?*) compadd -- ${=values} ;;
  esac
}
compdef _lynxctl lynxctl
)sh");
  return text;
}

// --- fish

std::string FishValues(const CommandOption& option) {
  const std::string values = Values(option);
  if (values == "@files") return " -r -F";
  if (values.starts_with("@")) return absl::StrCat(" -x -a '(lynxctl __complete ", values.substr(1), " 2>/dev/null)'");
  return absl::StrCat(" -x", values.empty() ? "" : absl::StrCat(" -a ", Quoted(values, true)));
}

void AppendFish(const std::string& condition, const CommandOption& option, std::string& text) {
  absl::StrAppend(&text, "complete -c lynxctl", condition);
  for (const std::string& name : option.names) {
    absl::StrAppend(&text,
                    name.starts_with("--") ? absl::StrCat(" -l ", name.substr(2)) : absl::StrCat(" -s ", name.substr(1)));
  }
  absl::StrAppend(&text, option.value == ValueKind::kNone ? "" : FishValues(option), " -d ", Quoted(option.help, true), "\n");
}

std::string FishScript(const CommandTree& tree) {
  std::vector<std::string> paths;
  std::string completions;
  for (const CommandOption& option : tree.options) AppendFish("", option, completions);
  ForEach("", tree, [&](const std::string& path, const CommandTree& command) {
    if (!path.empty()) paths.push_back(Quoted(path, true));
    const std::string condition = absl::StrCat(" -n ", Quoted(absl::StrCat("__lynxctl_at ", Quoted(path, true)), true));
    for (const CommandTree& verb : command.verbs) {
      absl::StrAppend(&completions, "complete -c lynxctl", condition, " -a ", verb.name, " -d ", Quoted(verb.help, true), "\n");
    }
    if (&command != &tree) {
      for (const CommandOption& option : command.options) AppendFish(condition, option, completions);
    }
    const std::string argument = ArgumentValues(command);
    if (argument == "@files") {
      absl::StrAppend(&completions, "complete -c lynxctl", condition, " -F\n");
    } else if (argument.starts_with("@")) {
      absl::StrAppend(&completions, "complete -c lynxctl", condition, " -a '(lynxctl __complete ", argument.substr(1),
                      " 2>/dev/null)'\n");
    } else if (!argument.empty()) {
      absl::StrAppend(&completions, "complete -c lynxctl", condition, " -a ", Quoted(argument, true), "\n");
    }
  });
  return absl::StrCat(
      "# Completion of lynxctl for fish: lynxctl completion fish | source\nfunction __lynxctl_path\n  set -l valued ",
      absl::StrJoin(Valued(tree), " "), "\n  set -l paths ", absl::StrJoin(paths, " "), R"sh(
  set -l path ''
  set -l skip ''
  for word in (commandline -opc)[2..-1]
    if test -n "$skip"
      set skip ''
    else if string match -q -- '-*' $word
      contains -- $word $valued; and set skip 1
    else if contains -- (string trim "$path $word") $paths
      set path (string trim "$path $word")
    end
  end
  echo $path
end
function __lynxctl_at
  test (__lynxctl_path) = "$argv[1]"
end
complete -c lynxctl -f
)sh",
      completions);
}

}  // namespace

const char* CompletionKind(ValueKind value) {
  switch (value) {
    case ValueKind::kJob: return "jobs";
    case ValueKind::kNode: return "nodes";
    case ValueKind::kQueue: return "queues";
    case ValueKind::kUser: return "users";
    case ValueKind::kContext: return "contexts";
    default: return "";
  }
}

absl::StatusOr<std::string> CompletionScript(const std::string& shell, const CommandTree& tree) {
  if (shell == "bash") return BashScript(tree);
  if (shell == "zsh") return ZshScript(tree);
  if (shell == "fish") return FishScript(tree);
  return absl::InvalidArgumentError(absl::StrCat("there is no completion for '", shell, "': give bash, zsh or fish"));
}

}  // namespace lynx::cli
