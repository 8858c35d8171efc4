// DataFingerprint identifies a data set in a few bytes. With it, ranks check that they read the same data, and a resumed run
// checks that it reads the data that it began with. Data sets with the same content have the same fingerprint, even in
// different places. Values; thread-safe.
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
  Bytes bytes;         // the total size of the data set's files
  std::string sha256;  // the digest of sizes and samples: 64 lower-case hexadecimal digits; "" = it was not computed

  bool operator==(const DataFingerprint&) const = default;
};

// A file of up to kFingerprintBlocks * kFingerprintBlock bytes is hashed completely. From a larger file, kFingerprintBlocks
// blocks are hashed: the first at its beginning, the last at its end, and the others at even distances between them. So a few
// changed bytes in a huge file may not be noticed, but a different file is noticed.
inline constexpr Bytes kFingerprintBlock{64 * 1024};
inline constexpr int64_t kFingerprintBlocks = 1024;

// Returns the fingerprint of a data set that consists of these files, in this order.
DataFingerprint FingerprintOf(DataKind kind, std::initializer_list<std::span<const std::byte>> files);

// Returns a text for messages, such as "text of 120 bytes, SHA-256 ab12...".
std::string FingerprintText(const DataFingerprint& fingerprint);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DATA_DATA_FINGERPRINT_H_
