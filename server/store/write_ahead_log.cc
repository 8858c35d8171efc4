// See write_ahead_log.h.
#include "server/store/write_ahead_log.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "server/store/sqlite.h"

namespace lynx::server {
namespace {

constexpr uint32_t kMagic = 0x377F0682;  // the lowest bit says that checksums use big-endian words
constexpr int64_t kHeaderBytes = 32, kFrameHeaderBytes = 24;

uint32_t BigEndian(const unsigned char* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | uint32_t{at[3]};
}

uint32_t LittleEndian(const unsigned char* at) {
  return uint32_t{at[3]} << 24 | uint32_t{at[2]} << 16 | uint32_t{at[1]} << 8 | uint32_t{at[0]};
}

// A running checksum over everything that was added so far.
struct Checksum {
  bool big_endian = false;
  uint32_t first = 0, second = 0;

  void Add(const unsigned char* bytes, int64_t count) {
    for (int64_t i = 0; i < count; i += 8) {
      first += (big_endian ? BigEndian(bytes + i) : LittleEndian(bytes + i)) + second;
      second += (big_endian ? BigEndian(bytes + i + 4) : LittleEndian(bytes + i + 4)) + first;
    }
  }
  bool Is(const unsigned char* at) const { return first == BigEndian(at) && second == BigEndian(at + 4); }
};

}  // namespace

absl::StatusOr<bool> LogIsDamaged(sqlite3* db) {
  sqlite3_file* file = nullptr;
  if (sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file) != SQLITE_OK || file->pMethods == nullptr)
    return false;
  sqlite3_int64 size = 0;
  int code = file->pMethods->xFileSize(file, &size);
  if (code != SQLITE_OK) return SqliteStatus(nullptr, code);
  const auto read = [&](std::vector<unsigned char>& to, int64_t offset) {
    const int result = file->pMethods->xRead(file, to.data(), static_cast<int>(to.size()), offset);
    return result == SQLITE_OK ? absl::OkStatus() : SqliteStatus(nullptr, result);
  };
  if (size < kHeaderBytes) return false;
  std::vector<unsigned char> header(kHeaderBytes);
  if (const absl::Status status = read(header, 0); !status.ok()) return status;
  Checksum checksum{.big_endian = (BigEndian(header.data()) & 1) != 0};
  checksum.Add(header.data(), 24);
  const uint32_t page = BigEndian(header.data() + 8);
  const bool sound =
      (BigEndian(header.data()) & ~uint32_t{1}) == kMagic && checksum.Is(header.data() + 24) && page >= 512 && page <= 65536;
  if (!sound) return false;
  std::vector<unsigned char> frame(kFrameHeaderBytes + page);
  bool taken = true;  // all frames up to the present one are valid
  int commits_behind = 0;
  for (int64_t at = kHeaderBytes; at + static_cast<int64_t>(frame.size()) <= size; at += static_cast<int64_t>(frame.size())) {
    if (const absl::Status status = read(frame, at); !status.ok()) return status;
    // Frames with another salt are from an earlier use of the file.
    const bool of_this_log = std::memcmp(frame.data() + 8, header.data() + 16, 8) == 0;
    if (taken) {
      checksum.Add(frame.data(), 8);
      checksum.Add(frame.data() + kFrameHeaderBytes, page);
      taken = of_this_log && checksum.Is(frame.data() + 16);
    }
    const bool commits = BigEndian(frame.data() + 4) != 0;
    if (!taken && of_this_log && commits && ++commits_behind == 2) return true;
  }
  return false;
}

bool EmptyLog(sqlite3* db) {
  return sqlite3_wal_checkpoint_v2(db, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr) == SQLITE_OK;
}

}  // namespace lynx::server
