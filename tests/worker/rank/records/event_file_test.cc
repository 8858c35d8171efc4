// Reads event files with the protobuf library, and with a CRC that is computed from its definition.
#include "worker/rank/records/event_file.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "tests/worker/rank/records/event_records.h"

namespace lynx::worker {
namespace {

// The parts of tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto that the writer uses.
constexpr char kEventProto[] = R"(
name: "event.proto" syntax: "proto3"
message_type {
  name: "Value"
  field { name: "tag" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "simple_value" number: 2 type: TYPE_FLOAT label: LABEL_OPTIONAL }
}
message_type {
  name: "Summary"
  field { name: "value" number: 1 type: TYPE_MESSAGE type_name: "Value" label: LABEL_REPEATED }
}
message_type {
  name: "SessionLog"
  field { name: "status" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
}
message_type {
  name: "Event"
  field { name: "wall_time" number: 1 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "step" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "file_version" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "summary" number: 5 type: TYPE_MESSAGE type_name: "Summary" label: LABEL_OPTIONAL }
  field { name: "session_log" number: 7 type: TYPE_MESSAGE type_name: "SessionLog" label: LABEL_OPTIONAL }
})";

// Decodes the event by the definition above, and returns it as text.
std::string TextOf(const std::string& bytes) {
  google::protobuf::FileDescriptorProto file;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kEventProto, &file));
  google::protobuf::DescriptorPool pool;
  const google::protobuf::FileDescriptor* const built = pool.BuildFile(file);
  google::protobuf::DynamicMessageFactory factory(&pool);
  const std::unique_ptr<google::protobuf::Message> event(factory.GetPrototype(built->FindMessageTypeByName("Event"))->New());
  EXPECT_TRUE(event->ParseFromString(bytes));
  return event->ShortDebugString();
}

constexpr Nanos kWall{1'500'000'000'250'000'000};

TEST(EventFile, CrcIsCastagnolis) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);            // the check value that catalogues of CRCs list
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(EventFile, MessagesAreWhatProtobufReads) {
  EXPECT_EQ(TextOf(VersionEvent(kWall)), R"(wall_time: 1500000000.25 file_version: "brain.Event:2")");
  EXPECT_EQ(TextOf(StartEvent(kWall, 7)), "wall_time: 1500000000.25 step: 7 session_log { status: 1 }");
  EXPECT_EQ(TextOf(ScalarsEvent(kWall, int64_t{1} << 40, {{"loss", 2.5}, {"lr", -1e-3}})),
            "wall_time: 1500000000.25 step: 1099511627776 summary { value { tag: \"loss\" simple_value: 2.5 } "
            "value { tag: \"lr\" simple_value: -0.001 } }");
  EXPECT_EQ(TextOf(ScalarsEvent(kWall, 1, {{std::string(300, 't'), std::nan("")}})),
            "wall_time: 1500000000.25 step: 1 summary { value { tag: \"" + std::string(300, 't') + "\" simple_value: nan } }");
}

TEST(EventFile, RecordsAreReadBackAndTheirDamageIsNoticed) {
  const std::vector<std::string> messages = {"", "a", std::string(1000, 'x')};
  std::string file;
  for (const std::string& message : messages) file += EventRecord(message);
  std::vector<std::string> read;
  ASSERT_TRUE(ReadEventRecords(file, read));
  EXPECT_EQ(read, messages);
  for (const size_t at : {size_t{0}, size_t{9}, size_t{13}, file.size() - 1}) {
    std::string damaged = file;
    damaged[at] ^= 4;
    EXPECT_FALSE(ReadEventRecords(damaged, read)) << at;
  }
}

}  // namespace
}  // namespace lynx::worker
