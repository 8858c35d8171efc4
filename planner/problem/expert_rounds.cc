#include "planner/problem/expert_rounds.h"

#include "common/check.h"

namespace lynx {
namespace {

constexpr int64_t kWide = 4;  // bytes of a 32-bit element

// Gives out places in the workspace, one after another.
class Places {
 public:
  Bytes Next(int64_t elements, int64_t element_bytes) {
    const Bytes at = end_;
    end_ += Padded(Bytes(elements * element_bytes));
    return at;
  }
  Bytes end() const { return end_; }

 private:
  Bytes end_;
};

}  // namespace

RoundScratch RoundScratchOf(Pass pass, const LayerShape& shape) {
  LYNX_CHECK(shape.round_room() > 0 && pass != Pass::kWeight);
  const bool backward = pass == Pass::kBackward, exchanged = shape.ep > 1;
  const int64_t rows = shape.experts * shape.round_room(), element = shape.element_bytes();
  const int64_t choices = shape.shard_tokens() * shape.top_k;
  Places places;
  RoundScratch at;
  if (backward) at.late = places.Next(choices, kWide);
  at.route = places.Next(3 * choices, kWide);
  if (!backward) at.counts = places.Next(shape.ep, kWide);
  at.sent = places.Next(rows * shape.hidden, element);
  at.received = exchanged ? places.Next(rows * shape.hidden, element) : at.sent;
  at.sent_weights = places.Next(rows, kWide);
  at.received_weights = exchanged ? places.Next(rows, kWide) : at.sent_weights;
  at.fc1 = places.Next(rows * shape.fc1_width(), element);
  at.silu = places.Next(rows * shape.mlp_width(), element);
  at.swiglu = places.Next(rows * shape.mlp_width(), element);
  if (backward) {
    at.grad_results = places.Next(rows * shape.hidden, element);
    at.grad_fc1 = places.Next(rows * shape.fc1_width(), element);
    at.grad_sent_weights = places.Next(rows, kWide);
    at.grad_received_weights = exchanged ? places.Next(rows, kWide) : at.grad_sent_weights;
  }
  at.total = places.end();
  return at;
}

}  // namespace lynx
