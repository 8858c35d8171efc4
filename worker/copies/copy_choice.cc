#include "worker/copies/copy_choice.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "worker/checkpoint/checkpoint_index.h"

namespace lynx::worker {
namespace {

using StepKey = std::pair<Generation, int64_t>;

// The copies of one step of one generation. `shards` lists, for each shard's file, the nodes that have the shard, each with its
// record.
struct Found {
  const CheckpointIdentity* identity = nullptr;
  std::map<std::string, std::vector<std::pair<int32_t, const ShardRecord*>>> shards;
};

bool Counts(const CheckpointIdentity& copy, Generation own, const std::vector<NodeCopies>& nodes) {
  if (copy.generation >= own) return false;
  for (const NodeCopies& node : nodes) {
    for (const ResumedMark& mark : node.resumed) {
      if (mark.generation > copy.generation && mark.generation < own && copy.step > mark.step) return false;
    }
  }
  return true;
}

std::map<StepKey, Found> BySteps(const std::vector<NodeCopies>& nodes, Generation own, const std::set<PlacedCopy>& damaged) {
  std::map<StepKey, Found> steps;
  for (size_t node = 0; node < nodes.size(); ++node) {
    for (const CopyRecord& copy : nodes[node].copies) {
      const auto number = static_cast<int32_t>(node);
      if (!Counts(copy.identity, own, nodes) || damaged.contains({number, copy.key()})) continue;
      Found& found = steps[{copy.identity.generation, copy.identity.step}];
      if (found.identity == nullptr) found.identity = &copy.identity;
      // All copies of one generation belong to the same run and have the same layout. A copy with another identity cannot
      // belong to this checkpoint, so it is skipped.
      if (!(*found.identity == copy.identity)) continue;
      found.shards[copy.shard.file].push_back({number, &copy.shard});
    }
  }
  return steps;
}

// A line "resumed GENERATION STEP", or a line "copy 0 BYTES", which is followed by this number of bytes.
struct Line {
  std::string_view word;
  int64_t first = 0, second = 0;
};
std::optional<Line> TakeLine(std::string_view& text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  const size_t one = line.find(' '), two = line.rfind(' ');
  if (one == std::string_view::npos || one == two) return std::nullopt;
  const auto number = [](std::string_view digits, int64_t& out) {
    const auto [at, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return error == std::errc() && at == digits.data() + digits.size() && out >= 0;
  };
  Line taken{.word = line.substr(0, one)};
  if (!number(line.substr(one + 1, two - one - 1), taken.first) || !number(line.substr(two + 1), taken.second)) {
    return std::nullopt;
  }
  text.remove_prefix(end + 1);
  return taken;
}

}  // namespace

std::optional<WholeCopies> NewestWhole(const std::vector<NodeCopies>& nodes, Generation own,
                                       const std::set<PlacedCopy>& damaged, std::vector<std::string>* incomplete) {
  const std::map<StepKey, Found> steps = BySteps(nodes, own, damaged);
  for (auto at = steps.rbegin(); at != steps.rend(); ++at) {
    const Found& found = at->second;
    WholeCopies whole{.identity = *found.identity};
    std::vector<std::string> missing;
    for (const std::string& file : ShardFiles(whole.identity.layout)) {
      const auto places = found.shards.find(file);
      if (places == found.shards.end()) {
        missing.push_back(file);
        continue;
      }
      whole.files.push_back(*places->second.front().second);
      whole.nodes.push_back(places->second.front().first);
    }
    if (missing.empty()) return whole;
    if (incomplete == nullptr) continue;
    incomplete->push_back(absl::StrCat("of step ", whole.identity.step, " (generation ", whole.identity.generation.value,
                                       ") no node has ", absl::StrJoin(missing, ", ")));
  }
  return std::nullopt;
}

std::string NodeCopiesText(const NodeCopies& copies, size_t most_bytes) {
  std::string text;
  for (const ResumedMark& mark : copies.resumed) {
    absl::StrAppend(&text, "resumed ", mark.generation.value, " ", mark.step, "\n");
  }
  std::vector<const CopyRecord*> newest_first;
  for (const CopyRecord& copy : copies.copies) newest_first.push_back(&copy);
  std::sort(newest_first.begin(), newest_first.end(),
            [](const CopyRecord* a, const CopyRecord* b) { return a->key() > b->key(); });
  for (const CopyRecord* copy : newest_first) {
    const std::string record = EncodeIndex({copy->identity, {copy->shard}});
    const std::string line = absl::StrCat("copy 0 ", record.size(), "\n", record);
    if (text.size() + line.size() > most_bytes) break;
    text += line;
  }
  return text;
}

absl::StatusOr<NodeCopies> ParseNodeCopies(const std::string& text) {
  NodeCopies copies;
  std::string_view left = text;
  while (!left.empty()) {
    const std::optional<Line> line = TakeLine(left);
    if (line.has_value() && line->word == "resumed") {
      copies.resumed.push_back({Generation(line->first), line->second});
      continue;
    }
    if (!line.has_value() || line->word != "copy" || line->second > static_cast<int64_t>(left.size())) {
      return absl::InvalidArgumentError("a node's list of its copies is not one");
    }
    const auto bytes = static_cast<size_t>(line->second);
    LYNX_ASSIGN_OR_RETURN(const CheckpointIndex index, DecodeIndex(std::string(left.substr(0, bytes)), IndexKind::kOneShard));
    copies.copies.push_back({index.identity, index.files.front()});
    left.remove_prefix(bytes);
  }
  return copies;
}

}  // namespace lynx::worker
