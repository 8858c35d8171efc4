// PeerCopies: what the ranks of a generation know of one another's memory: which of them share a node, where copies of the
// states go, whether there is room for them, and how they are had from another node.
//
// Owned by the rank's compute thread.
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

namespace lynx {

class PeerCopies {
 public:
  // Collective. Null, on every rank, where the job wants no copies or a node keeps none; why not is reported by rank 0 where
  // that is news. `shard`: what this rank's states have as a shard. Errors are the communicator's.
  static absl::StatusOr<std::unique_ptr<PeerCopies>> Meet(const RankConfig& config, const CheckpointIdentity& run, Bytes shard,
                                                          const Seat& seat, ReportFile& reports);

  const CopyStore& store() const { return store_; }
  const std::vector<int32_t>& nodes() const { return nodes_; }  // by rank
  int32_t node() const { return nodes_[static_cast<size_t>(rank_)]; }
  int32_t node_count() const;
  std::vector<int32_t> RanksHere() const { return RanksOfNode(nodes_, node()); }
  bool leads() const { return RanksHere().front() == rank_; }  // the first rank of its node

  // Whether there is room for two copies on every node: else none are made, but those that are there can be read.
  bool makes() const { return makes_; }
  // The shard that this rank writes on its own node, and the rank that it sends it to; nothing, -1: none.
  const std::optional<std::string>& own_shard() const { return own_shard_; }
  int32_t partner() const { return partner_; }
  const std::vector<std::string>& taken() const { return taken_; }  // shards that it is sent

  CopyClient& Client(int32_t rank);
  // Of a rank of that node, another one for each of this node's.
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
  std::vector<int32_t> ports_;  // by rank
  std::vector<ShardKeepers> keepers_;
  bool makes_ = false;
  std::optional<std::string> own_shard_;
  int32_t partner_ = -1;
  std::vector<std::string> taken_;
  std::map<int32_t, std::unique_ptr<CopyClient>> clients_;  // by rank; those that were asked for
  std::unique_ptr<CopyServer> server_;
};

// What a node may use for a job's copies.
struct CopyRoom {
  Bytes limit;      // of all jobs' copies; 0: none
  Bytes others;     // that other jobs' copies use
  Bytes own;        // that the job's own use, which go when it has newer ones
  Bytes free;       // of the file system
  Bytes available;  // memory of the machine, of which copies take no more than half
};
// The most that the job's copies may have on the node.
Bytes MostCopies(const CopyRoom& room);
// What two copies take on each node. `shard_bytes`: by rank.
std::vector<Bytes> CopiesByNode(const std::vector<ShardKeepers>& keepers, const std::vector<int32_t>& nodes,
                                const std::vector<Bytes>& shard_bytes);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_STATES_PEER_COPIES_H_
