// Reads published training runs (tests/validation/reference/published_runs.csv and framework_ci_memory.csv), and says for each
// run what the planner can predict of it, or why it cannot. Not thread-safe.
#ifndef LYNX_TESTS_VALIDATION_PUBLISHED_RUN_H_
#define LYNX_TESTS_VALIDATION_PUBLISHED_RUN_H_

#include <string>
#include <vector>

#include "common/enum_names.h"
#include "planner/frameworks/step_estimate.h"
#include "tests/validation/published.h"

namespace lynx::validation {

// Why the planner cannot predict a run. kExperts: a mixture of experts that cannot be described. kShardedExperts: tensor
// parallelism shards each expert. kIncomplete: the publication leaves out the shape, the layout or a batch. kFault: the
// publication says that a fault of a library made the run slow.
enum class Obstacle : uint8_t {
  kNone,
  kIncomplete,
  kExperts,
  kShardedExperts,
  kDevice,
  kEncoder,
  kPolicy,
  kSchedule,
  kFramework,
  kFault
};
inline constexpr int kObstacleCount = 10;

}  // namespace lynx::validation

namespace lynx {

template <>
inline constexpr auto kEnumNames<validation::Obstacle> = EnumTable("none", "incomplete", "unplanned mixture", "sharded experts",
                                                                   "no cluster file", "another model or task",
                                                                   "another policy or precision", "schedule",
                                                                   "another framework", "a fault that it names");

}  // namespace lynx

namespace lynx::validation {

// Fused attention of 2023, before FlashAttention-2, compared with the curves of the cluster files
// (FrameworkTraits::attention_permille). Fitted: see FittedConstants.
inline constexpr int32_t kOldAttentionOnA100 = 490;
inline constexpr int32_t kOldAttentionOnH100 = 320;

struct RunOfFramework {
  std::string row;     // the row's name, such as "runs:2"
  std::string source;  // the publication, as docs/validation.md names it
  std::string model;   // rows of one source with equal `model` differ only in layout, micro-batch and recomputation
  Framework framework = Framework::kLynx;
  Obstacle obstacle = Obstacle::kNone;
  bool described = false;  // `request` and what follows are complete; with Obstacle::kDevice only the time cannot be predicted
  StepRequest request;     // ranks_per_node is not set
  std::string cluster;     // a file of examples/clusters, without its ending; "" with Obstacle::kDevice
  double network_gbits_of_node = 0;  // what all adapters of a node reach together, in Gbit/s; 0: as the file says
  int32_t adapters = 0;              // 0: as the file says
  // The publication does not say the micro-batch or the number of virtual stages. Then the fastest one that the framework can
  // run is used.
  bool tuned_micro_batch = false, tuned_virtual_stages = false;
  // The publication says whether the run recomputed. If not, it is predicted without recomputation.
  bool states_recompute = false;
  double step_seconds = 0;         // measured; 0 = not published
  double memory_bytes = 0;         // measured peak of one device; 0 = not published
  bool last_stage_memory = false;  // memory_bytes is the last stage's, not the largest
  bool fitted = false;             // constants may be fitted to this row; rows without this mark only test them
};

// The runs of published_runs.csv, in the order of its rows.
std::vector<RunOfFramework> RunsOfTable(const Table& table);
// The runs of framework_ci_memory.csv.
std::vector<RunOfFramework> IntegrationRuns(const Table& table);

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_PUBLISHED_RUN_H_
