// StagePeaks finds the peak of a pipeline rank's activations without lowering the rank's whole step. In a 1F1B pipeline, the
// rank's memory repeats from microbatch to microbatch, and each further microbatch in flight adds exactly the bytes that one
// microbatch stores. So a program with few microbatches in a short pipeline is enough to compute every peak:
//
//     peak(n in flight) = peak(2 in flight) + (n - 2) * stored
//
// In this formula, `stored` is the padded bytes of one microbatch that the policy stores on the device, with the inputs of
// layers. If tensors are offloaded, the same holds from four microbatches in flight on (RepeatsFrom). The formula holds only
// for policies that store the same bytes of every microbatch (StoresAlike). The arena is rarely larger than the peak of the
// live buffers. In a model whose first layers have no experts, the peaks are those of a rank whose layers all have experts. Not
// thread-safe.
#ifndef LYNX_PLANNER_CANDIDATES_STAGE_PEAKS_H_
#define LYNX_PLANNER_CANDIDATES_STAGE_PEAKS_H_

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "common/units.h"
#include "planner/problem/layout.h"
#include "planner/problem/stage_context.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {

// Which ends of the model (embedding, head) a rank has.
struct SliceEnds {
  bool embedding = false;
  bool head = false;
  auto operator<=>(const SliceEnds&) const = default;
};

// Returns a layout with only those parts on which the memory of one layer depends: tp, cp, sequence parallelism, which
// gradients and weights are sharded, and over how many ranks.
ParallelLayout LayerLayout(const ParallelLayout& layout);

// True if no layer's input is recomputed. (The memory for recomputing inputs depends on the actions before and after.)
bool StoresAlike(const StagePolicy& policy);
// True if the policy offloads any tensor.
bool Offloads(const StagePolicy& policy);
// Each microbatch in flight above this number adds exactly its stored bytes.
int32_t RepeatsFrom(const StagePolicy& policy);

class StagePeaks {
 public:
  // StagePeaks uses only the parts of the layout that LayerLayout returns.
  StagePeaks(const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch);

  // Peak of live memory of a step with `microbatches` microbatches, of which at most `in_flight` are held at the same time. The
  // policy must pass StoresAlike, and 1 <= in_flight <= microbatches must hold. A rank with the head has one microbatch in
  // flight.
  Bytes Peak(SliceEnds ends, const StagePolicy& policy, int32_t in_flight, int32_t microbatches);
  // StoredOf: bytes of one microbatch that are held between F and B. StoredForWeights: bytes of one microbatch that are held
  // between B and W, if weight gradients are split off.
  Bytes StoredOf(SliceEnds ends, const StagePolicy& policy);
  Bytes StoredForWeights(SliceEnds ends, const StagePolicy& policy);

 private:
  StageContext ProbeContext(SliceEnds ends, int32_t layers, int32_t in_flight, int32_t more) const;
  Bytes Probe(SliceEnds ends, const StagePolicy& policy, int32_t in_flight, int32_t more) const;
  Bytes StoredLayers(const StagePolicy& policy) const;

  ModelSpec model_;
  ParallelLayout layout_;
  int32_t micro_batch_;
  LayerShape shape_;
  std::map<SliceEnds, Bytes> beside_layers_;  // stored bytes of a microbatch that do not belong to transformer layers
  // The key: the ends of the model; the number of microbatches in flight; the number of microbatches of the step beyond those
  // in flight; the policies of the layers.
  std::map<std::tuple<SliceEnds, int32_t, int32_t, std::vector<LayerPolicy>>, Bytes> peaks_;
  std::map<std::pair<SliceEnds, std::vector<LayerPolicy>>, Bytes> for_weights_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_STAGE_PEAKS_H_
