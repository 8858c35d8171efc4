// Chooses from which in-memory checkpoint a generation may resume, newest first. Every rank chooses from the same lists, so all
// ranks choose the same. Pure.
#ifndef LYNX_WORKER_COPIES_COPY_CHOICE_H_
#define LYNX_WORKER_COPIES_COPY_CHOICE_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/copies/copy_store.h"

namespace lynx {

// A copy (copy_store.h) on a node.
struct PlacedCopy {
  int32_t node = 0;  // the node's index in the list
  CopyKey key;
  auto operator<=>(const PlacedCopy&) const = default;
};

// All shards of one step, each with a node that has it.
struct WholeCopies {
  CheckpointIdentity identity;
  std::vector<ShardRecord> files;  // in the order of ShardFiles
  std::vector<int32_t> nodes;      // by file
};

// The newest step for which the nodes together have every shard; nullopt if there is none. It ignores copies in `damaged`,
// copies of generation `own` or a newer one, and copies of steps that do not belong to the run any more: if a newer generation
// resumed from an earlier step, what the older generation did after that step does not count. `incomplete`, unless null,
// receives a sentence for each step that is newer than the result and lacks shards.
std::optional<WholeCopies> NewestWhole(const std::vector<NodeCopies>& nodes, Generation own,
                                       const std::set<PlacedCopy>& damaged, std::vector<std::string>* incomplete);

// A node's list as text, and back. The text has at most `most_bytes`; the newest generation and steps come first.
// InvalidArgument when the text is not such a list.
std::string NodeCopiesText(const NodeCopies& copies, size_t most_bytes);
absl::StatusOr<NodeCopies> ParseNodeCopies(const std::string& text);

}  // namespace lynx

#endif  // LYNX_WORKER_COPIES_COPY_CHOICE_H_
