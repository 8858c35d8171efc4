#include "worker/backend/cuda/marks.h"

#include "common/check.h"

namespace lynx::worker::cuda {

Marks::~Marks() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

cudaEvent_t Marks::Next() {
  if (!ops_.ok()) return nullptr;
  if (used_ == static_cast<int32_t>(events_.size())) {
    cudaEvent_t event = nullptr;
    ops_.Note(cudaEventCreateWithFlags(&event, cudaEventDefault), "creating an event");
    if (!ops_.ok()) return nullptr;
    events_.push_back(event);
  }
  return events_[static_cast<size_t>(used_++)];
}

Nanos Marks::Begin(cudaStream_t stream) {
  used_ = 0;
  if (const cudaEvent_t first = Next(); first != nullptr) {
    ops_.Note(cudaEventRecord(first, stream), "recording an event");
    ops_.Note(cudaEventSynchronize(first), "an op that was issued before");
  }
  // The clock is read after the event is reached. So the computed time of a mark is never too early.
  begin_ = clock_.Monotonic();
  return begin_;
}

Moment Marks::Record(cudaStream_t stream) {
  if (used_ == 0) Begin(stream);  // the first event must be before every mark
  const cudaEvent_t event = Next();
  if (event == nullptr) return {};
  ops_.Note(cudaEventRecord(event, stream), "recording an event");
  return Moment::OfMark(used_ - 1);
}

cudaEvent_t Marks::EventOf(Moment moment) const {
  LYNX_CHECK(moment.mark > 0 && moment.mark < used_);
  return events_[static_cast<size_t>(moment.mark)];
}

void Marks::Follow(Moment moment, cudaStream_t stream) {
  if (!moment.is_mark() || !ops_.ok()) return;
  ops_.Note(cudaStreamWaitEvent(stream, EventOf(moment), cudaEventWaitDefault), "waiting for an event");
}

Nanos Marks::TimeOf(Moment moment) {
  if (!moment.is_mark()) return moment.time;
  if (!ops_.ok()) return Nanos(0);
  float milliseconds = 0;
  ops_.Note(cudaEventElapsedTime(&milliseconds, events_.front(), EventOf(moment)), "reading an event's time");
  return ops_.ok() ? begin_ + Nanos(static_cast<int64_t>(double{milliseconds} * 1e6)) : Nanos(0);
}

}  // namespace lynx::worker::cuda
