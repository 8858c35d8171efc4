// Ring collectives as byte streams. A member of a ring sends one stream to the next member and receives one stream from the
// previous member. It passes on what it has received; in a reduction it adds its own values first. An element may be sent as
// soon as it has arrived, so no step waits for a whole chunk.
//
// An all-reduce is a reduce-scatter and an all-gather (Patarasuk and Yuan 2009): each member sends 2(n-1) chunks of count/n
// elements. Chunk c is summed in the order c, c+1, ... of the members. The finished sum is copied to all, so every member ends
// with the same bits. An element's final value reaches a member only after that member has sent its own value, so the result
// can overwrite the buffer.
//
// An all-to-all is no ring: its members exchange their slots directly, in pairs, step by step. Pure; thread-safe.
#ifndef LYNX_WORKER_COLLECTIVES_RING_H_
#define LYNX_WORKER_COLLECTIVES_RING_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lynx::worker {

// A contiguous range of bytes of the operation's buffer; in an all-to-all, of the buffer to send or the buffer to receive.
struct StreamPart {
  int64_t offset = 0;
  int64_t bytes = 0;
  bool reduce = false;  // only for incoming parts: add to the buffer's elements instead of overwriting them
  bool operator==(const StreamPart&) const = default;
};

struct StreamPlan {
  std::vector<StreamPart> outgoing;  // in the order of the stream; without parts of 0 bytes
  std::vector<StreamPart> incoming;
  // The first n bytes of the outgoing stream may be sent when n - free_bytes bytes of the incoming stream are in the buffer.
  int64_t free_bytes = 0;
};

// `used`: a plan that is not needed any more. The new plan reuses its memory, so planning a transfer of the same kind again
// allocates no memory.

// Plans the transfer of a buffer of shape (count).
StreamPlan PlanRingAllReduce(int32_t members, int32_t index, int64_t count, int64_t element_bytes, StreamPlan used = {});
// Plans the transfer of a buffer of shape (members, count).
StreamPlan PlanRingAllGather(int32_t members, int32_t index, int64_t count, int64_t element_bytes, StreamPlan used = {});
// Plans the transfer of a buffer of shape (members, count). Slot c is summed in the order c + 1, c + 2, ... of the members, and
// member c gets the sum.
StreamPlan PlanRingReduceScatter(int32_t members, int32_t index, int64_t count, int64_t element_bytes, StreamPlan used = {});
// Plans step `step` of an all-to-all, 1 <= step < members. The two buffers have shape (members, count). The member sends the
// slot of the member `step` places further from one buffer, and receives the slot of the member `step` places before into the
// other.
StreamPlan PlanAllToAllStep(int32_t members, int32_t index, int32_t step, int64_t count, int64_t element_bytes,
                            StreamPlan used = {});
StreamPlan PlanSend(int64_t count, int64_t element_bytes, StreamPlan used = {});
StreamPlan PlanReceive(int64_t count, int64_t element_bytes, StreamPlan used = {});

// A position in a stream of parts.
class StreamCursor {
 public:
  explicit StreamCursor(const std::vector<StreamPart>* parts);

  bool finished() const { return part_ == parts_->size(); }
  const StreamPart& part() const { return (*parts_)[part_]; }
  int64_t offset() const { return part().offset + done_; }  // the position in the buffer
  int64_t part_bytes_left() const { return part().bytes - done_; }
  int64_t total_done() const { return total_; }
  void Advance(int64_t bytes);  // `bytes` is at most part_bytes_left()

 private:
  const std::vector<StreamPart>* parts_;
  size_t part_ = 0;
  int64_t done_ = 0;   // bytes of the current part that are done
  int64_t total_ = 0;  // bytes of the whole stream that are done
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_RING_H_
