// Event files: figures of a run in TensorBoard's format: a file of records (TFRecord), each of which has one message `Event` of
// tensorflow/core/util/event.proto. It writes only the fields that scalars need, and encodes the small part of the protobuf
// wire format that they use, because the worker links no protobuf.
//
//   record   length (8, little-endian)  masked CRC-32C of these 8 (4)  message  masked CRC-32C of the message (4)
//   Event    wall_time 1 double, step 2 int64, and one of file_version 3 string, summary 5, session_log 7
//   Summary  value 1, repeated: tag 1 string, simple_value 2 float      SessionLog  status 1 enum (START 1)
//
// Pure; thread-safe.
#ifndef LYNX_WORKER_RANK_RECORDS_EVENT_FILE_H_
#define LYNX_WORKER_RANK_RECORDS_EVENT_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/units.h"

namespace lynx::worker {

struct Scalar {
  std::string_view tag;
  double value = 0;  // stored as a float
};

// Castagnoli's CRC (RFC 3720, B.4).
uint32_t Crc32c(std::string_view bytes);

// A record that contains this message.
std::string EventRecord(std::string_view message);
// The messages. `wall`: time since the Unix epoch.
std::string VersionEvent(Nanos wall);  // the first event of a file
// Says that a run begins or continues before this step: records of other files about this step and later steps no longer count.
std::string StartEvent(Nanos wall, int64_t step);
std::string ScalarsEvent(Nanos wall, int64_t step, const std::vector<Scalar>& scalars);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_RECORDS_EVENT_FILE_H_
