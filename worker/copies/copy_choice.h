// Chooses the in-memory checkpoint from which a generation resumes: the newest that is usable. Every rank has the same lists,
// so all ranks choose the same checkpoint. Pure.
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

// The newest step for which the nodes together have every shard; nullopt if there is none. Ignores copies in `damaged`, and
// copies of generation `own` or a newer one. Also ignores steps that do not belong to the run any more: if a newer generation
// resumed from an earlier step, later steps of the older generation do not count. `incomplete`, unless null, receives a
// sentence for each step that is newer than the result and lacks shards.
std::optional<WholeCopies> NewestWhole(const std::vector<NodeCopies>& nodes, Generation own,
                                       const std::set<PlacedCopy>& damaged, std::vector<std::string>* incomplete);

// Converts a node's list to text, and back. The text has at most `most_bytes`; the newest generation and steps come first.
// InvalidArgument if the text is not such a list.
std::string NodeCopiesText(const NodeCopies& copies, size_t most_bytes);
absl::StatusOr<NodeCopies> ParseNodeCopies(const std::string& text);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPY_CHOICE_H_
