#include "worker/checkpoint/tensor_reader.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "worker/checkpoint/shard.h"
#include "worker/checkpoint/shard_reader.h"

namespace lynx::worker {
namespace {

// Neighbouring runs (see Run) are read with one call if the gap between them has at most kGapBytes and the whole read at most
// kTogetherBytes. Reading a few KiB too much costs less than another call.
constexpr int64_t kGapBytes = int64_t{16} << 10;
constexpr int64_t kTogetherBytes = int64_t{1} << 20;

constexpr int64_t kElementBytes = sizeof(float);

// Splits "layers.0.qkv.weight.exp_avg" into "layers.0.qkv.weight" and ".exp_avg".
std::pair<std::string, std::string> SplitName(const std::string& name) {
  for (const std::string_view suffix : kMomentSuffixes) {
    if (name.ends_with(suffix)) return {name.substr(0, name.size() - suffix.size()), std::string(suffix)};
  }
  return {name, ""};
}

// Returns the numbers of all shards in the order in which they are searched.
std::vector<size_t> SearchOrder(size_t shards, const NearShards& near) {
  std::vector<size_t> order;
  std::vector<bool> found(shards);
  const auto add = [&](size_t shard) {
    if (!found[shard]) order.push_back(shard);
    found[shard] = true;
  };
  for (int64_t i = 0; i < near.count; ++i) {
    add(static_cast<size_t>(near.begin + (near.first + i) % near.count) % shards);
  }
  for (size_t shard = 0; shard < shards; ++shard) add(shard);
  return order;
}

// Returns FailedPrecondition unless the shard's metadata says that the shard belongs to this checkpoint.
absl::Status CheckOwner(const SafetensorsHeader& header, const CheckpointIdentity& identity) {
  const std::pair<const char*, std::string> expected[] = {
      {"format", kShardFormat}, {"job", identity.job.value}, {"step", absl::StrCat(identity.step)}};
  for (const auto& [key, value] : expected) {
    const auto at = header.metadata.find(key);
    const std::string there = at == header.metadata.end() ? "missing" : at->second;
    if (there == value) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(key, " is ", there, " in the file, ", value, " here: the shard is of another checkpoint"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TensorReader::Shard> TensorReader::ReadHeader(const ShardRecord& record) {
  LYNX_ASSIGN_OR_RETURN(ShardReader file, ShardReader::Open(files_, checkpoint_.path, record, ShardReading::kTrust));
  LYNX_ASSIGN_OR_RETURN(const SafetensorsHeader header, file.ReadHeader());
  const int64_t data_at = file.position();
  LYNX_RETURN_IF_ERROR(Annotate(CheckOwner(header, checkpoint_.identity), file.path()));
  Shard shard;
  for (const SafetensorsEntry& entry : header.tensors) {
    const auto [name, suffix] = SplitName(entry.name);
    const auto place_text = header.metadata.find("place." + name);
    if (place_text == header.metadata.end()) {
      return absl::DataLossError(absl::StrCat(file.path(), ": nothing says which part of ", name, " it has"));
    }
    absl::StatusOr<TensorPlace> place = ParsePlace(place_text->second);
    if (!place.ok()) return Annotate(place.status(), absl::StrCat(file.path(), ": ", name));
    if (place->elements() * kElementBytes != entry.end_bytes - entry.begin_bytes) {
      return absl::DataLossError(absl::StrCat(file.path(), ": ", entry.name, " has not the size of its pieces"));
    }
    const auto copy = header.metadata.find("copy." + name);
    const std::string& whole = copy == header.metadata.end() ? name : copy->second;
    shard[whole + suffix] = {*std::move(place), data_at + entry.begin_bytes, entry.shape.size() == 1};
  }
  return shard;
}

absl::StatusOr<const TensorReader::Shard*> TensorReader::HeaderOf(size_t shard) {
  if (!shards_[shard].has_value()) {
    LYNX_ASSIGN_OR_RETURN(shards_[shard], ReadHeader(checkpoint_.files[shard]));
  }
  return &*shards_[shard];
}

void TensorReader::CutPart(const Part& part, std::vector<Region>& wanted, std::vector<Run>& runs) {
  for (const ParameterPiece& source : part.place.pieces) {
    std::vector<Region> left;
    for (const Region& region : wanted) {
      const ParameterPiece& want = region.piece;
      const int64_t top = std::max(want.row, source.row);
      const int64_t bottom = std::min(want.row + want.rows, source.row + source.rows);
      const int64_t begin = std::max(want.column, source.column);
      const int64_t end = std::min(want.column + want.columns, source.column + source.columns);
      if (top >= bottom || begin >= end) {
        left.push_back(region);
        continue;
      }
      const auto keep = [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
        if (rows == 0 || columns == 0) return;
        const int64_t offset = want.offset + (row - want.row) * region.stride + column - want.column;
        left.push_back({{row, rows, column, columns, offset}, region.memory, region.stride});
      };
      keep(want.row, top - want.row, want.column, want.columns);
      keep(bottom, want.row + want.rows - bottom, want.column, want.columns);
      keep(top, bottom - top, want.column, begin - want.column);
      keep(top, bottom - top, end, want.column + want.columns - end);
      // If the rows are contiguous in the file and in memory, all of them are one run.
      const bool together = end - begin == source.columns && end - begin == region.stride;
      const int64_t rows_at_once = together ? bottom - top : 1;
      for (int64_t row = top; row < bottom; row += rows_at_once) {
        const int64_t from = source.offset + (row - source.row) * source.columns + begin - source.column;
        const int64_t to = want.offset + (row - want.row) * region.stride + begin - want.column;
        runs.push_back(
            {part.at_bytes + from * kElementBytes, rows_at_once * (end - begin) * kElementBytes, region.memory + to});
      }
    }
    wanted = std::move(left);
  }
}

std::vector<TensorReader::Run> TensorReader::Cut(const Shard& shard, const std::vector<WantedPart>& parts,
                                                 std::vector<std::vector<Region>>& wanted) {
  std::vector<Run> runs;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto at = shard.find(parts[i].name);
    if (at == shard.end() || wanted[i].empty()) continue;
    const TensorPlace& place = at->second.place;
    if (place.rows != parts[i].place.rows || place.columns != parts[i].place.columns) continue;
    CutPart(at->second, wanted[i], runs);
  }
  return runs;
}

absl::Status TensorReader::Plan(const std::vector<WantedPart>& parts, const NearShards& near, ReadShare verified,
                                std::vector<std::vector<Run>>& runs) {
  std::vector<std::vector<Region>> wanted(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const ParameterPiece& piece : parts[i].place.pieces) {
      if (piece.rows * piece.columns > 0) wanted[i].push_back({piece, parts[i].memory, piece.columns});
    }
  }
  const auto missing = [&] {
    return std::find_if(wanted.begin(), wanted.end(), [](const auto& regions) { return !regions.empty(); });
  };
  for (const size_t shard : SearchOrder(shards_.size(), near)) {
    if (missing() == wanted.end()) break;
    const absl::StatusOr<const Shard*> header = HeaderOf(shard);
    if (!header.ok()) {
      // If the file is not verified, its header may be damaged. So every error that the header causes is returned as DataLoss.
      return verified.Has(shard) ? header.status() : absl::DataLossError(header.status().message());
    }
    runs[shard] = Cut(**header, parts, wanted);
  }
  if (missing() == wanted.end()) return absl::OkStatus();
  const WantedPart& part = parts[static_cast<size_t>(missing() - wanted.begin())];
  return absl::DataLossError(
      absl::StrCat(checkpoint_.path, " does not have all of ", part.name, " (", part.place.rows, "x", part.place.columns, ")"));
}

absl::Status TensorReader::ReadRuns(size_t shard, std::vector<Run> runs, bool verify) {
  LYNX_ASSIGN_OR_RETURN(ShardReader file, ShardReader::Open(files_, checkpoint_.path, checkpoint_.files[shard],
                                                            verify ? ShardReading::kVerify : ShardReading::kTrust));
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.at_bytes < b.at_bytes; });
  std::vector<char> buffer;
  for (size_t i = 0; i < runs.size();) {
    const int64_t begin = runs[i].at_bytes;
    LYNX_RETURN_IF_ERROR(file.Skip(begin - file.position()));
    int64_t end = begin + runs[i].bytes;
    size_t next = i + 1;
    while (next < runs.size() && runs[next].at_bytes - end <= kGapBytes &&
           runs[next].at_bytes + runs[next].bytes - begin <= kTogetherBytes) {
      end = runs[next].at_bytes + runs[next].bytes;
      ++next;
    }
    if (next == i + 1) {
      LYNX_RETURN_IF_ERROR(file.Read({reinterpret_cast<char*>(runs[i].memory), static_cast<size_t>(runs[i].bytes)}));
    } else {
      buffer.resize(static_cast<size_t>(end - begin));
      LYNX_RETURN_IF_ERROR(file.Read(buffer));
      for (size_t j = i; j < next; ++j) {
        std::memcpy(runs[j].memory, &buffer[static_cast<size_t>(runs[j].at_bytes - begin)], static_cast<size_t>(runs[j].bytes));
      }
    }
    i = next;
  }
  return file.Finish();
}

absl::Status TensorReader::Read(const std::vector<WantedPart>& parts, const NearShards& near, ReadShare verified) {
  std::vector<std::vector<Run>> runs(shards_.size());
  const absl::Status planned = Plan(parts, near, verified, runs);
  // Reads the shards before it returns an error of Plan. A damaged header can cause any error, and ReadRuns reports the damage.
  for (size_t shard = 0; shard < runs.size(); ++shard) {
    if (runs[shard].empty() && !verified.Has(shard)) continue;
    LYNX_RETURN_IF_ERROR(ReadRuns(shard, std::move(runs[shard]), verified.Has(shard)));
  }
  return planned;
}

absl::StatusOr<std::map<std::string, TensorReader::WholeTensor>> TensorReader::WholeTensors() {
  std::map<std::string, WholeTensor> tensors;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    LYNX_ASSIGN_OR_RETURN(const Shard* header, HeaderOf(shard));
    for (const auto& [name, part] : *header) {
      const int32_t shards = tensors[name].shards + 1;
      tensors[name] = {part.place.rows, part.place.columns, part.vector, shards};
    }
  }
  return tensors;
}

}  // namespace lynx::worker
