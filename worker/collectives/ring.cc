#include "worker/collectives/ring.h"

#include <utility>

#include "common/check.h"

namespace lynx::worker {
namespace {

void Append(std::vector<StreamPart>& parts, StreamPart part) {
  if (part.bytes > 0) parts.push_back(part);
}

StreamPlan Emptied(StreamPlan plan) {
  plan.outgoing.clear();
  plan.incoming.clear();
  plan.free_bytes = 0;
  return plan;
}

}  // namespace

StreamPlan PlanRingAllReduce(int32_t members, int32_t index, int64_t count, int64_t element_bytes, StreamPlan used) {
  LYNX_CHECK(members >= 1 && index >= 0 && index < members && count >= 0);
  const auto chunk = [&](int32_t number, bool reduce) {
    const int64_t c = (number % members + members) % members;
    const int64_t begin = count * c / members;
    const int64_t end = count * (c + 1) / members;
    return StreamPart{begin * element_bytes, (end - begin) * element_bytes, reduce};
  };
  StreamPlan plan = Emptied(std::move(used));
  plan.free_bytes = members > 1 ? chunk(index, false).bytes : 0;
  for (int32_t step = 0; step < members - 1; ++step) {  // reduce-scatter
    Append(plan.outgoing, chunk(index - step, false));
    Append(plan.incoming, chunk(index - step - 1, true));
  }
  for (int32_t step = 0; step < members - 1; ++step) {  // all-gather
    Append(plan.outgoing, chunk(index + 1 - step, false));
    Append(plan.incoming, chunk(index - step, false));
  }
  return plan;
}

StreamPlan PlanRingReduceScatter(int32_t members, int32_t index, int64_t count, int64_t element_bytes, StreamPlan used) {
  LYNX_CHECK(members >= 1 && index >= 0 && index < members && count >= 0);
  const int64_t slot_bytes = count * element_bytes;
  const auto slot = [&](int32_t number, bool reduce) {
    return StreamPart{(number + 2 * members) % members * slot_bytes, slot_bytes, reduce};
  };
  StreamPlan plan = Emptied(std::move(used));
  plan.free_bytes = members > 1 ? slot_bytes : 0;
  for (int32_t step = 0; step < members - 1; ++step) {
    Append(plan.outgoing, slot(index - 1 - step, false));
    Append(plan.incoming, slot(index - 2 - step, true));
  }
  return plan;
}

StreamPlan PlanRingAllGather(int32_t members, int32_t index, int64_t count, int64_t element_bytes, StreamPlan used) {
  LYNX_CHECK(members >= 1 && index >= 0 && index < members && count >= 0);
  const int64_t slot_bytes = count * element_bytes;
  const auto slot = [&](int32_t number) {
    return StreamPart{(number % members + members) % members * slot_bytes, slot_bytes, false};
  };
  StreamPlan plan = Emptied(std::move(used));
  plan.free_bytes = members > 1 ? slot_bytes : 0;
  for (int32_t step = 0; step < members - 1; ++step) {
    Append(plan.outgoing, slot(index - step));
    Append(plan.incoming, slot(index - step - 1));
  }
  return plan;
}

StreamPlan PlanAllToAllStep(int32_t members, int32_t index, int32_t step, int64_t count, int64_t element_bytes,
                            StreamPlan used) {
  LYNX_CHECK(index >= 0 && index < members && step >= 1 && step < members && count >= 0);
  const int64_t slot_bytes = count * element_bytes;
  StreamPlan plan = Emptied(std::move(used));
  Append(plan.outgoing, {(index + step) % members * slot_bytes, slot_bytes, false});
  Append(plan.incoming, {(index + members - step) % members * slot_bytes, slot_bytes, false});
  plan.free_bytes = slot_bytes;
  return plan;
}

StreamPlan PlanSend(int64_t count, int64_t element_bytes, StreamPlan used) {
  LYNX_CHECK(count >= 0);
  StreamPlan plan = Emptied(std::move(used));
  Append(plan.outgoing, {0, count * element_bytes, false});
  plan.free_bytes = count * element_bytes;
  return plan;
}

StreamPlan PlanReceive(int64_t count, int64_t element_bytes, StreamPlan used) {
  LYNX_CHECK(count >= 0);
  StreamPlan plan = Emptied(std::move(used));
  Append(plan.incoming, {0, count * element_bytes, false});
  return plan;
}

StreamCursor::StreamCursor(const std::vector<StreamPart>* parts) : parts_(parts) {}

void StreamCursor::Advance(int64_t bytes) {
  LYNX_CHECK(bytes >= 0 && (bytes == 0 || bytes <= part_bytes_left()));
  total_ += bytes;
  done_ += bytes;
  if (!finished() && done_ == part().bytes) {
    ++part_;
    done_ = 0;
  }
}

}  // namespace lynx::worker
