#include "worker/rank/states/peer_copies.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/digest.h"
#include "common/meminfo.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

constexpr size_t kDigestDigits = 64;
// This number of bytes is added to the size of the states, to leave room for headers and records.
constexpr Bytes kHeaders = kKiB * 512;
constexpr int64_t kMaxRoom = int64_t{1} << 60;

// The facts that a rank sends to the other ranks, as plain bytes.
struct Card {
  int32_t port = 0;                             // the port of the rank's CopyServer
  int32_t spare = 0;                            // padding, always 0
  int64_t room_bytes = 0;                       // the largest memory that the job's copies may use on the rank's node
  int64_t shard_bytes = 0;                      // the size of the rank's states as a shard
  std::array<char, kDigestDigits> directory{};  // the digest of the path of the node's copies directory
};

CopyRoom RoomFor(const RankConfig& config, const CopyStore& store) {
  CopyRoom room{.limit = config.copies_limit, .own = store.Used(), .available = AvailableMemory()};
  for (const JobId& job : JobsWithCopies(config.copies_directory)) {
    if (job != config.job) room.others += CopyStore(config.copies_directory, job).Used();
  }
  struct statvfs file_system {};
  if (statvfs(config.copies_directory.c_str(), &file_system) == 0) {
    room.free = Bytes(static_cast<int64_t>(file_system.f_bavail * file_system.f_frsize));
  }
  return room;
}

void Tell(const RankConfig& config, const std::string& reason, ReportFile& reports) {
  if (config.rank != 0) return;
  std::fprintf(stderr, "no copies in memory: %s\n", reason.c_str());
  reports.Append(CopiesNotice{.reason = "none are made: " + reason});
}

// Returns "" if there is room on every node. Otherwise names a node with too little room, what it needs and what it has.
std::string MissingRoom(const std::vector<Card>& cards, const std::vector<int32_t>& nodes,
                        const std::vector<ShardKeepers>& keepers) {
  std::vector<Bytes> shard_bytes;
  for (const Card& card : cards) shard_bytes.push_back(Bytes(card.shard_bytes));
  const std::vector<Bytes> needed = CopiesByNode(keepers, nodes, shard_bytes);
  for (size_t node = 0; node < needed.size(); ++node) {
    const auto leader = static_cast<size_t>(RanksOfNode(nodes, static_cast<int32_t>(node)).front());
    const Bytes room(cards[leader].room_bytes);
    if (needed[node] <= room) continue;
    return absl::StrCat("two of them take ", FormatBytes(needed[node]), " on the node of rank ", leader,
                        ", where there is room for ", FormatBytes(room),
                        "; give its worker daemon more with --copies-limit-mib or another --copies-dir, or use "
                        "checkpoint.copyEverySteps: 0");
  }
  return "";
}

}  // namespace

Bytes MostCopies(const CopyRoom& room) {
  Bytes most = std::min(room.free, Bytes(room.available.value / 2)) + room.own;
  if (room.limit > Bytes(0)) most = std::min(most, room.limit - room.others);
  return std::clamp(most, Bytes(0), Bytes(kMaxRoom));
}

std::vector<Bytes> CopiesByNode(const std::vector<ShardKeepers>& keepers, const std::vector<int32_t>& nodes,
                                const std::vector<Bytes>& shard_bytes) {
  std::vector<Bytes> bytes(static_cast<size_t>(*std::max_element(nodes.begin(), nodes.end())) + 1);
  for (const ShardKeepers& shard : keepers) {
    const Bytes twice = (shard_bytes[static_cast<size_t>(shard.first)] + kHeaders) * 2;
    for (const int32_t rank : {shard.first, shard.second}) {
      if (rank >= 0) bytes[static_cast<size_t>(nodes[static_cast<size_t>(rank)])] += twice;
    }
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<PeerCopies>> PeerCopies::Prepare(const RankConfig& config) {
  if (config.copies_directory.empty()) return absl::UnavailableError("its node keeps none");
  std::unique_ptr<PeerCopies> copies(new PeerCopies(config, CopyStore(config.copies_directory, config.job)));
  LYNX_RETURN_IF_ERROR(copies->store_.Create());
  return copies;
}

absl::StatusOr<std::unique_ptr<PeerCopies>> PeerCopies::Meet(const RankConfig& config, const CheckpointIdentity& run,
                                                             Bytes shard, const RankGroup& group, ReportFile& reports) {
  if (config.spec.checkpoint.copy_every_steps == 0) return nullptr;
  absl::StatusOr<std::unique_ptr<PeerCopies>> prepared = Prepare(config);
  if (prepared.ok()) {
    CopyServerOptions options{.host = config.peers[static_cast<size_t>(config.rank)].host,
                              .run = run,
                              .secret = config.connection_secret,
                              .rank = config.rank,
                              .encrypt = config.encryption != RankEncryption::kOff,
                              .most_connections = 2 * group.ranks + 8,
                              .pacing_bytes_per_second = config.pacing_bytes_per_second,
                              .tell = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }};
    auto server = CopyServer::Listen(std::move(options), (*prepared)->store_);
    if (server.ok())
      (*prepared)->server_ = *std::move(server);
    else
      prepared = server.status();
  }
  LYNX_ASSIGN_OR_RETURN(const std::vector<absl::Status> statuses, GatherStatuses(prepared.status(), group));
  if (const absl::Status failure = FirstFailure(statuses); !failure.ok()) {
    const bool none_anywhere = std::all_of(statuses.begin(), statuses.end(), absl::IsUnavailable);
    if (!none_anywhere) Tell(config, std::string(failure.message()), reports);
    return nullptr;
  }
  std::unique_ptr<PeerCopies> copies = *std::move(prepared);
  Card own{.port = copies->server_->port(),
           .room_bytes = MostCopies(RoomFor(config, copies->store_)).value,
           .shard_bytes = shard.value};
  std::memcpy(own.directory.data(), Sha256Hex(config.copies_directory).data(), kDigestDigits);
  LYNX_ASSIGN_OR_RETURN(const std::vector<Card> cards, GatherValues(own, group));

  std::vector<NodePlace> places;
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    places.push_back({config.peers[rank].host, std::string(cards[rank].directory.data(), kDigestDigits)});
    copies->ports_.push_back(cards[rank].port);
  }
  copies->nodes_ = NodeNumbers(places);
  copies->keepers_ = KeepersOf(config.context.layout, copies->nodes_);
  copies->ShareOut();
  const std::string missing = MissingRoom(cards, copies->nodes_, copies->keepers_);
  if (!missing.empty()) Tell(config, missing, reports);
  copies->makes_ = missing.empty();
  copies->server_->Serve(copies->makes_ ? copies->taken_ : std::vector<std::string>());
  return copies;
}

void PeerCopies::ShareOut() {
  for (const ShardKeepers& shard : keepers_) {
    if (shard.first == rank_ || (shard.second == rank_ && !shard.sent)) own_shard_ = shard.file;
    if (shard.first == rank_ && shard.sent) partner_ = shard.second;
    if (shard.second == rank_ && shard.sent) taken_.push_back(shard.file);
  }
}

int32_t PeerCopies::node_count() const { return *std::max_element(nodes_.begin(), nodes_.end()) + 1; }

CopyClient& PeerCopies::Client(int32_t rank) {
  std::unique_ptr<CopyClient>& client = clients_[rank];
  if (client == nullptr) {
    const auto at = static_cast<size_t>(rank);
    client = std::make_unique<CopyClient>(
        PeerAddress{config_.peers[at].host, ports_[at]},
        CopyEnds{config_.connection_secret, config_.generation, rank_, rank, config_.encryption != RankEncryption::kOff},
        config_.pacing_bytes_per_second);
  }
  return *client;
}

CopyClient& PeerCopies::ClientOfNode(int32_t node) {
  const std::vector<int32_t> ranks = RanksOfNode(nodes_, node);
  return Client(ranks[static_cast<size_t>(rank_) % ranks.size()]);
}

}  // namespace lynx::worker
