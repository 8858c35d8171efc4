// Describes the fields of what a rank is told, once for two formats: the server's message to the daemon
// (proto/convert_worker.cc), and the file that the daemon writes for the rank (rank_config.cc, JSON). Both are read and written
// by this description. A new field that the server sets needs a member in rank_config.h, a line here, and a field of the same
// name in RankAssignment of proto/lynx/v1/cluster.proto. A field that the daemon sets needs only the member and the line.
//
// planner/problem/job_spec_fields.h and rank_report_fields.h list the functions that a description calls. This file has one
// more:
//   Part(name, member)   a struct whose fields are in an object of their own in the file, but directly in the message
// A description has the limits of single fields in messages. The code that reads a message or a file checks everything else.
#ifndef LYNX_WORKER_CONTRACT_RANK_CONFIG_FIELDS_H_
#define LYNX_WORKER_CONTRACT_RANK_CONFIG_FIELDS_H_

#include "common/limits.h"
#include "planner/problem/field.h"
#include "planner/problem/job_spec_fields.h"
#include "worker/contract/rank_config.h"

namespace lynx {

namespace config_limits {
inline constexpr FieldLimits kGenerations{1, 1'000'000'000};
inline constexpr FieldLimits kBatches{1, 1 << 20};
inline constexpr FieldLimits kPorts{1, 65535};
inline constexpr FieldLimits kDevices{0, 63};
inline constexpr FieldLimits kCores{0, (1 << 16) - 1};
inline constexpr FieldLimits kCoreCounts{0, 1024};
inline constexpr FieldLimits kArenas{0, kMaxWireBytes};
inline constexpr FieldLimits kResumeSteps{-1, kMaxWireSteps};
}  // namespace config_limits

// Describes three members of a slice. The other members follow from the layout, if the layout is valid.
template <class Fields>
void Describe(Fields& fields, StageSlice& slice) {
  fields.Field(LYNX_FIELD(stage), slice.stage);
  fields.Field(LYNX_FIELD(first_layer), slice.first_layer);
  fields.Field(LYNX_FIELD(end_layer), slice.end_layer);
}

// In a message, the context has no model, layout and pipeline rank: the model is in the message's job specification, the layout
// is a field of the message, and the pipeline rank follows from the layout. The job specification and the layout are checked
// when they are converted.
template <class Fields>
void Describe(Fields& fields, StageContext& context) {
  if constexpr (Fields::kForRanks) {
    fields.Object("model", context.model);
    fields.Object("layout", context.layout);
    fields.Field("pipeline_rank", context.pipeline_rank);
  }
  fields.Number(LYNX_FIELD(micro_batch), context.micro_batch, config_limits::kBatches);
  fields.Number(LYNX_FIELD(microbatches), context.microbatches, config_limits::kBatches);
  fields.Objects(LYNX_FIELD(slices), context.slices);
}

template <class Fields>
void Describe(Fields& fields, RankDevice& device) {
  fields.Named(LYNX_FIELD(device_kind).InFiles("kind"), device.kind);
  fields.Number(LYNX_FIELD(device).InFiles("index"), device.index, config_limits::kDevices);
  fields.Field(LYNX_FIELD(device_uuid).InFiles("uuid"), device.uuid);
}

template <class Fields>
void Describe(Fields& fields, PeerAddress& peer) {
  fields.Field(LYNX_FIELD(host), peer.host);
  fields.Number(LYNX_FIELD(port), peer.port, config_limits::kPorts);
}

// Leaves out the program, which is a text in both formats.
template <class Fields>
void Describe(Fields& fields, RankConfig& config) {
  fields.Field(LYNX_FIELD(job_id).InFiles("job"), config.job.value);
  fields.Number(LYNX_FIELD(generation), config.generation.value, config_limits::kGenerations);
  fields.Field(LYNX_FIELD(rank), config.rank);
  if constexpr (Fields::kForRanks) fields.Object("spec", config.spec);
  fields.Part("context", config.context);
  fields.Number(LYNX_FIELD(arena_bytes), config.arena, config_limits::kArenas);
  fields.Field(LYNX_FIELD(plan_digest), config.plan_digest);
  fields.Objects(LYNX_FIELD(peers), config.peers);
  fields.Field(LYNX_FIELD(connection_secret), config.connection_secret);
  fields.Field(LYNX_FIELD(checkpoint_directory), config.checkpoint_directory);
  fields.Number(LYNX_FIELD(resume_step), config.resume_step, config_limits::kResumeSteps);
  fields.Field(LYNX_FIELD(check), config.check);
  fields.Named(LYNX_FIELD(encryption), config.encryption);
  fields.Part("device", config.device);
  fields.Numbers(LYNX_FIELD(cores), config.cores, config_limits::kCores, config_limits::kCoreCounts);
  if constexpr (Fields::kForRanks) {  // the daemon adds these fields
    fields.Field("copies_directory", config.copies_directory);
    fields.Field("copies_limit_bytes", config.copies_limit);
    fields.Field("last_checkpoint_patience_ns", config.last_checkpoint_patience);
    fields.Field("progress_limit_ns", config.progress_limit);
    fields.Field("threads", config.threads);
    fields.Field("pacing_bytes_per_second", config.pacing_bytes_per_second);
  }
}

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_RANK_CONFIG_FIELDS_H_
