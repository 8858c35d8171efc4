// Ring collectives as byte streams. A member of a ring sends one stream to the next member and receives one from the previous
// member. It passes on what it has received (while reducing, with its own values added), so an element may be sent as soon as
// it has come in: no step waits for a whole chunk.
//
// All-reduce is a reduce-scatter and an all-gather (Patarasuk and Yuan 2009): 2(n-1) chunks of count/n. Chunk c is summed in
// the order c, c+1, ... of the members, and the finished sum is copied to all, so every member ends with the same bits. An
// element's final value reaches a member only after that member has sent its own contribution, so results are received in
// place. Pure; thread-safe.
#ifndef LYNX_WORKER_COLLECTIVES_RING_H_
#define LYNX_WORKER_COLLECTIVES_RING_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lynx::worker {

// A contiguous range of bytes of the operation's buffer.
struct StreamPart {
  int64_t offset = 0;
  int64_t bytes = 0;
  bool reduce = false;  // incoming only: add to the buffer's elements instead of overwriting them
  bool operator==(const StreamPart&) const = default;
};

struct StreamPlan {
  std::vector<StreamPart> outgoing;  // in the order of the stream; parts of 0 bytes are left out
  std::vector<StreamPart> incoming;
  // Outgoing byte k may be sent when k - free_bytes incoming bytes are in place.
  int64_t free_bytes = 0;
};

// `used`: a plan that is no longer needed. Its memory is reused, so that a transfer like an earlier one allocates nothing.

// Plans the transfer of a buffer of shape (count).
StreamPlan PlanRingAllReduce(int32_t members, int32_t index, int64_t count, int64_t element_bytes, StreamPlan used = {});
// Plans the transfer of a buffer of shape (members, count).
StreamPlan PlanRingAllGather(int32_t members, int32_t index, int64_t count, int64_t element_bytes, StreamPlan used = {});
// Plans the transfer of a buffer of shape (members, count): the sum of slot c is made in the order c + 1, c + 2, ... of the
// members and ends at c.
StreamPlan PlanRingReduceScatter(int32_t members, int32_t index, int64_t count, int64_t element_bytes, StreamPlan used = {});
StreamPlan PlanSend(int64_t count, int64_t element_bytes, StreamPlan used = {});
StreamPlan PlanReceive(int64_t count, int64_t element_bytes, StreamPlan used = {});

// A position in a stream of parts.
class StreamCursor {
 public:
  explicit StreamCursor(const std::vector<StreamPart>* parts);

  bool finished() const { return part_ == parts_->size(); }
  const StreamPart& part() const { return (*parts_)[part_]; }
  int64_t offset() const { return part().offset + done_; }  // in the buffer
  int64_t part_bytes_left() const { return part().bytes - done_; }
  int64_t total_done() const { return total_; }
  void Advance(int64_t bytes);  // at most part_bytes_left()

 private:
  const std::vector<StreamPart>* parts_;
  size_t part_ = 0;
  int64_t done_ = 0;   // bytes of the current part
  int64_t total_ = 0;  // bytes of the stream
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_RING_H_
