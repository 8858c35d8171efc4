// The bytes between ranks: how a connection introduces itself, what announces an operation, and how a rank says that it leaves.
// All layouts are fixed, little-endian and of bounded size; everything received is checked before it is used.
//
//   connecting rank -> Hello            accepting rank -> Challenge (peer_proof.h)
//   connecting rank -> its proof        accepting rank -> HelloReply      then, on data channels, per operation:
//   OperationHeader payload             and on the control channel Notices, of which the last may be a last word.
//
// A Hello of another version is answered at once with a HelloReply, in the form that versions before 5 can read.
//
// Pure; thread-safe.
#ifndef LYNX_WORKER_COLLECTIVES_WIRE_H_
#define LYNX_WORKER_COLLECTIVES_WIRE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/ids.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/layout.h"
#include "worker/collectives/group.h"
#include "worker/collectives/peer_proof.h"

namespace lynx::worker {

inline constexpr uint32_t kWireVersion = 6;
inline constexpr size_t kMaxJobIdBytes = 128;
inline constexpr size_t kMaxWireTextBytes = 1024;

struct Hello {
  uint32_t version = kWireVersion;
  JobId job;
  Generation generation;
  ParallelLayout layout;         // without the slots of a custom schedule
  uint64_t schedule_digest = 0;  // DigestOfSchedule
  int32_t from = 0;
  int32_t to = 0;
  Channel channel = Channel::kControl;
  int32_t part = 0;  // as in LinkKey
  Nonce nonce{};
};
// A digest of a custom schedule's text; 0 for other schedules.
uint64_t DigestOfSchedule(const ParallelLayout& layout);
// The size of every Hello; the job id is padded with zeros.
inline constexpr size_t kHelloBytes = 64 + kMaxJobIdBytes + sizeof(Nonce);
std::string EncodeHello(const Hello& hello);
// False if the bytes are not the beginning of a Hello. `bytes` may be incomplete; only the magic number at the beginning is
// checked.
bool MayBeHello(std::string_view bytes);
// The version of a Hello of which only a part may be there; nullopt: too few bytes.
std::optional<uint32_t> VersionOfHello(std::string_view bytes);
// `bytes` has kHelloBytes. nullopt when it is not a Hello, has another version, or has a field that is out of range.
std::optional<Hello> DecodeHello(std::string_view bytes);

// An empty text means that the Hello is accepted; otherwise the text is the reason for the refusal.
std::string EncodeHelloReply(const std::string& refusal);
inline constexpr size_t kHelloReplyHeadBytes = 8;  // followed by the text
// The length of the text; nullopt when these are not the first bytes of a reply.
std::optional<size_t> DecodeHelloReplyHead(std::string_view bytes);

enum class OperationKind : uint8_t { kAllReduce = 1, kAllGather = 2, kTransfer = 3, kBarrier = 4, kReduceScatter = 5 };
const char* OperationKindName(OperationKind kind);  // "all-reduce"

// Sent before the payload of every operation, so that ranks that run different programs notice it.
struct OperationHeader {
  OperationKind kind = OperationKind::kAllReduce;
  int64_t number = 0;                  // 0-based; counted for each group and direction
  int64_t count = 0;                   // elements, as given to the start
  DataType type = DataType::kFloat32;  // of the elements
  bool operator==(const OperationHeader&) const = default;
};
inline constexpr size_t kOperationHeaderBytes = 24;
using OperationHeaderBytes = std::array<char, kOperationHeaderBytes>;
OperationHeaderBytes EncodeOperationHeader(const OperationHeader& header);
// nullopt: the bytes are not an operation header.
std::optional<OperationHeader> DecodeOperationHeader(const OperationHeaderBytes& bytes);

// What a rank says about itself on a control connection: from time to time a sign of life, and at the end a last word.
enum class NoticeKind : uint8_t {
  kGivesUp = 0,  // it ends because of `reason`; the last word
  kLeaves = 1,   // it ends without an error and needs no peer any more; the last word
  kLives = 2,
};
struct Notice {
  NoticeKind kind = NoticeKind::kGivesUp;
  absl::Status reason;  // OK unless kGivesUp
};
std::string EncodeNotice(const Notice& notice);
inline constexpr size_t kNoticeHeadBytes = 8;
std::optional<size_t> DecodeNoticeHead(std::string_view bytes);  // length of the text
std::optional<Notice> DecodeNotice(std::string_view bytes);      // head and text

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_WIRE_H_
