// Decoding of nodes' reports. See messages.h.
#include <limits>
#include <set>
#include <utility>

#include "common/network_domain.h"
#include "common/status.h"
#include "proto/bounds.h"
#include "proto/convert_report.h"
#include "server/wire/messages.h"

namespace lynx::server {
namespace {

constexpr size_t kMaxDevices = 64;
constexpr size_t kMaxShapes = 64;
constexpr size_t kMaxCores = 1024;
constexpr int64_t kMaxCore = 1 << 16;
constexpr size_t kMaxRanksOfDaemon = 1024;  // ranks that one daemon may report
constexpr size_t kMaxReports = 500;
constexpr size_t kMaxLogs = 1024;
constexpr size_t kMaxLogLines = 100;
constexpr size_t kMaxReason = 64 * 1024;
constexpr size_t kMaxShortText = 256;
constexpr size_t kMaxUuid = 128;
constexpr size_t kMaxCoresId = 64;
constexpr int64_t kMaxCoreLimit = 1'000'000'000;  // a million cores
constexpr size_t kMaxConditions = 256;
constexpr size_t kMaxConditionText = 4096;
constexpr int64_t kMaxGeneration = 1'000'000'000;
constexpr int64_t kMaxSequence = int64_t{1} << 60;

absl::StatusOr<Device> DeviceOf(const v1::Device& m, const std::string& path) {
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "index"), m.index(), 0, static_cast<int64_t>(kMaxDevices) - 1));
  Device device;
  if (!ParseEnum(m.kind(), device.kind) || device.kind == DeviceKind::kAny) {
    return BadField(FieldPath(path, "kind"), m.kind(), "must be cpu or cuda");
  }
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "model"), m.model().size(), 0, kMaxShortText, "characters"));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "memory_bytes"), m.memory_bytes(), 0, kMaxWireBytes));
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "cores"), m.cores().size(), 0, kMaxCores, "entries"));
  LYNX_RETURN_IF_ERROR(
      CheckSize(FieldPath(path, "uuid"), m.uuid().size(), device.kind == DeviceKind::kCuda ? 1 : 0, kMaxUuid, "characters"));
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "detail"), m.detail().size(), 0, kMaxShortText, "characters"));
  device.index = m.index();
  device.model = m.model();
  device.memory = Bytes(m.memory_bytes());
  device.uuid = m.uuid();
  device.detail = m.detail();
  for (int i = 0; i < m.cores_size(); ++i) {
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "cores", i), m.cores(i), 0, kMaxCore - 1));
    device.cores.push_back(m.cores(i));
  }
  return device;
}

absl::StatusOr<ReportedCondition> ConditionOf(const v1::NodeCondition& m, const std::string& path) {
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "kind"), m.kind().size(), 1, kMaxShortText, "characters"));
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "device"), m.device().size(), 0, kMaxUuid, "characters"));
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "message"), m.message().size(), 0, kMaxConditionText, "characters"));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "since_unix_ns"), m.since_unix_ns(), 0, std::numeric_limits<int64_t>::max()));
  return ReportedCondition{.kind = m.kind(),
                           .device = m.device(),
                           .withdrawn = m.withdrawn(),
                           .message = m.message(),
                           .since = Nanos(m.since_unix_ns())};
}

absl::StatusOr<RankKey> KeyOf(const std::string& job, int64_t generation, int32_t rank, const std::string& path) {
  LYNX_RETURN_IF_ERROR(CheckName(FieldPath(path, "job_id"), job));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "generation"), generation, 1, kMaxGeneration));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "rank"), rank, 0, kMaxWireRanks - 1));
  return RankKey{JobId(job), Generation(generation), rank};
}

absl::StatusOr<RankObservation> ObservationOf(const v1::RankStatus& m, const std::string& path) {
  RankObservation rank;
  LYNX_ASSIGN_OR_RETURN(rank.key, KeyOf(m.job_id(), m.generation(), m.rank(), path));
  switch (m.phase()) {
    case v1::RANK_PHASE_LISTENING: rank.phase = RankPhase::kListening; break;
    case v1::RANK_PHASE_RUNNING: rank.phase = RankPhase::kRunning; break;
    case v1::RANK_PHASE_EXITED: rank.phase = RankPhase::kExited; break;
    default:
      return BadField(FieldPath(path, "phase"), absl::StrCat(static_cast<int>(m.phase())),
                      "must be one of listening (1), running (2), exited (3)");
  }
  if (rank.phase == RankPhase::kListening) {
    LYNX_RETURN_IF_ERROR(CheckNumericHost(FieldPath(path, "host"), m.host()));
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "port"), m.port(), 1, 65535));
  } else {
    // A rank that runs or has ended may have closed its listening socket. Then `host` is empty and `port` is 0.
    LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "host"), m.host().size(), 0, 64, "characters"));
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "port"), m.port(), 0, 65535));
  }
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "exit_code"), m.exit_code(), 0, 255));
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "reason"), m.reason().size(), 0, kMaxReason, "characters"));
  rank.host = m.host();
  rank.port = m.port();
  rank.exit_code = m.exit_code();
  rank.reason = m.reason();
  rank.peer_lost = m.peer_lost();
  rank.cause = FaultCauseOfNumber(m.cause());
  return rank;
}

absl::StatusOr<RankMessage> MessageOf(const v1::RankReport& m, const std::string& path) {
  RankMessage message;
  LYNX_ASSIGN_OR_RETURN(message.key, KeyOf(m.job_id(), m.generation(), m.rank(), path));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "sequence"), m.sequence(), 1, kMaxSequence));
  message.sequence = m.sequence();
  LYNX_ASSIGN_OR_RETURN(message.report, ReportFromProto(m, path));
  return message;
}

absl::StatusOr<RankLogLines> LogsOf(const v1::RankLogLines& m, const std::string& path) {
  RankLogLines logs;
  LYNX_ASSIGN_OR_RETURN(logs.key, KeyOf(m.job_id(), m.generation(), m.rank(), path));
  LYNX_RETURN_IF_ERROR(CheckSize(FieldPath(path, "lines"), m.lines().size(), 0, kMaxLogLines, "entries"));
  logs.lines.assign(m.lines().begin(), m.lines().end());
  return logs;
}

}  // namespace

absl::StatusOr<AgentState> Decode(const v1::AgentReport& message) {
  AgentState state;
  LYNX_RETURN_IF_ERROR(CheckName("node", message.node()));
  state.node = NodeId(message.node());
  LYNX_RETURN_IF_ERROR(CheckSize("boot_id", message.boot_id().size(), 1, kMaxShortText, "characters"));
  state.boot = message.boot_id();
  LYNX_RETURN_IF_ERROR(CheckSize("devices", message.devices().size(), 0, kMaxDevices, "entries"));
  std::set<int32_t> indices;
  for (int i = 0; i < message.devices_size(); ++i) {
    const std::string path = FieldPath("", "devices", i);
    LYNX_ASSIGN_OR_RETURN(Device device, DeviceOf(message.devices(i), path));
    if (!indices.insert(device.index).second) {
      return BadField(FieldPath(path, "index"), absl::StrCat(device.index), "must appear once");
    }
    // A node has one profile of measured speeds, so all its devices must be of one kind.
    if (!state.devices.empty() && state.devices.front().kind != device.kind) {
      return BadField(FieldPath(path, "kind"), EnumName(device.kind), "must be that of the node's other devices");
    }
    state.devices.push_back(std::move(device));
  }
  LYNX_RETURN_IF_ERROR(CheckRange("host_memory_bytes", message.host_memory_bytes(), 0, kMaxWireBytes));
  state.host_memory = Bytes(message.host_memory_bytes());
  LYNX_RETURN_IF_ERROR(Annotate(CheckNetworkDomain(message.network_domain()), "network_domain"));
  state.network_domain = message.network_domain();
  state.network_rate_assumed = message.network_rate_assumed();
  LYNX_RETURN_IF_ERROR(CheckSize("cores.machine", message.cores().machine().size(), 0, kMaxCoresId, "characters"));
  LYNX_RETURN_IF_ERROR(CheckSize("cores.limit_group", message.cores().limit_group().size(), 0, kMaxCoresId, "characters"));
  LYNX_RETURN_IF_ERROR(CheckRange("cores.limit_permille", message.cores().limit_permille(), 0, kMaxCoreLimit));
  state.cores = {message.cores().machine(), message.cores().limit_group(), message.cores().limit_permille()};
  if (message.has_profile()) {
    LYNX_ASSIGN_OR_RETURN(HardwareProfile profile, FromProto(message.profile(), "profile"));
    state.profile = std::make_shared<const HardwareProfile>(std::move(profile));
  }
  LYNX_RETURN_IF_ERROR(CheckSize("failed_shapes", message.failed_shapes().size(), 0, kMaxShapes, "entries"));
  for (int i = 0; i < message.failed_shapes_size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(LayerShape shape, FromProto(message.failed_shapes(i), FieldPath("", "failed_shapes", i)));
    state.failed_shapes.push_back(shape);
  }
  LYNX_RETURN_IF_ERROR(CheckSize("failure", message.failure().size(), 0, kMaxReason, "characters"));
  state.failure = message.failure();
  LYNX_RETURN_IF_ERROR(CheckSize("version", message.version().size(), 0, kMaxShortText, "characters"));
  state.version = message.version();
  LYNX_RETURN_IF_ERROR(CheckSize("conditions", message.conditions().size(), 0, kMaxConditions, "entries"));
  for (int i = 0; i < message.conditions_size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(ReportedCondition condition, ConditionOf(message.conditions(i), FieldPath("", "conditions", i)));
    state.conditions.push_back(std::move(condition));
  }
  return state;
}

absl::StatusOr<QueueConfig> Decode(const v1::Queue& message) {
  constexpr int64_t kMaxWeight = 1000, kMaxQuotaDevices = 1'000'000;
  LYNX_RETURN_IF_ERROR(ValidateName(message.name(), "queue.name"));
  LYNX_RETURN_IF_ERROR(CheckRange("queue.weight", message.weight(), 1, kMaxWeight));
  LYNX_RETURN_IF_ERROR(CheckRange("queue.quotaDevices", message.quota_devices(), 0, kMaxQuotaDevices));
  LYNX_RETURN_IF_ERROR(CheckRange("queue.userQuotaDevices", message.user_quota_devices(), 0, kMaxQuotaDevices));
  if (message.no_borrowing() && message.quota_devices() == 0 && message.user_quota_devices() == 0) {
    return BadField("queue.noBorrowing", "true", "is for a queue with a quota");
  }
  LYNX_RETURN_IF_ERROR(CheckSize("queue.managers", message.managers().size(), 0, kMaxQueueManagers, "entries"));
  std::set<std::string> managers;
  for (int i = 0; i < message.managers_size(); ++i) {
    const std::string path = FieldPath("queue", "managers", i);
    LYNX_RETURN_IF_ERROR(CheckName(path, message.managers(i)));
    if (!managers.insert(message.managers(i)).second) return BadField(path, message.managers(i), "must be named once");
  }
  return QueueConfig{.name = message.name(),
                     .weight = message.weight(),
                     .quota = message.quota_devices(),
                     .may_borrow = !message.no_borrowing(),
                     .user_quota = message.user_quota_devices(),
                     .managers = {message.managers().begin(), message.managers().end()}};
}

absl::StatusOr<WorkerState> Decode(const v1::WorkerReport& message) {
  WorkerState state;
  LYNX_RETURN_IF_ERROR(CheckName("node", message.node()));
  state.node = NodeId(message.node());
  LYNX_RETURN_IF_ERROR(CheckSize("boot_id", message.boot_id().size(), 1, kMaxShortText, "characters"));
  state.boot = message.boot_id();
  LYNX_RETURN_IF_ERROR(CheckNumericHost("address", message.address()));
  state.address = message.address();
  LYNX_RETURN_IF_ERROR(CheckSize("ranks", message.ranks().size(), 0, kMaxRanksOfDaemon, "entries"));
  std::set<RankKey> keys;
  for (int i = 0; i < message.ranks_size(); ++i) {
    const std::string path = FieldPath("", "ranks", i);
    LYNX_ASSIGN_OR_RETURN(RankObservation rank, ObservationOf(message.ranks(i), path));
    if (!keys.insert(rank.key).second) return BadField(path, "repeated", "a rank must appear once");
    state.ranks.push_back(std::move(rank));
  }
  LYNX_RETURN_IF_ERROR(CheckSize("reports", message.reports().size(), 0, kMaxReports, "entries"));
  for (int i = 0; i < message.reports_size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(RankMessage report, MessageOf(message.reports(i), FieldPath("", "reports", i)));
    state.messages.push_back(std::move(report));
  }
  LYNX_RETURN_IF_ERROR(CheckSize("logs", message.logs().size(), 0, kMaxLogs, "entries"));
  for (int i = 0; i < message.logs_size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(RankLogLines logs, LogsOf(message.logs(i), FieldPath("", "logs", i)));
    state.logs.push_back(std::move(logs));
  }
  LYNX_RETURN_IF_ERROR(CheckSize("version", message.version().size(), 0, kMaxShortText, "characters"));
  state.version = message.version();
  LYNX_RETURN_IF_ERROR(CheckRange("number", message.number(), 0, INT64_MAX));
  LYNX_RETURN_IF_ERROR(CheckRange("witness_port", message.witness_port(), 0, 65535));
  LYNX_RETURN_IF_ERROR(CheckRange("renewed", message.renewed(), 0, message.number()));
  state.number = message.number();
  state.renewed = message.renewed();
  state.witness_port = message.witness_port();
  state.encrypts = message.encrypts();
  LYNX_RETURN_IF_ERROR(CheckSize("copies_of_jobs", message.copies_of_jobs().size(), 0, kMaxRanksOfDaemon, "entries"));
  for (int i = 0; i < message.copies_of_jobs_size(); ++i) {
    LYNX_RETURN_IF_ERROR(CheckName(FieldPath("", "copies_of_jobs", i), message.copies_of_jobs(i)));
    state.copies.insert(JobId(message.copies_of_jobs(i)));
  }
  return state;
}

absl::StatusOr<JobState> Decode(v1::JobState state, const std::string& path) {
  if (state >= v1::JOB_STATE_QUEUED && state <= v1::JOB_STATE_CANCELLED) {
    return static_cast<JobState>(static_cast<int>(state) - static_cast<int>(v1::JOB_STATE_QUEUED));
  }
  return BadField(path, absl::StrCat(static_cast<int>(state)), "must be from queued (1) to cancelled (7)");
}

}  // namespace lynx::server
