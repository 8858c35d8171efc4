// Writes event files, which hold the figures of a run in TensorBoard's format. An event file is a file of records (TFRecord).
// Each record has one message `Event` of tensorflow/core/util/event.proto. Only the fields that scalars need are written. The
// code encodes the part of the protobuf wire format that these fields need, because the worker links no protobuf.
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

// Computes Castagnoli's CRC (RFC 3720, B.4).
uint32_t Crc32c(std::string_view bytes);

// Returns a record that contains this message.
std::string EventRecord(std::string_view message);
// The following functions return messages. `wall`: the time since the Unix epoch.
std::string VersionEvent(Nanos wall);  // the first event of a file
// Says that a run begins or continues before this step. Records in other files about this step and later steps are then not
// valid any more.
std::string StartEvent(Nanos wall, int64_t step);
std::string ScalarsEvent(Nanos wall, int64_t step, const std::vector<Scalar>& scalars);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_RECORDS_EVENT_FILE_H_
