#include "tests/validation/report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "tests/validation/korthikanti.h"
#include "tests/validation/vtrain.h"
#include "tests/validation/yuan.h"

namespace lynx::validation {
namespace {

// Returns the value with no digits after the point from 1000 on, with one from 100 on, with two from 1 on, and with three
// below.
std::string Figure(double value) {
  const double size = std::fabs(value);
  return size >= 1000  ? absl::StrFormat("%.0f", value)
         : size >= 100 ? absl::StrFormat("%.1f", value)
         : size >= 1   ? absl::StrFormat("%.2f", value)
                       : absl::StrFormat("%.3f", value);
}

std::string Percent(double share) { return absl::StrFormat("%.1f%%", 100 * share); }

std::string Heading(const std::string& first, const std::string& unit) {
  return absl::StrCat("\n| ", first, " | | published (", unit, ") | Lynx (", unit,
                      ") | error |\n| --- | --- | ---: | ---: | ---: |\n");
}

std::string Line(const Comparison& one) {
  const bool known = one.published != 0;
  return absl::StrCat("| ", one.row, " | ", one.what, " | ", known ? Figure(one.published) : "", " | ", Figure(one.ours), " | ",
                      known ? absl::StrFormat("%+.1f%%", 100 * one.error()) : "", " |\n");
}

// Returns a table. All its figures have the same unit.
std::string TableOf(const std::string& first, const std::vector<Comparison>& all) {
  std::string text = Heading(first, all.front().unit);
  for (const Comparison& one : all) text += Line(one);
  return text;
}

std::string Errors(const std::vector<Comparison>& all) {
  return absl::StrCat("\nMean error ", Percent(MeanError(all)), ", median ", Percent(MedianError(all)), ", worst ",
                      Percent(WorstError(all)), ".\n");
}

std::string Constants(const std::vector<Constant>& constants) {
  std::string text = "\n| constant | fitted value |\n| --- | ---: |\n";
  for (const Constant& one : constants) {
    absl::StrAppend(&text, "| ", one.name, " | ", absl::StrFormat("%.3f", one.value / 1000.0), " |\n");
  }
  return text;
}

constexpr char kIntroduction[] = R"(# Validation

The planner's figures beside published ones. This page is written by

```sh
build/bin/lynx_validate . docs/validation.md
```

and held by the tests in `tests/validation`, which also hold the thresholds. The published figures are in
`tests/validation/reference`; rates and links are in `examples/clusters`, with the source of each. Times come from the
layer graph, the cost model and the schedules' timelines that plans are made with (`planner/frameworks/step_estimate.h`), run as
the measured framework ran: Megatron-LM recomputes whole functions, waits for transfers between stages where it did,
and numbers replicas before stages.
)";

constexpr char kModelText[] = R"(
## The model

An op takes max(FLOPs / rate, bytes / bandwidth) and a fixed overhead (`planner/cost/op_cost.h`). Products pay for the idle
units of their last wave of tiles, and for writing what they computed: a weight gradient reads and writes its 32-bit
sum, which counts when a microbatch is small. Unfused attention, the loss and the optimizer are bound by memory and
counted kernel by kernel; fused attention follows published curves by sequence length. Collectives are rings over the
slowest link that they need, at the rate that rings reach; between nodes they use several adapters, where the file says that
a node has them. A weight gradient hides its layer's backward collective and
takes longer beside it. Interleaved schedules come from the generator, their bubbles from the timeline; the embedding,
the head, transfers, the reduction of tied embeddings and the optimizer are counted where they stand.

)";

std::string KorthikantiText(const Table& table, const HardwareProfile& a100) {
  const LayerFit fit = FitToLayerTimes(table, a100);
  const std::vector<Comparison> layers = LayerTimes(table, a100), iterations = IterationTimes(table, a100);
  std::string text =
      "\n## Korthikanti et al. 2022: one layer (table 4)\n\nOf the 22B model, on A100. Three constants are fitted "
      "here, "
      "and nowhere else; everything else in `examples/clusters/a100-80gb-nvlink.yaml` is public or says that it is "
      "an estimate.\n";
  absl::StrAppend(&text, Constants(fit.constants), TableOf("technique", layers), Errors(layers));
  absl::StrAppend(&text,
                  "\n## Korthikanti et al. 2022: iterations (table 5)\n\nNothing is fitted to these times. What has no "
                  "published time beside it is a prediction.\n",
                  TableOf("model", IterationPredictions(table, a100)), Errors(iterations));
  return text;
}

std::string KorthikantiFormulas(const Table& table) {
  const std::vector<Comparison> memory = LayerMemory(table), stage = StageMemory(table), use = Utilization(table);
  std::string text =
      "\n## Korthikanti et al. 2022: memory\n\nBytes that a layer keeps of a microbatch: the paper's formulas beside "
      "the fold over a lowered program (`planner/program/memory_model.h`), which also sizes the engine's arena.\n";
  absl::StrAppend(&text, TableOf("model", memory), Errors(memory));
  text +=
      "\nFull recomputation is counted as in the paper, by the layer's input. Lynx does not compute the layer's last "
      "product "
      "and addition again, and keeps the mask of that addition's dropout, sbh bytes more, where masks are stored.\n";
  text += "\nThe first stage, with the microbatches that its schedule holds in flight, and the ends of the pipeline:\n";
  std::vector<Comparison> bytes, shares;
  for (const Comparison& one : stage) (one.unit == "%" ? shares : bytes).push_back(one);
  absl::StrAppend(&text, TableOf("model", bytes), TableOf("model", shares), Errors(stage));
  absl::StrAppend(&text,
                  "\n## Korthikanti et al. 2022: utilization\n\nFrom the published times, by `planner/problem/flops.h`.\n",
                  TableOf("model", use), Errors(use));
  return text;
}

std::string YuanText(const Table& table, const HardwareProfile& a100, const HardwareProfile& h800) {
  const SearchedFit fit = FitToSearchedTimes(table, h800);
  const std::vector<Comparison> times = SearchedTimes(table, h800), memory = OffloadedMemory(table);
  const std::vector<Comparison> demo = DemoThroughput(table, a100, h800), use = DemoUtilization(table);
  std::string text =
      "\n## Yuan et al. 2024: iterations (figure 9)\n\nSearched configurations on up to 256 H800. One constant is "
      "fitted "
      "for all of them; everything else in `examples/clusters/h800.yaml` is public or says that it is an estimate. "
      "Replicas that the devices of a node do not divide (dp 3, 5, 6, 7) are slower than predicted.\n";
  absl::StrAppend(&text, Constants(fit.constants), TableOf("configuration", times), Errors(times));
  absl::StrAppend(&text,
                  "\n## Yuan et al. 2024: the 7B demonstration\n\nNothing is fitted to it. On A800 with the constants of A100 "
                  "above.\n",
                  TableOf("devices", demo), Errors(demo), "\nUtilization, from the published throughput:\n",
                  TableOf("devices", use), Errors(use));
  absl::StrAppend(
      &text,
      "\n## Yuan et al. 2024: memory under offloading (figure 7)\n\nOur model: states + 1.2 GB + C (n (1 - alpha) + "
      "4 alpha), with C from the layer graph, n from the schedule and the states of ZeRO-1.\n",
      TableOf("configuration", memory), Errors(memory));
  text +=
      "\n## Yuan et al. 2024: offloaded shares (figure 9)\n\nThe least share that fits 68.165 GB by that model.\n\n| "
      "configuration | "
      "published | Lynx | difference |\n| --- | ---: | ---: | ---: |\n";
  for (const Comparison& one : OffloadedShares(table)) {
    absl::StrAppendFormat(&text, "| %s | %.3f | %.3f | %+.4f |\n", one.row, one.published, one.ours, one.ours - one.published);
  }
  return text;
}

std::string VtrainText(const Table& table, const HardwareProfile& a100) {
  std::string text =
      "\n## vTrain (Bang et al. 2024): the choice among measured layouts\n\nMeasured steps of Megatron-DeepSpeed on nodes of "
      "8 A100 (800 Gb/s a node), with full recomputation and 1F1B, in many layouts of one model on the same devices. Which "
      "layout has the shortest step by the cost model, and how much slower is it, measured, than the layout that was fastest? "
      "Nothing is fitted to these times. *Adapters* is `links.network.adapters`: with all eight, a ring that has several "
      "members "
      "in a node uses the adapter of each, as rings of NCCL do.\n\n| model | layouts | adapters | chosen | measured fastest | "
      "slower by | median error of all steps |\n| --- | ---: | ---: | --- | --- | ---: | ---: |\n";
  for (const int32_t adapters : {a100.adapters, 1}) {
    for (const LayoutChoice& one : LayoutChoices(table, a100, adapters)) {
      absl::StrAppendFormat(&text, "| %s | %d | %d | %s | %s | %s | %s |\n", one.name, one.layouts, adapters, one.chosen,
                            one.fastest, Percent(one.regret), Percent(one.error));
    }
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> ValidationReport(const std::string& source_dir) {
  const std::string reference = source_dir + "/tests/validation/reference/";
  LYNX_ASSIGN_OR_RETURN(const Table korthikanti, ReadTable(reference + "korthikanti_2022.csv"));
  LYNX_ASSIGN_OR_RETURN(const Table yuan, ReadTable(reference + "yuan_atc24.csv"));
  LYNX_ASSIGN_OR_RETURN(const Table vtrain, ReadTable(reference + "vtrain_micro24.csv"));
  const HardwareProfile a100 = ProfileOf(source_dir + "/examples/clusters/a100-80gb-nvlink.yaml");
  const HardwareProfile h800 = ProfileOf(source_dir + "/examples/clusters/h800.yaml");
  return absl::StrCat(kIntroduction, kModelText, KorthikantiText(korthikanti, a100), YuanText(yuan, a100, h800),
                      VtrainText(vtrain, a100), KorthikantiFormulas(korthikanti));
}

}  // namespace lynx::validation
