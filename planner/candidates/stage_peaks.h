// StagePeaks finds the peak of a pipeline rank's activations without lowering its whole step. In a 1F1B pipeline the
// rank's memory repeats microbatch by microbatch, and each further microbatch in flight adds exactly the bytes that one
// stores. So a program with few microbatches in a short pipeline determines the rest:
//
//     peak(n in flight) = peak(2 in flight) + (n - 2) * stored
//
// with `stored` the padded bytes of a microbatch that the policy stores on the device, layer inputs included. If tensors
// go to the host, the same holds from four in flight on (RepeatsFrom). It holds only for policies that store the same of
// every microbatch: StoresAlike. The arena that holds the live buffers is rarely larger than their peak. Not thread-safe.
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

// Which ends of the model a rank has.
struct SliceEnds {
  bool embedding = false;
  bool head = false;
  auto operator<=>(const SliceEnds&) const = default;
};

// The parts of a layout on which a rank's memory for a layer depends: tp, cp, sequence parallelism, and which gradients
// and weights are sharded over how many ranks.
ParallelLayout LayerLayout(const ParallelLayout& layout);

// True if no layer's input is recomputed; the memory of such a recomputation depends on what runs beside it.
bool StoresAlike(const StagePolicy& policy);
// Whether any tensor goes to the host.
bool Offloads(const StagePolicy& policy);
// Each microbatch in flight beyond this number adds exactly what is stored of it.
int32_t RepeatsFrom(const StagePolicy& policy);

class StagePeaks {
 public:
  // Only LayerLayout of the layout is used.
  StagePeaks(const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch);

  // Peak of live memory with `in_flight` microbatches held and `microbatches` in all. The policy must pass StoresAlike,
  // and 1 <= in_flight <= microbatches. A rank with the head has one in flight.
  Bytes Peak(SliceEnds ends, const StagePolicy& policy, int32_t in_flight, int32_t microbatches);
  // Bytes of one microbatch that are held between F and B, and, if weights are split off, between B and W.
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
  std::map<SliceEnds, Bytes> beside_layers_;  // bytes stored of a microbatch, without transformer layers
  // Probes by ends, microbatches in flight, further microbatches and policy.
  std::map<std::tuple<SliceEnds, int32_t, int32_t, std::vector<LayerPolicy>>, Bytes> peaks_;
  std::map<std::pair<SliceEnds, std::vector<LayerPolicy>>, Bytes> for_weights_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_STAGE_PEAKS_H_
