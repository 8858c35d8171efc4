// Defines the bytes that ranks send to each other: how a connection introduces itself, how an operation is announced, and how a
// rank says that it leaves. All layouts are fixed, little-endian and of limited size. Everything that is received is checked
// before it is used.
//
//   connecting rank -> Hello            accepting rank -> Challenge (peer_proof.h)
//   connecting rank -> its proof        accepting rank -> HelloReply
//   then on a data channel:             for each operation, an OperationHeader and the payload
//   then on the control channel:        Notices; nothing follows a last notice
// If the ranks encrypt their connections, everything after the two proofs is sent in frames (frame_cipher.h).
//
// If a rank gets a Hello of another version, it sends no Challenge and answers with a HelloReply. The HelloReply has the form
// that versions before 5 can read.
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

inline constexpr uint32_t kWireVersion = 10;
inline constexpr size_t kMaxJobIdBytes = 128;
inline constexpr size_t kMaxWireTextBytes = 1024;

struct Hello {
  uint32_t version = kWireVersion;
  JobId job;
  Generation generation;
  ParallelLayout layout;         // without the slots of a custom schedule
  uint64_t schedule_digest = 0;  // DigestOfSchedule
  bool experts = false;          // CommunicatorOptions::experts
  bool encrypt = false;          // CommunicatorOptions::encrypt
  int32_t from = 0;
  int32_t to = 0;
  Channel channel = Channel::kControl;
  int32_t part = 0;  // has the meaning of LinkKey::part
  Nonce nonce{};
};
// Returns a digest of a custom schedule's text, or 0 for other schedules.
uint64_t DigestOfSchedule(const ParallelLayout& layout);
// The size of every Hello; the job id is padded with zeros.
inline constexpr size_t kHelloBytes = 72 + kMaxJobIdBytes + sizeof(Nonce);
std::string EncodeHello(const Hello& hello);
// Checks only the mark at the beginning, so `bytes` may be incomplete. Returns false if the bytes are not the beginning of a
// Hello.
bool MayBeHello(std::string_view bytes);
// Returns the version of a Hello, which may be incomplete. Returns nullopt if there are too few bytes.
std::optional<uint32_t> VersionOfHello(std::string_view bytes);
// `bytes` has kHelloBytes. Returns nullopt if it is not a Hello, has another version, or has a field that is out of range.
std::optional<Hello> DecodeHello(std::string_view bytes);

// An empty text says that the Hello is accepted. Any other text is the reason for the refusal.
std::string EncodeHelloReply(const std::string& refusal);
inline constexpr size_t kHelloReplyHeadBytes = 8;  // followed by the text
// Returns the length of the text, or nullopt if `bytes` are not the first bytes of a reply.
std::optional<size_t> DecodeHelloReplyHead(std::string_view bytes);

enum class OperationKind : uint8_t { kAllReduce = 1, kAllGather, kTransfer, kBarrier, kReduceScatter, kAllToAll };
inline constexpr auto kLastOperationKind = OperationKind::kAllToAll;
const char* OperationKindName(OperationKind kind);  // "all-reduce"

// Sent before the payload of every operation; in an all-to-all, before the slot of every member. By the header, a rank notices
// if its peer runs a different program.
struct OperationHeader {
  OperationKind kind = OperationKind::kAllReduce;
  int64_t number = 0;                  // counted from 0 on each lane (lanes.h)
  int64_t count = 0;                   // the number of elements, as given to the call that started the operation
  DataType type = DataType::kFloat32;  // the type of the elements
  bool operator==(const OperationHeader&) const = default;
};
inline constexpr size_t kOperationHeaderBytes = 24;
using OperationHeaderBytes = std::array<char, kOperationHeaderBytes>;
OperationHeaderBytes EncodeOperationHeader(const OperationHeader& header);
// Returns nullopt if the bytes are not an operation header.
std::optional<OperationHeader> DecodeOperationHeader(const OperationHeaderBytes& bytes);

// What a rank says about itself on a control connection. From time to time it gives a sign of life. At its end it sends one
// last notice.
enum class NoticeKind : uint8_t {
  kGivesUp = 0,  // the rank ends because of `reason`; this is its last notice
  kLeaves = 1,   // the rank ends without an error and needs no peer any more; this is its last notice
  kLives = 2,    // the sign of life
};
// What a sign of life says about the rank's progress (worker/contract/rank_progress.h).
struct ProgressSign {
  int64_t made = 0;
  Nanos quiet;
  bool waits = false;  // the rank waits for a transfer, so a peer keeps it waiting
  bool operator==(const ProgressSign&) const = default;
};
struct Notice {
  NoticeKind kind = NoticeKind::kGivesUp;
  absl::Status reason;    // OK unless kGivesUp
  ProgressSign progress;  // only of kLives
};
std::string EncodeNotice(const Notice& notice);
inline constexpr size_t kNoticeHeadBytes = 8;
// `bytes` is the head. Returns the length of the text that follows it.
std::optional<size_t> DecodeNoticeHead(std::string_view bytes);
std::optional<Notice> DecodeNotice(std::string_view bytes);  // `bytes` has the head and the text

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_WIRE_H_
