// Copy choice: which copies a generation may go on from, newest first. Every rank makes it from the same lists, so all come to
// the same. Pure.
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

// A copy on a node.
struct PlacedCopy {
  int32_t node = 0;  // number in the list
  CopyKey key;
  auto operator<=>(const PlacedCopy&) const = default;
};

// All shards after one step, each on a node that has it.
struct WholeCopies {
  CheckpointIdentity identity;
  std::vector<ShardRecord> files;  // by ShardFiles
  std::vector<int32_t> nodes;      // by file
};

// The newest step of which the nodes together have every shard; nothing where there is none. Not counted: copies in `damaged`,
// those of generation `own` or a newer one, and those of a later step than the one from which a newer generation than theirs
// went on: what an older generation did after that is not part of the run. `incomplete`, unless null: steps, newer than the
// one returned, of which shards are missing, in a sentence each.
std::optional<WholeCopies> NewestWhole(const std::vector<NodeCopies>& nodes, Generation own,
                                       const std::set<PlacedCopy>& damaged, std::vector<std::string>* incomplete);

// A node's list as text, and back: at most `most_bytes`, the newest generation and steps first. InvalidArgument when it is not
// such a text.
std::string NodeCopiesText(const NodeCopies& copies, size_t most_bytes);
absl::StatusOr<NodeCopies> ParseNodeCopies(const std::string& text);

}  // namespace lynx

#endif  // LYNX_WORKER_COPIES_COPY_CHOICE_H_
