#include "worker/daemon/rank_folder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "common/check.h"
#include "common/status.h"
#include "node/file.h"

namespace lynx::worker {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Parses "JOB.gG.rR". The job's id may contain dots, so the name is parsed from its end.
bool ParseFolderName(const std::string& name, RankKey& key) {
  const size_t r = name.rfind(".r");
  if (r == std::string::npos || r == 0) return false;
  const size_t g = name.rfind(".g", r - 1);
  if (g == std::string::npos || g == 0) return false;
  key.job = JobId(name.substr(0, g));
  return absl::SimpleAtoi(name.substr(g + 2, r - g - 2), &key.generation.value) && key.generation.value > 0 &&
         absl::SimpleAtoi(name.substr(r + 2), &key.rank) && key.rank >= 0;
}

}  // namespace

std::string StoredRankText(const StoredRank& record) {
  return json{{"job", record.key.job.value},
              {"generation", record.key.generation.value},
              {"rank", record.key.rank},
              {"phase", EnumName(record.phase)},
              {"host", record.address.host},
              {"port", record.address.port},
              {"pid", record.process.pid},
              {"start_ticks", record.process.start_ticks},
              {"machine_boot", record.process.machine_boot},
              {"exit_code", record.exit_code},
              {"reason", record.reason},
              {"peer_lost", record.peer_lost},
              {"cause", EnumName(record.cause)}}  // `reason` may have bytes that are not UTF-8, so dump replaces them.
      .dump(2, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<StoredRank> ParseStoredRank(const std::string& text) {
  try {
    const json value = json::parse(text);
    StoredRank record;
    record.key = {JobId(value.at("job").get<std::string>()), Generation(value.at("generation").get<int64_t>()),
                  value.at("rank").get<int32_t>()};
    if (!ParseEnum(value.at("phase").get<std::string>(), record.phase)) {
      return absl::DataLossError(absl::StrCat("unknown phase ", value.at("phase").dump()));
    }
    record.address = {value.at("host").get<std::string>(), value.at("port").get<int32_t>()};
    record.process = {value.at("pid").get<pid_t>(), value.at("start_ticks").get<int64_t>(),
                      value.at("machine_boot").get<std::string>()};
    record.exit_code = value.at("exit_code").get<int32_t>();
    record.reason = value.at("reason").get<std::string>();
    record.peer_lost = value.at("peer_lost").get<bool>();
    ParseEnum(value.value("cause", ""), record.cause);  // missing in records that an earlier release wrote
    return record;
  } catch (const json::exception& error) {
    return absl::DataLossError(error.what());
  }
}

RankFolder FolderOf(const std::string& ranks_directory, const RankKey& key) {
  return {absl::StrCat(ranks_directory, "/", key.job.value, ".g", key.generation.value, ".r", key.rank)};
}

std::vector<RankKey> RanksOnDisk(const std::string& ranks_directory) {
  std::vector<RankKey> keys;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(ranks_directory, error)) {
    RankKey key;
    if (entry.is_directory(error) && ParseFolderName(entry.path().filename().string(), key)) keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

absl::Status StoreRecord(const RankFolder& folder, const StoredRank& record) {
  return WriteFileDurably(folder.state(), StoredRankText(record));
}

absl::StatusOr<StoredRank> LoadRecord(const RankFolder& folder, const RankKey& key) {
  LYNX_ASSIGN_OR_RETURN(const std::string text, ReadFile(folder.state(), 1 << 20));
  absl::StatusOr<StoredRank> record = ParseStoredRank(text);
  if (!record.ok()) return Annotate(record.status(), folder.state());
  if (record->key != key) {
    return absl::DataLossError(absl::StrCat(folder.state(), " is of ", RankKeyText(record->key)));
  }
  return record;
}

void PruneRankFolders(const std::string& ranks_directory, const std::set<RankKey>& kept, size_t newest) {
  std::vector<std::pair<fs::file_time_type, std::string>> folders;
  std::error_code error;
  for (const RankKey& key : RanksOnDisk(ranks_directory)) {
    if (kept.contains(key)) continue;
    const std::string path = FolderOf(ranks_directory, key).path;
    folders.push_back({fs::last_write_time(path, error), path});
  }
  std::sort(folders.rbegin(), folders.rend());
  for (size_t i = newest; i < folders.size(); ++i) fs::remove_all(folders[i].second, error);
}

}  // namespace lynx::worker
