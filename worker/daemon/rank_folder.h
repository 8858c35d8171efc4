// RankFolder is the folder in which the daemon stores files for one rank that it started,
// DATA_DIR/ranks/JOB.gGENERATION.rRANK/:
//
//   config.json    RankConfig, what the rank process is told
//   report.jsonl   its reports, one RankReport per line
//   stderr.log     its standard error
//   progress       how far it has come, if it has no peers (worker/contract/progress_file.h)
//   yield          while this file exists, the rank is asked to give way when a step is done
//   state.json     StoredRank, by which a restarted daemon recognises the process and its end
//
// The state is written durably four times: before the process starts (kStarting), after it has started (kRunning), when it ends
// (kExited), and when the server releases the rank (kReleased). So a daemon that is killed at any point loses no rank and no
// reports, and starts no rank twice. Not thread-safe; the daemon holds the data directory's lock.
#ifndef LYNX_WORKER_DAEMON_RANK_FOLDER_H_
#define LYNX_WORKER_DAEMON_RANK_FOLDER_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/enum_names.h"
#include "common/fault_cause.h"
#include "common/rank_key.h"
#include "node/process.h"
#include "worker/collectives/communicator.h"

namespace lynx::worker {

enum class RecordedPhase : uint8_t { kStarting, kRunning, kExited, kReleased };
}  // namespace lynx::worker

template <>
inline constexpr auto lynx::kEnumNames<lynx::worker::RecordedPhase> = lynx::EnumTable("starting", "running", "exited",
                                                                                      "released");

namespace lynx::worker {

struct StoredRank {
  RankKey key;
  RecordedPhase phase = RecordedPhase::kStarting;
  PeerAddress address;
  ProcessIdentity process;  // set from kRunning on; pid 0: the rank never ran
  // The following fields are set in the phases kExited and kReleased.
  int32_t exit_code = 0;
  std::string reason;
  bool peer_lost = false;
  FaultCause cause = FaultCause::kUnknown;
  bool operator==(const StoredRank&) const = default;
};

std::string StoredRankText(const StoredRank& record);
absl::StatusOr<StoredRank> ParseStoredRank(const std::string& text);

struct RankFolder {
  std::string path;
  std::string config() const { return path + "/config.json"; }
  std::string report() const { return path + "/report.jsonl"; }
  std::string log() const { return path + "/stderr.log"; }
  std::string yield() const { return path + "/yield"; }
  std::string progress() const { return path + "/progress"; }
  std::string state() const { return path + "/state.json"; }
};

// `ranks_directory` is DATA_DIR/ranks.
RankFolder FolderOf(const std::string& ranks_directory, const RankKey& key);
// Returns every rank that has a folder in the directory. Ignores other names.
std::vector<RankKey> RanksOnDisk(const std::string& ranks_directory);

absl::Status StoreRecord(const RankFolder& folder, const StoredRank& record);
// Returns NotFound if there is no record, and DataLoss if the record is damaged or belongs to another rank.
absl::StatusOr<StoredRank> LoadRecord(const RankFolder& folder, const RankKey& key);

// Removes the folders of ranks that are not in `kept`, but keeps the `newest` most recent folders of them.
void PruneRankFolders(const std::string& ranks_directory, const std::set<RankKey>& kept, size_t newest);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_RANK_FOLDER_H_
