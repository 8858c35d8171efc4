#include "worker/collectives/nccl_line.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/status.h"
#include "planner/problem/stage_context.h"

namespace lynx::worker {
namespace {

// The largest value of CUDA_DEVICE_MAX_CONNECTIONS, and the value that CUDA takes if it is not set.
constexpr int kMaxConnections = 32, kUsualConnections = 8;
constexpr int kQueuesOfOps = 1, kQueuesOfCopies = 2;  // copies to the host and back

using IdWords = std::array<float, sizeof(ncclUniqueId) / sizeof(float)>;

// Returns an ncclUniqueId as the words that are transferred. They are bit patterns and never used as floats.
IdWords WordsOf(const ncclUniqueId& id) {
  IdWords words;
  static_assert(sizeof(words) == sizeof(id));
  std::memcpy(words.data(), &id, sizeof(id));
  return words;
}

void AddLine(const LaneTable& lanes, const Route& route, int32_t lane, Lines& lines) {
  if (lane < 0) return;
  const LaneInfo& info = lanes.at(lane);
  const auto is_it = [&](const auto& line) { return line->lanes.front() == lane; };
  if ((!info.out && !info.in) || std::any_of(lines.begin(), lines.end(), is_it)) return;
  lines.push_back(std::make_unique<Line>(route, lane, info));
}

// Starts the transfer of the words of a line, from its first member to the others. A ring gathers the words of all members.
absl::StatusOr<TransferTicket> StartWords(Communicator& host, const Line& line, float* words, int64_t count) {
  if (line.is_ring()) return host.StartAllGather(line.route, Elements(words), count);
  if (line.index() == Line::kSender) return host.StartSend(line.route, Elements(words), count);
  return host.StartRecv(line.route, Elements(words), count);
}

absl::Status WaitForAll(Communicator& host, const std::vector<TransferTicket>& tickets) {
  for (const TransferTicket ticket : tickets) LYNX_RETURN_IF_ERROR(host.Wait(ticket).status());
  return absl::OkStatus();
}

// The lines between this rank and one peer that go in one direction, sorted.
using Bundle = std::vector<Line*>;

std::vector<Bundle> BundlesOf(const Lines& lines) {
  std::map<std::tuple<int32_t, bool, Direction>, Bundle> bundles;
  for (const auto& line : lines) {
    if (line->is_ring()) continue;
    bundles[{line->link().peer, line->backward(), line->info.direction}].push_back(line.get());
  }
  std::vector<Bundle> several;
  for (auto& [key, bundle] : bundles) {
    if (bundle.size() > 1) several.push_back(std::move(bundle));
  }
  return several;
}

// A digest of the order in which a program starts the transfers of a bundle: 16 hexadecimal digits. They are never used as
// floats.
using OrderWords = std::array<float, 4>;
OrderWords OrderOf(const Bundle& bundle, const LaneTable& lanes, const Program& program) {
  std::string text;
  for (const Action& action : program) {
    const ActionInfo& info = InfoOf(action.kind);
    if (info.phase != Phase::kStart || (info.group != Group::kNextStage && info.group != Group::kPreviousStage)) continue;
    const Direction direction = info.flow == Flow::kOut ? Direction::kSendOnly : Direction::kReceiveOnly;
    const int32_t lane = lanes.Neighbour({info.group, action.stage}, direction);
    for (const Line* line : bundle) {
      if (line->lanes.front() == lane) absl::StrAppend(&text, line->link().part, " ");
    }
  }
  const std::string digest = Sha256Hex(text);
  OrderWords words;
  std::memcpy(words.data(), digest.data(), sizeof(words));
  return words;
}

// Returns the number of bundles, among those from which this rank receives, whose transfers the sender starts in another order.
absl::StatusOr<int> CountOtherOrders(const std::vector<Bundle>& bundles, const LaneTable& lanes, const Program& program,
                                     Communicator& host) {
  std::vector<OrderWords> own(bundles.size()), sent(bundles.size());
  std::vector<TransferTicket> tickets;
  for (size_t i = 0; i < bundles.size(); ++i) {
    own[i] = sent[i] = OrderOf(bundles[i], lanes, program);
    LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket, StartWords(host, *bundles[i].front(), sent[i].data(), sent[i].size()));
    tickets.push_back(ticket);
  }
  LYNX_RETURN_IF_ERROR(WaitForAll(host, tickets));
  int others = 0;
  for (size_t i = 0; i < bundles.size(); ++i) others += std::memcmp(&own[i], &sent[i], sizeof(own[i])) != 0 ? 1 : 0;
  return others;
}

}  // namespace

ncclDataType_t TypeOf(DataType type) { return type == DataType::kFloat32 ? ncclFloat32 : ncclBfloat16; }

ncclResult_t ExchangeSlots(const LaneInfo& info, ConstElements send, Elements receive, int64_t count, ncclComm_t comm,
                           cudaStream_t stream) {
  const auto elements = static_cast<size_t>(count);
  const int64_t slot_bytes = count * ElementBytes(send.type);
  const auto slot = [&](int32_t member) { return static_cast<const char*>(send.data) + member * slot_bytes; };
  const cudaError_t copied = cudaMemcpyAsync((receive + info.index * count).data, slot(info.index),
                                             static_cast<size_t>(slot_bytes), cudaMemcpyDefault, stream);
  if (copied != cudaSuccess) return ncclUnhandledCudaError;
  ncclResult_t result = ncclGroupStart();
  for (int32_t k = 1; k < info.members && result == ncclSuccess; ++k) {
    const int32_t to = (info.index + k) % info.members, from = (info.index + info.members - k) % info.members;
    result = ncclSend(slot(to), elements, TypeOf(send.type), to, comm, stream);
    if (result != ncclSuccess) break;
    result = ncclRecv((receive + from * count).data, elements, TypeOf(send.type), from, comm, stream);
  }
  const ncclResult_t ended = ncclGroupEnd();
  return result == ncclSuccess ? ended : result;
}

absl::Status StatusOf(ncclResult_t result, const char* what, const std::string& where) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const std::string text = absl::StrCat("NCCL: ", what, where, ": ", ncclGetErrorString(result));
  // A remote error comes from the peer; this rank is not at fault.
  return result == ncclRemoteError ? absl::UnavailableError(text) : absl::InternalError(text);
}

ncclUniqueId Line::id() const {
  ncclUniqueId id;
  std::memcpy(&id, words.data(), sizeof(id));
  return id;
}

Lines LinesOf(const ParallelLayout& layout, int32_t rank, const LaneTable& lanes) {
  Lines lines;
  AddLine(lanes, Group::kTensor, lanes.Ring(Group::kTensor), lines);
  AddLine(lanes, {Group::kData, kTiedEmbedding}, lanes.Ring({Group::kData, kTiedEmbedding}), lines);
  if (lanes.has_experts()) {
    for (const Group group : {Group::kExpert, Group::kExpertData}) AddLine(lanes, group, lanes.Ring(group), lines);
  }
  for (const int32_t stage : StagesOfRank(layout, rank)) {
    AddLine(lanes, {Group::kData, stage}, lanes.Ring({Group::kData, stage}), lines);
    for (const Group group : {Group::kNextStage, Group::kPreviousStage}) {
      for (const Direction direction : {Direction::kSendOnly, Direction::kReceiveOnly}) {
        AddLine(lanes, {group, stage}, lanes.Neighbour({group, stage}, direction), lines);
      }
    }
  }
  std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a->order() < b->order(); });
  return lines;
}

absl::Status ShareLines(const ParallelLayout& layout, const LaneTable& lanes, const Program& program, Communicator& host,
                        Lines& lines) {
  if (layout.pp == 1 || PipelineOf(layout).chunks == 1) return absl::OkStatus();  // true on all ranks of the job
  const std::vector<Bundle> bundles = BundlesOf(lines);
  LYNX_ASSIGN_OR_RETURN(int others, CountOtherOrders(bundles, lanes, program, host));
  if (program.empty()) ++others;
  float in_job = static_cast<float>(others);
  LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket, host.StartAllReduce(Group::kWorld, Elements(&in_job), 1));
  LYNX_RETURN_IF_ERROR(host.Wait(ticket).status());
  if (in_job > 0) return absl::OkStatus();
  for (const Bundle& bundle : bundles) {
    Line& shared = *bundle.front();
    for (size_t i = 1; i < bundle.size(); ++i) shared.lanes.push_back(bundle[i]->lanes.front());
    shared.info.name =
        absl::StrCat(shared.info.direction == Direction::kSendOnly ? "to the " : "from the ", GroupName(shared.route.group));
    std::erase_if(lines,
                  [&](const auto& line) { return std::find(bundle.begin() + 1, bundle.end(), line.get()) != bundle.end(); });
  }
  return absl::OkStatus();
}

absl::Status CheckQueues(const Lines& lines, const char* setting) {
  int connections = 0;
  if (setting == nullptr || !absl::SimpleAtoi(setting, &connections)) connections = kUsualConnections;
  connections = std::min(connections, kMaxConnections);
  const int needed = static_cast<int>(lines.size()) + kQueuesOfOps + kQueuesOfCopies;
  if (lines.empty() || needed <= connections) return absl::OkStatus();
  const std::string what = absl::StrCat("a rank of this layout needs ", needed, " device queues: for ", lines.size(),
                                        " routes, its ops, and copies to the host and back; ");
  if (needed > kMaxConnections) {
    return absl::InvalidArgumentError(absl::StrCat(what, "a GPU has ", kMaxConnections, ": lower parallel.virtualStages"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, "CUDA_DEVICE_MAX_CONNECTIONS allows ", connections,
                   ": remove it from the environment of the daemon that started this process, or set it to ", kMaxConnections));
}

// Starts the exchanges of all ids before it waits for one. So two ranks never wait for each other on different lines.
absl::Status ExchangeIds(Communicator& host, Lines& lines) {
  std::vector<TransferTicket> tickets;
  for (const auto& line : lines) {
    const auto count = static_cast<int64_t>(IdWords().size());
    line->words.resize(static_cast<size_t>(count * (line->is_ring() ? line->info.members : 1)));
    if (line->index() == 0) {
      ncclUniqueId id;
      LYNX_RETURN_IF_ERROR(StatusOf(ncclGetUniqueId(&id), "making an id"));
      std::ranges::copy(WordsOf(id), line->words.begin());
    }
    LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket, StartWords(host, *line, line->words.data(), count));
    tickets.push_back(ticket);
  }
  return WaitForAll(host, tickets);
}

}  // namespace lynx::worker
