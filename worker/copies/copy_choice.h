// Chooses the in-memory checkpoint from which a generation resumes: the newest usable one. Every rank has the lists of all
// nodes, so all ranks choose the same checkpoint. Pure.
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

namespace lynx::worker {

// A copy (copy_store.h) and the node that has it.
struct PlacedCopy {
  int32_t node = 0;  // the node's index in the list of nodes
  CopyKey key;
  auto operator<=>(const PlacedCopy&) const = default;
};

// All shards of one step, and for each shard a node that has it.
struct WholeCopies {
  CheckpointIdentity identity;
  std::vector<ShardRecord> files;  // in the order of ShardFiles
  std::vector<int32_t> nodes;      // for each file, the node that has it
};

// Returns the newest step for which the nodes together have every shard, or nullopt if there is no such step. A step of a newer
// generation counts as newer, even if its number is smaller. Ignores copies in `damaged`, and copies of generation `own` and of
// newer generations. If a newer generation resumed from a step, ignores the later steps of older generations, because these
// steps do not belong to the run any more. If `incomplete` is not null, it receives a sentence for each step that is newer than
// the result and lacks shards.
std::optional<WholeCopies> NewestWhole(const std::vector<NodeCopies>& nodes, Generation own,
                                       const std::set<PlacedCopy>& damaged, std::vector<std::string>* incomplete);

// Converts a node's list to text, and back. The text has all of `resumed` first. Then it has the copies, newest generations and
// steps first, as long as the text has at most `most_bytes`; the oldest copies are left out. Returns InvalidArgument if the
// text is not such a list.
std::string NodeCopiesText(const NodeCopies& copies, size_t most_bytes);
absl::StatusOr<NodeCopies> ParseNodeCopies(const std::string& text);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPY_CHOICE_H_
