#include "tests/comparison/page.h"

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/comparison/figures.h"

namespace lynx::comparison {
namespace {

constexpr char kIntroduction[] = R"(# Lynx beside other recomputation policies

How long a step takes with Lynx's heuristic (HEU), which recomputes inside the windows of collectives and stalls and runs passes
side by side (weaving), and with policies that do neither, over limits for the activation memory and over sequence lengths.
This page and its figures are written by

```sh
build/bin/lynx_compare_figure . docs
```

and the tests in `tests/comparison` hold what it claims: at its best at least 1.6 times as fast as Megatron-LM's full
recomputation, 1.37 times with one pass at a time, and nowhere slower than the best policy without overlap. **All times are predicted.** None was measured on
these machines; [validation.md](validation.md) says how close the same cost model comes to published measurements.

## How

- One layout for each model (below), 1F1B, %d microbatches, one replica, 16-bit weights. So only the policy differs. Each
  policy gets the partition into stages that is best for it.
- A point's limit is what one rank may keep of activations: a share of what storing everything takes on the fullest rank.
  Points are left out where the limit and the model's states together are more than the device has.
- Every step is a plan of its own, validated and simulated action by action, by the same planner, cost model and memory
  model for all policies. A window's worth is net of the weight gradients that already run there, and work inside one is
  slowed by the cluster file's factor.
- **Megatron full** is `--recompute-granularity full --recompute-method uniform --recompute-num-layers 1`. Lynx's own `full`
  makes again only what the backward pass reads; Megatron-LM calls the whole layer again, with its last product and its
  second collective. So its time here is the simulated step of Lynx's `full` and the difference between both in closed
  form (`planner/frameworks/step_estimate.h`, whose layer and iteration times validation.md holds to published ones). Its transfers,
  order of ranks and reductions are Lynx's: only the policy differs.
- *Block N*, *selective* (the attention core) and *balanced* (norms and activation function; Yuan et al. 2024) are
  counted as Lynx runs them, which is never slower. *Full, keep collectives* repeats no collective. *No overlap* is the
  best without windows: for every stage, the least exposed time that fits, per tensor and layer (in the manner of
  Checkmate and AdaPipe). No framework that we know of has it.
- **Woven** is what the planner chooses if it may also run passes side by side (`parallel.weave: auto`), with microbatches of the
  same size or of half the size, twice as many: two halves that run side by side hold what one whole holds. *All that run one
  pass at a time* includes Lynx without weaving, with both sizes.
- Machines: [a100-80gb-nvlink](../examples/clusters/a100-80gb-nvlink.yaml) and
  [a100-40gb-pcie](../examples/clusters/a100-40gb-pcie.yaml), with the source of every number, estimates among them.
)";

constexpr char kReading[] = R"(
Two things make the difference: choosing per tensor, layer and stage, which *no overlap* does as well, and hiding what is
chosen. Over fast links windows are short, and nearly all of the gain is the choice; over slow ones they hide most of the
recomputation, the more so the less memory there is. Weaving adds a third where links are slow: the windows of the forward
pass, which nothing else fills, and all of the communication itself. Over fast links there is little to hide.
)";

std::string SecondsText(Nanos time) { return absl::StrFormat("%.3f", Seconds(time)); }
std::string Gib(Bytes bytes) { return absl::StrFormat("%.1f", static_cast<double>(bytes.value) / kGiB.value); }
std::string Times(double ratio) { return ratio == 0 ? "-" : absl::StrFormat("%.3f", ratio); }

std::optional<Nanos> BestStep(const Point& point) {
  const std::optional<Baseline> best = point.Best();
  return best ? point.Step(*best) : std::nullopt;
}

std::optional<Nanos> MegatronFull(const Point& point) { return point.Step(Baseline::kMegatronFull); }

std::optional<Nanos> BestOfMegatron(const Point& point) {
  std::optional<Nanos> best;
  for (const Baseline baseline : {Baseline::kMegatronFull, Baseline::kSelective, Baseline::kBlock, Baseline::kStoreAll}) {
    const std::optional<Nanos> step = point.Step(baseline);
    if (step && (!best || *step < *best)) best = step;
  }
  return best;
}

// `value` compares two policies at a point; 0: one of them does not fit. Uses only the curves of this cluster, and only the
// points at which something must be recomputed. Returns all values that are not 0, ascending.
std::vector<double> All(const std::vector<Curve>& curves, const std::string& cluster,
                        absl::FunctionRef<double(const Point&)> value) {
  std::vector<double> values;
  for (const Curve& curve : curves) {
    if (curve.setting.cluster != cluster) continue;
    for (const Point& point : curve.points) {
      if (const double one = value(point); point.Tight() && one > 0) values.push_back(one);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<std::string> Clusters(const std::vector<Curve>& curves) {
  std::vector<std::string> names;
  for (const Curve& curve : curves) {
    if (names.empty() || names.back() != curve.setting.cluster) names.push_back(curve.setting.cluster);
  }
  return names;
}

std::string Summary(const std::vector<Curve>& curves) {
  std::string text =
      "\n## Result\n\nHow many times as fast Lynx is, over all models, sequence lengths and limits at which both fit and "
      "storing everything does not: least, median and most. First with one pass at a time, so that only the policy differs; "
      "then as it plans by itself, with passes side by side (woven) where that pays:\n\n"
      "| cluster | over | one pass at a time | | | woven | | |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  for (const std::string& cluster : Clusters(curves)) {
    const auto cells = [&](absl::FunctionRef<double(const Point&)> value) {
      const std::vector<double> values = All(curves, cluster, value);
      if (values.empty()) return std::string(" - | - | - |");
      return absl::StrCat(" ", Times(values.front()), " | ", Times(values[values.size() / 2]), " | ", Times(values.back()),
                          " |");
    };
    const auto row = [&](const char* over, std::optional<Nanos> (*step)(const Point&)) {
      absl::StrAppend(&text, "| ", cluster, " | ", over, " |", cells([&](const Point& p) { return p.AloneOver(step(p)); }),
                      cells([&](const Point& p) { return p.SpeedupOver(step(p)); }), "\n");
    };
    row("Megatron full", MegatronFull);
    row("the best policy of Megatron-LM that fits", BestOfMegatron);
    row("the best of all policies without overlap", BestStep);
    row("the best of all that run one pass at a time", [](const Point& point) { return point.BestNotWoven(); });
  }
  return text + kReading;
}

std::string Figures(const std::vector<Curve>& curves) {
  std::string text = absl::StrCat(
      "\nThe most over Megatron full, by model and sequence length:\n\n![The most that Lynx is faster than Megatron-LM's "
      "full recomputation by, over the limits](",
      kSpeedupFigureName,
      ")\n\nThroughput as a share of what unlimited memory would give, over the limit as a share of what storing "
      "everything takes (what is below 50% stands at the edge):\n");
  for (const std::string& cluster : Clusters(curves)) {
    absl::StrAppend(&text, "\n**", cluster, "**\n\n![Throughput on ", cluster, "](", MemoryFigureName(cluster), ")\n");
  }
  return text;
}

std::string CurveTable(const Curve& curve) {
  const Setting& s = curve.setting;
  std::string text = absl::StrFormat(
      "\n**%s, %d tokens** (tp %d, pp %d, micro-batch %d): everything stored takes %s GiB and %s s\n\n"
      "| limit | GiB | Megatron full (s) | best without overlap | (s) | Lynx, one pass at a time (s) | over Megatron full | "
      "over "
      "the best | woven (s) | over Megatron full | over all of these |\n"
      "| ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
      s.model, s.seq, s.tp, s.pp, s.micro_batch, Gib(curve.stored), SecondsText(curve.unlimited));
  const auto seconds = [](std::optional<Nanos> step) { return step ? SecondsText(*step) : "-"; };
  for (const Point& point : curve.points) {
    const std::optional<Nanos> full = MegatronFull(point);
    const std::optional<Baseline> best = point.Best();
    absl::StrAppendFormat(&text, "| %.0f%%%s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", 100 * point.share,
                          point.Tight() ? "" : ", all fits", Gib(point.limit), seconds(full),
                          best ? BaselineName(*best) : "none fits", seconds(BestStep(point)), seconds(point.alone),
                          Times(point.AloneOver(full)), Times(point.AloneOver(BestStep(point))), seconds(point.lynx),
                          Times(point.SpeedupOver(full)), Times(point.SpeedupOver(point.BestNotWoven())));
  }
  return text;
}

}  // namespace

std::string MemoryFigureName(const std::string& cluster) { return absl::StrCat("images/comparison-", cluster, ".svg"); }

std::string ComparisonPage(const std::vector<Curve>& curves) {
  std::string text = absl::StrFormat(absl::ParsedFormat<'d'>(kIntroduction), kMicrobatches);
  text += Summary(curves);
  text += Figures(curves);
  text += "\n## Every point\n";
  for (const std::string& cluster : Clusters(curves)) {
    absl::StrAppend(&text, "\n<details><summary>", cluster, "</summary>\n");
    for (const Curve& curve : curves) {
      if (curve.setting.cluster == cluster) text += CurveTable(curve);
    }
    text += "\n</details>\n";
  }
  return text;
}

}  // namespace lynx::comparison
