// Reads the records of an event file by the definition of the format, with a CRC that is computed bit by bit. Test support. It
// shares no code with the writer.
#ifndef LYNX_TESTS_WORKER_RANK_RECORDS_EVENT_RECORDS_H_
#define LYNX_TESTS_WORKER_RANK_RECORDS_EVENT_RECORDS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace lynx::worker {

inline uint32_t MaskedCrcByBits(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
  }
  crc ^= 0xffffffff;
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

// Returns false if the file does not consist of complete records with correct CRCs. `messages`: the records before the error.
inline bool ReadEventRecords(std::string_view file, std::vector<std::string>& messages) {
  messages.clear();
  const auto crc_at = [&](size_t at) {
    uint32_t crc = 0;
    std::memcpy(&crc, file.data() + at, sizeof(crc));  // little-endian, like this machine
    return crc;
  };
  while (!file.empty()) {
    uint64_t length = 0;
    if (file.size() < 16) return false;
    std::memcpy(&length, file.data(), sizeof(length));
    if (crc_at(8) != MaskedCrcByBits(file.substr(0, 8)) || length > file.size() - 16) return false;
    if (crc_at(12 + length) != MaskedCrcByBits(file.substr(12, length))) return false;
    messages.emplace_back(file.substr(12, length));
    file.remove_prefix(16 + length);
  }
  return true;
}

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_RANK_RECORDS_EVENT_RECORDS_H_
