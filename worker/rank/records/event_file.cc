#include "worker/rank/records/event_file.h"

#include <array>
#include <bit>

namespace lynx::worker {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's polynomial, with its bits in reverse order
constexpr uint32_t kMaskDelta = 0xa282ead8;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

// Masks a CRC that is stored next to its data. Otherwise the CRC of data that contains CRCs would detect fewer errors.
uint32_t Masked(uint32_t crc) { return (crc >> 15 | crc << 17) + kMaskDelta; }

template <class Integer>
void AppendFixed(Integer value, std::string& out) {
  for (size_t i = 0; i < sizeof(value); ++i) out.push_back(static_cast<char>(value >> 8 * i));
}

// The types in the wire format of protobuf. A tag is field << 3 | type.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void AppendTag(uint32_t field, WireType type, std::string& out) { AppendVarint(field << 3 | type, out); }

void AppendInteger(uint32_t field, int64_t value, std::string& out) {
  AppendTag(field, kVarint, out);
  AppendVarint(static_cast<uint64_t>(value), out);
}

void AppendBytes(uint32_t field, std::string_view bytes, std::string& out) {
  AppendTag(field, kBytes, out);
  AppendVarint(bytes.size(), out);
  out.append(bytes);
}

std::string EventOf(Nanos wall, int64_t step) {
  std::string event;
  AppendTag(1, kFixed64, event);
  AppendFixed(std::bit_cast<uint64_t>(Seconds(wall)), event);
  AppendInteger(2, step, event);
  return event;
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

std::string EventRecord(std::string_view message) {
  std::string record;
  AppendFixed(uint64_t{message.size()}, record);
  AppendFixed(Masked(Crc32c(record)), record);
  record.append(message);
  AppendFixed(Masked(Crc32c(message)), record);
  return record;
}

std::string VersionEvent(Nanos wall) {
  std::string event = EventOf(wall, 0);
  AppendBytes(3, "brain.Event:2", event);
  return event;
}

std::string StartEvent(Nanos wall, int64_t step) {
  std::string log;
  AppendInteger(1, 1, log);
  std::string event = EventOf(wall, step);
  AppendBytes(7, log, event);
  return event;
}

std::string ScalarsEvent(Nanos wall, int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    AppendBytes(1, scalar.tag, value);
    AppendTag(2, kFixed32, value);
    AppendFixed(std::bit_cast<uint32_t>(static_cast<float>(scalar.value)), value);
    AppendBytes(1, value, summary);
  }
  std::string event = EventOf(wall, step);
  AppendBytes(5, summary, event);
  return event;
}

}  // namespace lynx::worker
