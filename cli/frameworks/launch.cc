#include "cli/frameworks/launch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

using Words = std::vector<std::string>;

// The index of the word that names the program, a .py file. The number of words if there is no such word.
size_t ProgramAt(const Words& words) {
  const auto at = std::find_if(words.begin(), words.end(), [](const std::string& word) { return absl::EndsWith(word, ".py"); });
  return static_cast<size_t>(at - words.begin());
}

// Splits a word that contains a command, as in sh -c "torchrun ... train.py ...", into the words of this command.
absl::StatusOr<Words> Unwrapped(const Words& words) {
  Words flat;
  for (const std::string& word : words) {
    if (word.find(' ') == std::string::npos || word.find(".py") == std::string::npos) {
      flat.push_back(word);
      continue;
    }
    LYNX_ASSIGN_OR_RETURN(const Words inner, SplitShellWords(word));
    flat.insert(flat.end(), inner.begin(), inner.end());
  }
  return flat;
}

// The value of an option before the program, as "--option value" or "--option=value". If the command has several of the
// options, the one that comes first in `options` is used.
std::optional<std::string> OptionOf(const Words& words, size_t end, std::initializer_list<const char*> options) {
  for (const char* option : options) {
    for (size_t i = 0; i < end; ++i) {
      if (words[i] == option && i + 1 < end) return words[i + 1];
      if (absl::StartsWith(words[i], absl::StrCat(option, "="))) return words[i].substr(std::string(option).size() + 1);
    }
  }
  return std::nullopt;
}

absl::StatusOr<int64_t> CountOf(const std::string& place, const char* option, const std::string& text) {
  int64_t value = 0;
  constexpr int64_t kMaxDevices = 1 << 20;
  if (absl::SimpleAtoi(text, &value) && value >= 1 && value <= kMaxDevices) return value;
  return absl::InvalidArgumentError(absl::StrCat(place, ": ", option, " is '", ShownWord(text),
                                                 "', which is no number; give the number of devices with --devices"));
}

// The number of devices for which the options of torchrun, deepspeed, mpirun or srun start processes. 0: the options do not say
// it. If srun starts one torchrun on each node, and torchrun starts one process for each device, then torchrun's option says
// how many devices a node has, and srun's option does not. --num_gpus of deepspeed is the number of devices of one node. The
// total number of processes is used if torchrun and deepspeed give no number, and srun does not give both the number of nodes
// and a number per node.
absl::StatusOr<int32_t> LauncherDevices(const Words& words, size_t program, const std::string& place) {
  const auto started = OptionOf(words, program, {"--nproc_per_node", "--nproc-per-node", "--num_gpus"});
  const auto reserved = OptionOf(words, program, {"--gpus-per-node", "--ntasks-per-node"});
  const auto nodes = OptionOf(words, program, {"--nnodes", "--num_nodes", "--nodes", "-N"});
  const auto all = OptionOf(words, program, {"-np", "--ntasks", "-n"});
  if (!started && all && !(reserved && nodes)) {
    LYNX_ASSIGN_OR_RETURN(const int64_t processes, CountOf(place, "the number of processes", *all));
    return static_cast<int32_t>(processes);
  }
  const auto& per_node = started ? started : reserved;
  if (!per_node) return 0;
  const std::string count_text = per_node->substr(per_node->find(':') + 1);  // srun: "h100:8"
  LYNX_ASSIGN_OR_RETURN(int64_t devices, CountOf(place, "the number of processes of a node", count_text));
  if (nodes) {
    LYNX_ASSIGN_OR_RETURN(const int64_t count, CountOf(place, "the number of nodes", *nodes));
    devices *= count;
  }
  return static_cast<int32_t>(std::min<int64_t>(devices, INT32_MAX));
}

// The number of devices by lines such as "#SBATCH --nodes=4" and "#SBATCH --ntasks-per-node=8". 0: there are no such lines.
int32_t SbatchDevices(const std::string& text) {
  Words words;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "#SBATCH")) continue;
    for (const absl::string_view word : absl::StrSplit(line.substr(7), absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {
      words.emplace_back(word);
    }
  }
  int64_t nodes = 1, per_node = 0;
  if (const auto text_of = OptionOf(words, words.size(), {"--nodes", "-N"})) {
    if (!absl::SimpleAtoi(*text_of, &nodes)) return 0;
  }
  const auto gpus = OptionOf(words, words.size(), {"--gpus-per-node", "--ntasks-per-node"});
  if (!gpus || !absl::SimpleAtoi(gpus->substr(gpus->find(':') + 1), &per_node)) return 0;
  constexpr int64_t kMaxEach = 1 << 15;
  return nodes >= 1 && nodes <= kMaxEach && per_node >= 1 && per_node <= kMaxEach ? static_cast<int32_t>(nodes * per_node) : 0;
}

// Scripts that Lynx exports have the number of devices in the comment about torchrun, as "N in all".
int32_t ExportDevices(const std::string& text) {
  const size_t end = text.find(" in all> ");
  if (end == std::string::npos) return 0;
  size_t begin = end;
  while (begin > 0 && absl::ascii_isdigit(static_cast<unsigned char>(text[begin - 1]))) --begin;
  int32_t devices = 0;
  return absl::SimpleAtoi(text.substr(begin, end - begin), &devices) ? devices : 0;
}

// True if the command only prints its words: a script may show its command before it runs it.
bool Prints(const Words& words) { return words[0] == "echo" || words[0] == "printf"; }

bool Has(const Words& words, const std::string& mark) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return word == mark || absl::StartsWith(word, mark + "="); });
}

}  // namespace

absl::StatusOr<Launch> FindLaunch(const ShellScript& script, const std::string& text, const std::string& file,
                                  const std::string& mark, int32_t devices) {
  std::optional<Launch> found;
  Words found_words;
  for (const ShellCommand& command : script.commands) {
    LYNX_ASSIGN_OR_RETURN(const Words words, Unwrapped(command.words));
    if (!Has(words, mark) || Prints(words)) continue;
    const size_t program = ProgramAt(words);
    const bool bare = program == words.size() && absl::StartsWith(words[0], "--");
    if (program == words.size() && !bare) continue;
    const std::string place = absl::StrCat(file, ":", command.line);
    if (found && words == found_words) continue;
    if (found) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": a second command with ", mark, ", beside that of ", found->place,
                                                     "; keep one of them in the file"));
    }
    found.emplace();
    found_words = words;
    found->place = place;
    if (!bare) found->program = words[program].substr(words[program].rfind('/') + 1);
    found->arguments.assign(words.begin() + static_cast<ptrdiff_t>(bare ? 0 : program + 1), words.end());
    if (!bare && devices == 0) {
      LYNX_ASSIGN_OR_RETURN(found->devices, LauncherDevices(words, program, place));
    }
  }
  if (!found) {
    Launch arrays{.place = file, .program = "", .arguments = {}, .devices = 0};
    for (const ShellArray& array : script.arrays) {
      arrays.arguments.insert(arrays.arguments.end(), array.words.begin(), array.words.end());
    }
    if (!Has(arrays.arguments, mark)) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": found no command with a program that ends in .py and ", mark,
                       ": commands in loops, in 'case' and behind tests that only a run could decide are not read; put the "
                       "command or its arguments into a file of their own"));
    }
    found = std::move(arrays);
  }
  if (devices > 0) found->devices = devices;
  if (found->devices == 0) found->devices = SbatchDevices(text);
  if (found->devices == 0) found->devices = ExportDevices(text);
  return *std::move(found);
}

}  // namespace lynx::cli
