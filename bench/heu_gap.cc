// Compares HEU (the heuristic for recomputation) with OPT (the exact MILP) on more or larger stages than the tests have:
// heu_gap LAYERS STAGES SECONDS [KIND [COLUMNS [FIRST]]]. Makes STAGES random transformer stages of up to LAYERS layers (seeds
// from FIRST on; default 1), gives OPT SECONDS for each stage, and prints the stages where HEU and OPT differ or no proof was
// found. KIND: "plain"; "mixed": every second stage has sequence parallelism; "woven": passes run side by side in pairs;
// "offload": every stage may send tensors to the host. COLUMNS: if the MILP of a stage has more columns than this number, OPT
// stops without a result for this stage (default: no limit).
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "planner/opt/stage_opt.h"
#include "planner/recompute/stage_offload.h"
#include "tests/planner/recompute/random_stages.h"

namespace lynx {
namespace {

enum class Kind { kPlain, kMixed, kWoven, kOffload };

std::optional<Kind> KindOf(const std::string& name) {
  if (name == "plain") return Kind::kPlain;
  if (name == "mixed") return Kind::kMixed;
  if (name == "woven") return Kind::kWoven;
  if (name == "offload") return Kind::kOffload;
  return std::nullopt;
}

RecomputeProblem StageOf(Kind kind, RandomNumbers& number, int layers) {
  if (kind == Kind::kOffload) return RandomOffloadStage(number, layers);
  return RandomStage(number, layers, kind == Kind::kMixed, kind == Kind::kWoven ? WeaveMode::kPairs : WeaveMode::kOff);
}

// The exposed time of HEU's policy. For kOffload, offloading is decided over the whole stage, as for a plan. For all other
// kinds the result is `start`, the exposed time of the HEU solution with which OPT starts.
int64_t HeuExposes(Kind kind, const RecomputeProblem& problem, Nanos start) {
  if (kind != Kind::kOffload) return start.value;
  const StageHeu heu(WithoutOffloading(problem));
  return BestWithOffloading(heu, StageHeu(problem), problem, /*copy_slowdown_permille=*/1000)->value.exposed.value;
}

int Run(int layers, int stages, double seconds, Kind kind, int32_t columns, int first) {
  HeuGaps gaps;
  double worst_open = 0;
  for (int seed = first; seed < first + stages; ++seed) {
    RandomNumbers number(static_cast<uint32_t>(seed));
    const RecomputeProblem problem = StageOf(kind, number, layers);
    const absl::StatusOr<OptResult> opt = SolveStage(problem, {.seconds = seconds, .columns = columns, .least_memory = false});
    if (!opt.ok() || !opt->solution || !opt->start) {
      std::fprintf(stderr, "seed %d: %s\n", seed, opt.status().ToString().c_str());
      return 1;
    }
    const int64_t heu = HeuExposes(kind, problem, *opt->start), best = opt->solution->value.exposed.value;
    if (heu != best || opt->status != OptStatus::kOptimal) {
      std::printf("seed %d: %d layers, HEU %.1f us, OPT %.1f us, bound %.1f us: %s\n", seed, problem.layers,
                  static_cast<double>(heu) * 1e-3, static_cast<double>(best) * 1e-3,
                  static_cast<double>(opt->bound.value) * 1e-3, OptStatusName(opt->status));
    }
    if (opt->status == OptStatus::kOptimal) {
      gaps.Add(Nanos(heu), opt->solution->value.exposed);
    } else {
      ++gaps.not_proven;
      if (heu > 0)
        worst_open = std::max(worst_open, 100 - 100 * static_cast<double>(opt->bound.value) / static_cast<double>(heu));
    }
  }
  gaps.Print("transformer stages");
  std::printf("not proven: at most %.1f%% of HEU's exposed time could be saved\n", worst_open);
  return 0;
}

}  // namespace
}  // namespace lynx

int main(int argc, char** argv) {
  const std::optional<lynx::Kind> kind = lynx::KindOf(argc > 4 ? argv[4] : "plain");
  if (argc < 4 || argc > 7 || !kind) {
    std::fprintf(stderr, "usage: heu_gap LAYERS STAGES SECONDS [plain|mixed|woven|offload [COLUMNS [FIRST]]]\n");
    return 2;
  }
  const int32_t columns = argc > 5 ? std::atoi(argv[5]) : std::numeric_limits<int32_t>::max();
  const int first = argc > 6 ? std::atoi(argv[6]) : 1;
  return lynx::Run(std::atoi(argv[1]), std::atoi(argv[2]), std::atof(argv[3]), *kind, columns, first);
}
