// Converts job specs and their enums. See convert.h.
#include "proto/convert.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/problem/job_spec_fields.h"
#include "planner/problem/layout_schedule.h"
#include "proto/bounds.h"
#include "proto/field_visitors.h"

namespace lynx {
namespace {

template <class Message, class T>
Message Written(T value) {
  Message message;
  MessageWriter<Message> writer(message);
  Describe(writer, value);
  return message;
}

template <class Message, class T>
absl::Status Read(const Message& message, const std::string& path, T& value) {
  const auto place = [&] { return path; };
  MessageReader<Message> reader(message, place, PathNames::kJobFile);
  Describe(reader, value);
  return reader.status();
}

template <class Enum>
absl::StatusOr<Enum> EnumOf(int number, const std::string& path) {
  Enum value;
  return EnumOfNumber(number, value) ? absl::StatusOr<Enum>(value) : BadNumber<Enum>(path, number);
}

}  // namespace

v1::DeviceKind ToProto(DeviceKind kind) { return static_cast<v1::DeviceKind>(NumberOf(kind)); }

absl::StatusOr<DeviceKind> FromProto(v1::DeviceKind kind, const std::string& path) { return EnumOf<DeviceKind>(kind, path); }

v1::RecomputeMode ToProto(RecomputeMode mode) { return static_cast<v1::RecomputeMode>(NumberOf(mode)); }

absl::StatusOr<RecomputeMode> FromProto(v1::RecomputeMode mode, const std::string& path) {
  return EnumOf<RecomputeMode>(mode, path);
}

v1::ModelSpec ToProto(const ModelSpec& model) { return Written<v1::ModelSpec>(model); }

absl::StatusOr<ModelSpec> ModelFromProto(const v1::ModelSpec& message, const std::string& path) {
  ModelSpec model;
  LYNX_RETURN_IF_ERROR(Read(message, path, model));
  return model;
}

v1::JobSpec ToProto(const JobSpec& spec) { return Written<v1::JobSpec>(spec); }

absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& message) {
  JobSpec spec;
  LYNX_RETURN_IF_ERROR(Read(message, "", spec));
  Normalize(spec);
  LYNX_RETURN_IF_ERROR(ValidateJobSpec(spec));
  LYNX_RETURN_IF_ERROR(
      CheckRange("resources.activationMemoryPerRank", spec.resources.activation_memory_per_rank.value, 0, kMaxWireBytes));
  LYNX_RETURN_IF_ERROR(CheckAbsolutePath("data.path", spec.data.path));
  if (!spec.data.validation_path.empty()) {
    LYNX_RETURN_IF_ERROR(CheckAbsolutePath("data.validation_path", spec.data.validation_path));
  }
  if (!spec.checkpoint.directory.empty()) {
    LYNX_RETURN_IF_ERROR(CheckAbsolutePath("checkpoint.directory", spec.checkpoint.directory));
  }
  if (!spec.checkpoint.from.empty()) {
    LYNX_RETURN_IF_ERROR(CheckAbsolutePath("checkpoint.from", spec.checkpoint.from));
  }
  return spec;
}

v1::ParallelLayout ToProto(const ParallelLayout& layout) {
  auto message = Written<v1::ParallelLayout>(layout);
  message.set_schedule_text(CustomScheduleText(layout));
  return message;
}

absl::StatusOr<ParallelLayout> FromProto(const v1::ParallelLayout& message, const std::string& path) {
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "tp"), message.tp(), 1, kMaxWireRanks));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "pp"), message.pp(), 1, kMaxWireRanks));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "dp"), message.dp(), 1, kMaxWireRanks));
  const int32_t cp = std::max(1, message.cp());
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "cp"), message.cp(), 0, kMaxWireRanks));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "virtual_stages"), message.virtual_stages(), 0, kMaxPipelineChunks));
  // Each factor is at most 2^16, so the product of three does not overflow.
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "ep"), message.ep(), 0, kMaxWireRanks));
  const int64_t replica = int64_t{message.tp()} * message.pp() * message.dp();
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "tp * pp * dp"), replica, 1, kMaxWireRanks));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "tp * cp * pp * dp"), replica * cp, 1, kMaxWireRanks));
  const int64_t ranks_of_stage = int64_t{message.tp()} * message.dp() * cp;
  if (message.ep() > 1 && ranks_of_stage % message.ep() != 0) {
    return BadField(FieldPath(path, "ep"), absl::StrCat(message.ep()),
                    absl::StrCat("must divide tp * cp * dp, which is ", ranks_of_stage));
  }
  ParallelLayout layout;
  LYNX_RETURN_IF_ERROR(Read(message, path, layout));
  LYNX_RETURN_IF_ERROR(Annotate(SetCustomSchedule(message.schedule_text(), layout), FieldPath(path, "schedule_text")));
  return layout;
}

}  // namespace lynx
