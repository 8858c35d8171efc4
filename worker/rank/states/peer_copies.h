// PeerCopies is what the ranks of a generation know about each other's memory for in-memory checkpoints: which ranks share a
// node, where shards are sent, whether there is room for them, and how to read them from another node.
//
// The rank's compute thread owns it.
#ifndef LYNX_WORKER_RANK_STATES_PEER_COPIES_H_
#define LYNX_WORKER_RANK_STATES_PEER_COPIES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/contract/rank_config.h"
#include "worker/copies/copy_client.h"
#include "worker/copies/copy_map.h"
#include "worker/copies/copy_server.h"
#include "worker/copies/copy_store.h"
#include "worker/rank/peers/agreement.h"
#include "worker/rank/records/report_file.h"

namespace lynx::worker {

class PeerCopies {
 public:
  // Collective. Returns null on every rank if the job wants no in-memory checkpoints, or if a rank cannot take part, for
  // example because its node keeps none. In the second case rank 0 reports the reason, unless no node keeps any. `shard`: the
  // size of this rank's states as a shard. The only errors are those of the communicator.
  static absl::StatusOr<std::unique_ptr<PeerCopies>> Meet(const RankConfig& config, const CheckpointIdentity& run, Bytes shard,
                                                          const RankGroup& group, ReportFile& reports);

  const CopyStore& store() const { return store_; }
  const std::vector<int32_t>& nodes() const { return nodes_; }  // one for each rank
  int32_t node() const { return nodes_[static_cast<size_t>(rank_)]; }
  int32_t node_count() const;
  std::vector<int32_t> RanksHere() const { return RanksOfNode(nodes_, node()); }
  bool leads() const { return RanksHere().front() == rank_; }  // true for the first rank of its node

  // True if every node has room for two copies of its shards. If false, the ranks make no copies, but they can read existing
  // ones.
  bool makes() const { return makes_; }
  // own_shard: the shard that this rank writes on its own node (nullopt: none). partner: the rank to which it sends the shard
  // (-1: none).
  const std::optional<std::string>& own_shard() const { return own_shard_; }
  int32_t partner() const { return partner_; }
  const std::vector<std::string>& taken() const { return taken_; }  // shards that other ranks send to this rank

  CopyClient& Client(int32_t rank);
  // Returns a client for a rank of the given node. Spreads the ranks of this node over the ranks of that node.
  CopyClient& ClientOfNode(int32_t node);
  void StopServing() { server_->Stop(); }

 private:
  PeerCopies(const RankConfig& config, CopyStore store) : config_(config), rank_(config.rank), store_(std::move(store)) {}
  static absl::StatusOr<std::unique_ptr<PeerCopies>> Prepare(const RankConfig& config);
  void ShareOut();

  const RankConfig& config_;
  const int32_t rank_;
  const CopyStore store_;
  std::vector<int32_t> nodes_;
  std::vector<int32_t> ports_;  // one for each rank
  std::vector<ShardKeepers> keepers_;
  bool makes_ = false;
  std::optional<std::string> own_shard_;
  int32_t partner_ = -1;
  std::vector<std::string> taken_;
  std::map<int32_t, std::unique_ptr<CopyClient>> clients_;  // key: the rank; made when first requested
  std::unique_ptr<CopyServer> server_;
};

// Describes the memory that a node may use for a job's in-memory checkpoints.
struct CopyRoom {
  Bytes limit;      // the limit for all jobs together; 0: there is no limit
  Bytes others;     // the memory that other jobs use
  Bytes own;        // the memory of the job's own copies, which are removed when it has newer ones
  Bytes free;       // the free space of the file system
  Bytes available;  // the machine's available memory; in-memory checkpoints use at most half of it
};
// Returns the largest memory that the job's in-memory checkpoints may use on the node.
Bytes MostCopies(const CopyRoom& room);
// Returns for each node the size of two copies of its shards. `shard_bytes`: the size of each rank's shard.
std::vector<Bytes> CopiesByNode(const std::vector<ShardKeepers>& keepers, const std::vector<int32_t>& nodes,
                                const std::vector<Bytes>& shard_bytes);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_STATES_PEER_COPIES_H_
