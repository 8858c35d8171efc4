#include "worker/collectives/wire.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/numbers.h"
#include "common/check.h"
#include "common/digest.h"
#include "planner/problem/layout_schedule.h"

namespace lynx::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is written with native integers");

constexpr size_t kJobIdAt = 72;                  // the first byte of the job id in a Hello
constexpr uint32_t kHelloMark = 0x4f4c584c;      // "LXLO"
constexpr uint32_t kReplyMark = 0x5952584c;      // "LXRY"
constexpr uint32_t kOperationMark = 0x504f584c;  // "LXOP"
constexpr uint16_t kNoticeMark = 0x4e4c;         // "LN"
constexpr Nanos kMaxQuiet{int64_t{7} * 24 * 3600 * 1'000'000'000};
constexpr size_t kProgressBytes = 17;  // size of a ProgressSign: made 8, quiet 8, waits 1

template <class T>
void Put(char* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

template <class T>
T Get(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

std::string Shortened(std::string text) {
  if (text.size() > kMaxWireTextBytes) text.resize(kMaxWireTextBytes);
  return text;
}

}  // namespace

uint64_t DigestOfSchedule(const ParallelLayout& layout) {
  if (!layout.custom.schedule) return 0;
  uint64_t digest = 0;
  return absl::SimpleHexAtoi(Sha256Hex(CustomScheduleText(layout)).substr(0, 16), &digest) ? digest : 0;
}

std::string EncodeHello(const Hello& hello) {
  LYNX_CHECK(hello.job.value.size() <= kMaxJobIdBytes);
  std::string bytes(kHelloBytes, '\0');
  char* at = bytes.data();
  Put<uint32_t>(at, kHelloMark);
  Put<uint32_t>(at + 4, hello.version);
  Put<int64_t>(at + 8, hello.generation.value);
  Put<int32_t>(at + 16, hello.layout.tp);
  Put<int32_t>(at + 20, hello.layout.pp);
  Put<int32_t>(at + 24, hello.layout.dp);
  Put<int32_t>(at + 28, hello.from);
  Put<int32_t>(at + 32, hello.to);
  Put<int32_t>(at + 36, hello.part);
  Put<int32_t>(at + 40, hello.layout.cp);
  Put<int32_t>(at + 44, hello.layout.virtual_stages);
  Put<uint8_t>(at + 48, static_cast<uint8_t>(hello.channel));
  Put<uint8_t>(at + 49, static_cast<uint8_t>(hello.layout.schedule));
  Put<uint8_t>(at + 50, static_cast<uint8_t>(hello.layout.zero));
  Put<uint8_t>(at + 51, hello.layout.sequence_parallel ? 1 : 0);
  Put<uint64_t>(at + 52, hello.schedule_digest);
  Put<uint8_t>(at + 60, static_cast<uint8_t>(hello.layout.weave));
  Put<uint8_t>(at + 61, static_cast<uint8_t>(hello.layout.rank_order));
  Put<int32_t>(at + 64, hello.layout.ep);
  Put<uint8_t>(at + 68, hello.experts ? 1 : 0);
  Put<uint8_t>(at + 69, hello.encrypt ? 1 : 0);
  std::memcpy(at + kJobIdAt, hello.job.value.data(), hello.job.value.size());
  std::memcpy(at + kJobIdAt + kMaxJobIdBytes, hello.nonce.data(), hello.nonce.size());
  return bytes;
}

bool MayBeHello(std::string_view bytes) {
  char mark[sizeof(kHelloMark)];
  Put(mark, kHelloMark);
  const size_t compared = std::min(bytes.size(), sizeof(mark));
  return std::memcmp(bytes.data(), mark, compared) == 0;
}

std::optional<uint32_t> VersionOfHello(std::string_view bytes) {
  if (bytes.size() < 8) return std::nullopt;
  return Get<uint32_t>(bytes.data() + 4);
}

std::optional<Hello> DecodeHello(std::string_view bytes) {
  LYNX_CHECK(bytes.size() == kHelloBytes);
  const char* at = bytes.data();
  if (Get<uint32_t>(at) != kHelloMark) return std::nullopt;
  Hello hello;
  hello.version = Get<uint32_t>(at + 4);
  if (hello.version != kWireVersion) return std::nullopt;
  hello.generation = Generation(Get<int64_t>(at + 8));
  hello.layout = {Get<int32_t>(at + 16), Get<int32_t>(at + 20), Get<int32_t>(at + 24)};
  hello.from = Get<int32_t>(at + 28);
  hello.to = Get<int32_t>(at + 32);
  hello.part = Get<int32_t>(at + 36);
  hello.layout.cp = Get<int32_t>(at + 40);
  hello.layout.virtual_stages = Get<int32_t>(at + 44);
  const uint8_t channel = Get<uint8_t>(at + 48);
  const uint8_t schedule = Get<uint8_t>(at + 49);
  const uint8_t zero = Get<uint8_t>(at + 50);
  const uint8_t sequence_parallel = Get<uint8_t>(at + 51);
  const uint8_t weave = Get<uint8_t>(at + 60);
  const uint8_t order = Get<uint8_t>(at + 61);
  const uint8_t experts = Get<uint8_t>(at + 68);
  const uint8_t encrypt = Get<uint8_t>(at + 69);
  if (channel > static_cast<uint8_t>(Channel::kExpertData) || experts > 1 || encrypt > 1 || schedule >= kScheduleKindCount ||
      zero > static_cast<uint8_t>(ZeroStage::kWeights) || sequence_parallel > 1 || weave >= kEnumNames<WeaveMode>.size() ||
      order == static_cast<uint8_t>(RankOrder::kAuto) || order >= kEnumNames<RankOrder>.size()) {
    return std::nullopt;
  }
  hello.channel = static_cast<Channel>(channel);
  hello.layout.schedule = static_cast<ScheduleKind>(schedule);
  hello.layout.zero = static_cast<ZeroStage>(zero);
  hello.layout.sequence_parallel = sequence_parallel == 1;
  hello.schedule_digest = Get<uint64_t>(at + 52);
  hello.layout.weave = static_cast<WeaveMode>(weave);
  hello.layout.rank_order = static_cast<RankOrder>(order);
  hello.layout.ep = Get<int32_t>(at + 64);
  hello.experts = experts == 1;
  hello.encrypt = encrypt == 1;
  hello.job = JobId(std::string(at + kJobIdAt, strnlen(at + kJobIdAt, kMaxJobIdBytes)));
  std::memcpy(hello.nonce.data(), at + kJobIdAt + kMaxJobIdBytes, hello.nonce.size());
  return hello;
}

std::string EncodeHelloReply(const std::string& refusal) {
  const std::string text = Shortened(refusal);
  std::string bytes(kHelloReplyHeadBytes, '\0');
  Put<uint32_t>(bytes.data(), kReplyMark);
  Put<uint32_t>(bytes.data() + 4, static_cast<uint32_t>(text.size()));
  return bytes + text;
}

std::optional<size_t> DecodeHelloReplyHead(std::string_view bytes) {
  LYNX_CHECK(bytes.size() == kHelloReplyHeadBytes);
  if (Get<uint32_t>(bytes.data()) != kReplyMark) return std::nullopt;
  const uint32_t length = Get<uint32_t>(bytes.data() + 4);
  if (length > kMaxWireTextBytes) return std::nullopt;
  return length;
}

const char* OperationKindName(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllReduce: return "all-reduce";
    case OperationKind::kAllGather: return "all-gather";
    case OperationKind::kReduceScatter: return "reduce-scatter";
    case OperationKind::kTransfer: return "transfer";
    case OperationKind::kBarrier: return "barrier";
    case OperationKind::kAllToAll: return "all-to-all";
  }
  return "unknown operation";
}

OperationHeaderBytes EncodeOperationHeader(const OperationHeader& header) {
  OperationHeaderBytes bytes{};
  Put<uint32_t>(bytes.data(), kOperationMark);
  Put<uint8_t>(bytes.data() + 4, static_cast<uint8_t>(header.kind));
  Put<uint8_t>(bytes.data() + 5, static_cast<uint8_t>(header.type));
  Put<int64_t>(bytes.data() + 8, header.number);
  Put<int64_t>(bytes.data() + 16, header.count);
  return bytes;
}

std::optional<OperationHeader> DecodeOperationHeader(const OperationHeaderBytes& bytes) {
  if (Get<uint32_t>(bytes.data()) != kOperationMark) return std::nullopt;
  const uint8_t kind = Get<uint8_t>(bytes.data() + 4);
  const uint8_t type = Get<uint8_t>(bytes.data() + 5);
  if (kind < static_cast<uint8_t>(OperationKind::kAllReduce) || kind > static_cast<uint8_t>(kLastOperationKind) ||
      type > static_cast<uint8_t>(DataType::kBfloat16)) {
    return std::nullopt;
  }
  return OperationHeader{static_cast<OperationKind>(kind), Get<int64_t>(bytes.data() + 8), Get<int64_t>(bytes.data() + 16),
                         static_cast<DataType>(type)};
}

std::string EncodeNotice(const Notice& notice) {
  std::string text = Shortened(std::string(notice.reason.message()));
  if (notice.kind == NoticeKind::kLives) {
    text.resize(kProgressBytes);
    Put<int64_t>(text.data(), notice.progress.made);
    Put<int64_t>(text.data() + 8, notice.progress.quiet.value);
    Put<uint8_t>(text.data() + 16, notice.progress.waits ? 1 : 0);
  }
  std::string bytes(kNoticeHeadBytes, '\0');
  Put<uint16_t>(bytes.data(), kNoticeMark);
  Put<uint8_t>(bytes.data() + 2, static_cast<uint8_t>(notice.kind));
  Put<uint8_t>(bytes.data() + 3, static_cast<uint8_t>(notice.reason.code()));
  Put<uint32_t>(bytes.data() + 4, static_cast<uint32_t>(text.size()));
  return bytes + text;
}

std::optional<size_t> DecodeNoticeHead(std::string_view bytes) {
  LYNX_CHECK(bytes.size() >= kNoticeHeadBytes);
  if (Get<uint16_t>(bytes.data()) != kNoticeMark) return std::nullopt;
  const uint32_t length = Get<uint32_t>(bytes.data() + 4);
  if (length > kMaxWireTextBytes) return std::nullopt;
  return length;
}

std::optional<Notice> DecodeNotice(std::string_view bytes) {
  const std::optional<size_t> length = DecodeNoticeHead(bytes);
  if (!length || bytes.size() != kNoticeHeadBytes + *length) return std::nullopt;
  Notice notice;
  const uint8_t kind = Get<uint8_t>(bytes.data() + 2);
  if (kind > static_cast<uint8_t>(NoticeKind::kLives)) return std::nullopt;
  notice.kind = static_cast<NoticeKind>(kind);
  if (notice.kind == NoticeKind::kLives) {
    if (*length != kProgressBytes) return std::nullopt;
    const char* const at = bytes.data() + kNoticeHeadBytes;
    notice.progress = {Get<int64_t>(at), Nanos(Get<int64_t>(at + 8)), Get<uint8_t>(at + 16) != 0};
    if (notice.progress.quiet < Nanos(0) || notice.progress.quiet > kMaxQuiet) return std::nullopt;
  }
  if (notice.kind != NoticeKind::kGivesUp) return notice;
  const uint8_t code = Get<uint8_t>(bytes.data() + 3);
  if (code == 0 || code > static_cast<uint8_t>(absl::StatusCode::kUnauthenticated)) return std::nullopt;
  notice.reason = absl::Status(static_cast<absl::StatusCode>(code), std::string(bytes.substr(kNoticeHeadBytes)));
  return notice;
}

}  // namespace lynx::worker
