// Targets for input that comes from other machines, processes and disks to the server, the daemons and the ranks.
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "cli/output/output.h"
#include "common/check.h"
#include "planner/plan/plan.h"
#include "planner/program/validate.h"
#include "planner/search/make_plan.h"
#include "proto/convert.h"
#include "proto/convert_report.h"
#include "proto/convert_worker.h"
#include "server/wire/messages.h"
#include "tests/fuzz/targets.h"
#include "worker/checkpoint/checkpoint_index.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/daemon/rank_folder.h"
#include "worker/data/dataset.h"
#include "worker/rank/records/run_log.h"

namespace lynx {
namespace {

using Code = absl::StatusCode;

void CheckRefused(const absl::Status& status, const std::set<Code>& codes = {Code::kInvalidArgument}) {
  if (codes.count(status.code()) == 0) std::fprintf(stderr, "%s\n", std::string(status.ToString()).c_str());
  LYNX_CHECK(codes.count(status.code()) != 0);
  LYNX_CHECK(!status.message().empty() && status.message().size() < 100'000);
}

// Parses `text` into `message`. Returns false if protobuf refuses the text.
template <class Message>
bool FromJson(const std::string& text, Message& message) {
  return google::protobuf::util::JsonStringToMessage(text, &message).ok();
}

Plan SmallPlan() {
  JobSpec spec;
  spec.name = "small";
  spec.model = {.layers = 2, .hidden = 32, .heads = 2, .seq = 16};
  spec.data.path = "/text";
  spec.train.steps = 10;
  spec.train.global_batch = 4;
  spec.resources.max_ranks = 2;
  Normalize(spec);
  return std::get<Plan>(MakePlan({.spec = spec, .cluster = UniformCluster(1, 2, StatedCpuProfile())}).value());
}

void RunAgentReport(const std::string& input) {
  v1::AgentReport message;
  if (!FromJson(input, message)) return;
  const absl::StatusOr<server::AgentState> state = server::Decode(message);
  if (!state.ok()) return CheckRefused(state.status());
  LYNX_CHECK(state->devices.size() <= 64 && !state->node.empty());
  server::Encode(server::NodeView{.name = state->node, .devices = state->devices, .conditions = state->conditions});
}

void RunWorkerReport(const std::string& input) {
  v1::WorkerReport message;
  if (!FromJson(input, message)) return;
  const absl::StatusOr<server::WorkerState> state = server::Decode(message);
  if (!state.ok()) CheckRefused(state.status());
}

void RunSubmission(const std::string& input) {
  v1::SubmitJobRequest message;
  if (!FromJson(input, message)) return;
  const absl::StatusOr<JobSpec> spec = FromProto(message.spec());
  if (!spec.ok()) return CheckRefused(spec.status());
  LYNX_CHECK(ValidateJobSpec(*spec).ok());
  const absl::StatusOr<JobSpec> again = FromProto(ToProto(*spec));
  LYNX_CHECK(again.ok() && *again == *spec);
}

void RunPlanMessage(const std::string& input) {
  v1::Plan message;
  if (!FromJson(input, message)) return;
  const absl::StatusOr<Plan> plan = FromProto(message);
  if (!plan.ok()) return CheckRefused(plan.status());
  const absl::StatusOr<Plan> again = FromProto(ToProto(*plan));
  LYNX_CHECK(again.ok() && PlanText(*again) == PlanText(*plan));
}

void RunAssignment(const std::string& input) {
  v1::RankAssignment message;
  if (!FromJson(input, message)) return;
  const absl::StatusOr<RankConfig> config = RankConfigFromProto(message);
  if (!config.ok()) return CheckRefused(config.status());
  const absl::StatusOr<RankConfig> again = ParseRankConfig(RankConfigText(*config));
  if (!again.ok()) std::fprintf(stderr, "%s\n", std::string(again.status().message()).c_str());
  LYNX_CHECK(again.ok());
}

void RunProgram(const std::string& input) {
  const absl::StatusOr<Program> program = ParseProgram(input);
  if (!program.ok()) return CheckRefused(program.status());
  const absl::StatusOr<Program> again = ParseProgram(ProgramText(*program));
  LYNX_CHECK(again.ok() && *again == *program);
  static const Plan& plan = *new Plan(SmallPlan());
  const absl::Status valid = ValidateProgram(*program, plan.ContextOf(0));
  if (!valid.ok()) CheckRefused(valid, {Code::kFailedPrecondition});
}

// Returns a folder of this process for files that targets write again and again.
const std::string& Folder() {
  static const auto& folder = *new std::string([] {
    std::string pattern = (std::filesystem::temp_directory_path() / "lynx_fuzz_XXXXXX").string();
    LYNX_CHECK(::mkdtemp(pattern.data()) != nullptr);
    std::atexit([] { std::filesystem::remove_all(Folder()); });
    return pattern;
  }());
  return folder;
}

void Write(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

void RunDataIndex(const std::string& input) {
  constexpr int kSeq = 4, kVocab = 300;
  const std::string prefix = Folder() + "/corpus";
  Write(prefix + ".idx", input);
  static const bool written = [&] {
    std::string tokens;
    for (int i = 0; i < 64; ++i) tokens += std::string(1, static_cast<char>(i)) + '\0';
    Write(prefix + ".bin", tokens);
    return true;
  }();
  LYNX_CHECK(written);
  const auto data = worker::OpenDataset({DataKind::kMegatron, prefix}, kSeq, kVocab, 1);
  if (!data.ok()) return CheckRefused(data.status());
  LYNX_CHECK((*data)->SamplesPerEpoch() >= 1);
  int32_t inputs[kSeq], targets[kSeq];
  for (int64_t sample = 0; sample < 3 * (*data)->SamplesPerEpoch() && sample < 100; ++sample) {
    const absl::Status read = (*data)->Read(sample, inputs, targets);
    if (!read.ok()) CheckRefused(read, {Code::kDataLoss});
  }
}

// Returns the fields of Megatron's index, little-endian (see worker/data/megatron_dataset.cc).
std::string DataIndex(uint8_t type, const std::vector<int32_t>& sizes, int width) {
  std::string bytes("MMIDIDX\0\0", 9);
  const auto put = [&](uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
  };
  put(1, 8);
  put(type, 1);
  put(sizes.size(), 8);
  put(sizes.size() + 1, 8);
  for (const int32_t size : sizes) put(static_cast<uint32_t>(size), 4);
  int64_t at = 0;
  for (const int32_t size : sizes) {
    put(static_cast<uint64_t>(at), 8);
    at += int64_t{size} * width;
  }
  for (size_t i = 0; i <= sizes.size(); ++i) put(i, 8);
  return bytes;
}

void RunSafetensors(const std::string& input) {
  if (input.size() < worker::kSafetensorsPrefixBytes) return;  // the callers refuse a file that is so short
  const absl::StatusOr<int64_t> length =
      worker::DecodeSafetensorsPrefix(input.substr(0, worker::kSafetensorsPrefixBytes), static_cast<int64_t>(input.size()));
  if (!length.ok()) return CheckRefused(length.status(), {Code::kDataLoss});
  LYNX_CHECK(*length >= 0 && *length + worker::kSafetensorsPrefixBytes <= static_cast<int64_t>(input.size()));
  const std::string json = input.substr(worker::kSafetensorsPrefixBytes, static_cast<size_t>(*length));
  for (const int64_t data_bytes :
       {int64_t{0}, int64_t{96}, static_cast<int64_t>(input.size()) - worker::kSafetensorsPrefixBytes - *length}) {
    for (const worker::SafetensorsTypes types : {worker::SafetensorsTypes::kFloat32, worker::SafetensorsTypes::kAll}) {
      const absl::StatusOr<worker::SafetensorsHeader> header = worker::DecodeSafetensorsHeader(json, data_bytes, types);
      if (!header.ok()) {
        CheckRefused(header.status(), {Code::kDataLoss});
        continue;
      }
      LYNX_CHECK(header->DataBytes() == data_bytes);
      const std::string again = worker::EncodeSafetensorsHeader(*header).substr(worker::kSafetensorsPrefixBytes);
      LYNX_CHECK(*worker::DecodeSafetensorsHeader(again, data_bytes, types) == *header);
    }
  }
}

std::string SomeSafetensors() {
  worker::SafetensorsHeader header;
  header.Append("wte", {4, 4});
  header.Append("bias", {8});
  header.metadata = {{"format", "pt"}, {"place.wte", "8x4: 4+4,0+4"}};
  return worker::EncodeSafetensorsHeader(header) + std::string(96, '\0');
}

void RunCheckpointIndex(const std::string& input) {
  const absl::StatusOr<worker::CheckpointIndex> index = worker::DecodeIndex(input);
  if (!index.ok()) return CheckRefused(index.status(), {Code::kDataLoss, Code::kFailedPrecondition});
  LYNX_CHECK(worker::EncodeIndex(*index) == input || worker::DecodeIndex(worker::EncodeIndex(*index)).ok());
}

std::string SomeCheckpointIndex() {
  worker::CheckpointIndex index;
  index.identity.job = JobId("job-1");
  index.identity.generation = Generation(2);
  index.identity.step = 100;
  index.identity.model = {.layers = 2, .hidden = 8, .heads = 2, .ffn = 32, .seq = 4, .vocab = 13, .dropout = 0.1};
  index.identity.layout = {1, 2, 1};
  index.identity.data = {DataKind::kMegatron, Bytes(12345), std::string(64, 'c')};
  for (const int32_t stage : {0, 1}) {
    index.files.push_back({worker::ShardFile(index.identity.layout, stage, 0, 0), Bytes(10), std::string(64, 'a')});
  }
  return worker::EncodeIndex(index);
}

void RunRankReport(const std::string& input) {
  const absl::StatusOr<RankReport> report = ParseRankReport(input);
  if (!report.ok()) return CheckRefused(report.status());
  v1::RankReport message;
  SetReport(*report, message);
  const absl::StatusOr<RankReport> told = ReportFromProto(message);
  if (!told.ok()) CheckRefused(told.status());
}

void RunRankFiles(const std::string& input) {
  const absl::StatusOr<RankConfig> config = ParseRankConfig(input);
  if (!config.ok()) CheckRefused(config.status());
  const absl::StatusOr<worker::StoredRank> record = worker::ParseStoredRank(input);
  if (!record.ok()) return CheckRefused(record.status(), {Code::kInvalidArgument, Code::kDataLoss});
  LYNX_CHECK(*worker::ParseStoredRank(worker::StoredRankText(*record)) == *record);
}

RankConfig SmallConfig() {
  const Plan plan = SmallPlan();
  RankConfig config;
  config.job = JobId("a1b2");
  config.generation = Generation(2);
  config.spec.name = "small";
  config.spec.model = {.layers = 2, .hidden = 32, .heads = 2, .seq = 16};
  config.spec.data.path = "/text";
  config.spec.train.global_batch = 4;
  Normalize(config.spec);
  config.context = plan.ContextOf(0);
  config.program = plan.stages[0].program;
  config.plan_digest = plan.digest;
  config.peers = {{"127.0.0.1", 4000}, {"127.0.0.1", 4001}};
  config.connection_secret = std::string(64, 'a');
  config.checkpoint_directory = Folder() + "/log";
  return config;
}

// Reads the log of earlier generations like a new generation. Any program may have written the log.
void RunRunLog(const std::string& input) {
  static const RankConfig& config = *new RankConfig(SmallConfig());
  static const RealClock clock;
  const std::string folder = worker::RunLogPath(config.checkpoint_directory, config.job);
  std::filesystem::remove_all(folder);
  Write(folder + "/metrics.csv", input);
  worker::RunLog log(config, 7, clock);
  log.Add({.step = 7, .loss = 1.5}, std::nullopt);
}

}  // namespace

std::vector<FuzzTarget> MachineTargets() {
  v1::AgentReport agent;
  agent.set_node("n1");
  agent.set_boot_id("boot");
  *agent.mutable_profile() = ToProto(StatedCpuProfile());
  auto& device = *agent.add_devices();
  device.set_kind("cpu");
  device.set_memory_bytes(1 << 30);
  device.add_cores(0);
  agent.add_conditions()->set_kind("no-gpus");
  v1::WorkerReport worker;
  worker.set_node("n1");
  worker.set_boot_id("boot");
  auto& rank = *worker.add_ranks();
  rank.set_job_id("a1b2");
  rank.set_generation(1);
  rank.set_phase(v1::RANK_PHASE_RUNNING);
  rank.set_host("127.0.0.1");
  rank.set_port(4000);
  const std::vector<RankReport> reports = {RankReady{3, Bytes(100), Bytes(200), "cpu"},
                                           StepReport{.step = 7, .loss = 2.5},
                                           StepSkipped{7, "the loss is nan"},
                                           EvaluationReport{8, 2.25, 65536, Nanos(12)},
                                           TraceReport{9, 3, 1, {1, 2, 3, 4, 5, 0, 0, 0, 0, 0}},
                                           CheckpointReport{10, "/c/step-10", Bytes(1 << 30)},
                                           CheckpointFailure{20, "full"},
                                           CopiesNotice{"no room"},
                                           RankDone{100},
                                           RankYielded{50},
                                           RankFailure{"rank 1 is gone", true},
                                           RankFailure{"a link", false, FaultCause::kLink, {3, 5}},
                                           NodeCheckReport{Nanos(200), 4, 6, 900}};
  std::vector<std::string> lines;
  for (const RankReport& report : reports) {
    v1::RankReport& message = *worker.add_reports();
    message.set_job_id("a1b2");
    message.set_generation(1);
    message.set_sequence(static_cast<int64_t>(lines.size()) + 1);
    SetReport(report, message);
    lines.push_back(RankReportLine(report));
  }
  const Plan plan = SmallPlan();
  v1::SubmitJobRequest submission;
  *submission.mutable_spec() = ToProto(SmallConfig().spec);
  submission.set_idempotency_key("key");
  v1::RankAssignment assignment;
  assignment.set_job_id("a1b2");
  assignment.set_generation(1);
  *assignment.mutable_spec() = ToProto(SmallConfig().spec);
  const worker::StoredRank record{
      .key = {JobId("a1b2"), Generation(1), 0}, .phase = worker::RecordedPhase::kExited, .exit_code = 3, .reason = "why"};
  return {{"agent_report", RunAgentReport, {cli::JsonText(agent)}},
          {"worker_report", RunWorkerReport, {cli::JsonText(worker)}},
          {"submission", RunSubmission, {cli::JsonText(submission)}},
          {"plan", RunPlanMessage, {cli::JsonText(ToProto(plan))}},
          {"assignment", RunAssignment, {cli::JsonText(assignment)}},
          {"program",
           RunProgram,
           {ProgramText(plan.stages[0].program), "0F3:2.mlp 0AR+3:2.mlp 0R3:1.attn(ln1,qkv)  # why\n0OPT\n"}},
          {"data_index", RunDataIndex, {DataIndex(8, {40, 24}, 2), DataIndex(1, {128}, 1), DataIndex(4, {10, 20}, 4)}},
          {"safetensors", RunSafetensors, {SomeSafetensors()}},
          {"checkpoint_index", RunCheckpointIndex, {SomeCheckpointIndex()}},
          {"rank_report", RunRankReport, lines},
          {"rank_files", RunRankFiles, {RankConfigText(SmallConfig()), worker::StoredRankText(record)}},
          {"run_log",
           RunRunLog,
           {"step,loss,learning_rate,gradient_norm,validation_loss\n1,5.5,0.001,1,\n2,5.25,0.001,1,5\n3,5,0.001,1,\n9,4,0.1,1,"
            "\n"}}};
}

}  // namespace lynx
