// DataFingerprint: identifies a data set in a few bytes, so that ranks can tell whether they read the same data, and a resumed
// run can tell whether it reads the data that it began with. Data sets with the same content have the same fingerprint,
// wherever they are. Values; thread-safe.
#ifndef LYNX_WORKER_DATA_DATA_FINGERPRINT_H_
#define LYNX_WORKER_DATA_DATA_FINGERPRINT_H_

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

#include "common/units.h"
#include "planner/problem/job_spec.h"

namespace lynx::worker {

struct DataFingerprint {
  DataKind kind = DataKind::kText;
  Bytes bytes;         // of all its files
  std::string sha256;  // of sizes and sampled bytes: 64 lower-case hexadecimal digits; "" = it was not computed

  bool operator==(const DataFingerprint&) const = default;
};

// A file of up to kFingerprintBlocks * kFingerprintBlock is covered completely. Of a larger file kFingerprintBlocks blocks are
// covered: the first at its beginning, the last at its end, the others evenly between. A change in a few places of a huge file
// may go unnoticed; a different file does not.
inline constexpr Bytes kFingerprintBlock{64 * 1024};
inline constexpr int64_t kFingerprintBlocks = 1024;

// The fingerprint of a data set that consists of these files, in this order.
DataFingerprint FingerprintOf(DataKind kind, std::initializer_list<std::span<const std::byte>> files);

// "text of 120 bytes, SHA-256 ab12...": for messages.
std::string FingerprintText(const DataFingerprint& fingerprint);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DATA_DATA_FINGERPRINT_H_
