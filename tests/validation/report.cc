#include "tests/validation/report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "tests/validation/korthikanti.h"
#include "tests/validation/score.h"
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
counted kernel by kernel; fused attention follows published curves by sequence length. Collectives take the
slowest link that they need, at the rate that rings reach; between nodes they use several adapters, where the file says that
a node has them, and an all-reduce is a ring or goes by trees, whichever is faster
(`planner/cost/group_path.h`). A weight gradient hides its layer's backward collective and
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

constexpr char kScoreIntroduction[] = R"(
## Published runs of other frameworks

Every training run in `tests/validation/reference/published_runs.csv` and `framework_ci_memory.csv` that the planner can express,
predicted as its framework ran it (`planner/frameworks`). The tables are printed by

```sh
build/bin/lynx_score .
```

and `build/bin/lynx_score . SOURCE` prints a line for each run of a source. Each row of a source names where the figures were
published. An error is predicted / measured - 1. Each cell of errors has the median, the mean of the absolute errors, and what 90%
of the absolute errors stay within. *Held back* are the runs to which nothing was fitted: of each source every second one.

What a publication leaves out is not guessed, with these exceptions. Megatron-LM's tables do not say the micro-batch and the number
of virtual stages: the fastest that fits counts, as the authors tuned them; with a micro-batch of one sample, the fastest. torchtitan accumulates no gradients unless it says so. A
run that says nothing of recomputation is predicted without it, and one of NeMo, Megatron-Bridge, MLPerf or Megatron-LM's examples
for Llama that says nothing of ZeRO with the distributed optimizer of its recipes. Shapes get the vocabulary padded to 128 for
each tensor-parallel rank. Half precision counts as bfloat16. Of the small models in Megatron-LM's CI only the memory is scored: the
host bounds their time. Its runs that leave the attention kernel to the framework are not predicted. The recipe of its release run of
Mixtral is not public: on 64 devices the states of a rank take 18.7 GB, on 32 they take 27.5 GB and on 128 14.3 GB, and 19.1 to
19.7 GB were allocated between steps, so it had 64.

Megatron-LM's FLOPs of 2025 count the half of the scores that a causal mask leaves, so the times of its mixtures that state only these
are taken from such FLOPs. BERT in Megatron-LM's CI has the vocabulary of BERT's files. torchtitan's *selective AC* is by op, as in its
configuration of Llama 8B. Recomputed modules (`mlp`, `layernorm moe`, `moe_act`) are those of Megatron Core
(`planner/recompute/recompute_modules.h`).

Mixtures of Megatron-Bridge run as the recipes of their release do (`tests/validation/mixture_recipe.h`): these say how rows travel,
whether all-to-alls run beside the other pass, whether whole steps are captured in a graph, and what is recomputed. Releases before
25.11 have no such rule. *A fault that it names* are two runs of which the publication says that a kernel was ten times too slow.

Each constant is fitted to every second run of one source, and to nothing else. Two more figures come from these runs: the efficiency
of large products in `examples/clusters/h100.yaml` is fitted to all of llm-foundry's runs on H100, so for that source *held back* is not
clean, and Megatron-LM's table of 2024 tests it; and the 90 MB that Megatron-LM's libraries allocate are what its CI on A100 has beyond
the rest, which its CI on other machines tests.
)";

constexpr char kScoreCauses[] = R"(
What is known of the errors that are left:

- InternEvo inside one node is predicted 7 to 15% too fast, and with full recomputation 12%; over many nodes its runs are within a few
  percent. The cause is not known.
- Megatron-LM's table of 2021 is predicted about 10% too fast for the models with pipelines. The cause is not known: the number of
  virtual stages and what was hidden are not published.
- Megatron-LM's table of 2024: the smallest two models are predicted 13% and 17% too fast. They run four microbatches of one
  sample between two reductions over 48 replicas; how much of these was hidden is not published.
- B200 is 10% too fast, most of it with tensor parallelism over eight devices and with context parallelism. The products have the
  rates that the authors measured; what their collectives reach is an estimate in `examples/clusters/b200.yaml`.
- Memory of the largest layers (16,384 wide) is 4 to 6% low on B200, and of the same layers at half the width within 2%. The cause
  is not known.
- Megatron-Bridge's memory with products in 8 bits is predicted 4% too low to 24% too high, and one run of GPT-OSS in 8 bits is predicted
  not to fit. Its recipes sum gradients in 16 bits and keep most weights in 8 bits only; both are counted. For recipes of 4 bits
  the 16-bit weights are counted too. The rest may be one 8-bit copy of the weights in place of two. Times of Megatron-Bridge are
  20% off on some machines of the GB200 and GB300 kind, in both directions: their curves are estimates, and half of the runs do
  not say whether they recomputed.
- Llama 70B and 405B in 4 bits are predicted 2 to 15% too fast on GB300 and 17 to 27% on GB200, and Llama 8B on B200 (MLPerf) within 5%.
  Products are counted with the efficiency of 16-bit products of the same FLOPs, at a peak four times as high, and in all layers.
- torchtitan's memory is what its allocator had reserved, not what was allocated. Most of its times are not predicted: the H100 with 96 GB and
  a limit of 500 W that ran them has no cluster file. By op, its memory is 3 to 13% low there and 30% high on H200, where its steps in
  8 bits are predicted 20% too fast.
- NeMo Automodel's one dense run is predicted 29% too fast. It says nothing of recomputation, and does not fit without it.
- GPT-OSS is predicted 10 to 53% too fast. The kernels that add its experts' biases in 32 bits, the sorting of its rows and the
  recomputation of its recipes are counted. Its sinks, its windows and its activation are planned as if it had none of them; its
  attention is fused all the same (Transformer Engine computes sinks with cuDNN). The rest of the cause is not known.
- Mixtures in 8 bits: the runs of Qwen3 whose steps are captured in graphs (from 26.06 on) are within 10%. The others launch kernels one by
  one: the host quantises the operands of one expert after another, and with few tokens or many experts on a rank that takes longer than
  the products. NVIDIA calls host overhead a wall of such runs (arXiv 2603.07685). One constant says how long it takes; without it the mean
  error is 18.3%, and 16.2% of the runs held back. What is left varies with the software:
  with the same recipe, Qwen3-30B on H100 ran in 26.02 at little more than half its speed in 26.02.01.
- Megatron-LM's runs of Qwen3-235B on H100 are predicted 6 and 13% too fast with ep 32 over several nodes, and the one with tp 4 and
  ep 8 inside a node 37%. It sent rows with DeepEP, which changes little inside a node. The cause is not known.
- What is not predicted at all is in the last column. Mixtures with dense layers or shared experts are most of it.

What others report of their own predictions: vTrain 14.7% on several nodes and 8.4% on one (Bang et al. 2024); Calculon 12.9% and 39%
on the same runs; SimuMax -13.5 to +0.1% of time and 1.4% of memory on B200; Primus -9 to +7%.

The choice among published layouts of one model: the layout with the shortest predicted step, measured, beside the fastest measured
one.
)";

std::string ScoreText(const std::string& source_dir) {
  Scoreboard board(source_dir);
  const std::vector<Prediction> predictions = board.PredictAll();
  std::string constants = "\n| constant | fitted to | value |\n| --- | --- | ---: |\n";
  for (const FittedConstant& one : FittedConstants()) {
    absl::StrAppend(&constants, "| ", one.name, " | ", one.source, " | ", one.value, " |\n");
  }
  int64_t predicted = 0;
  for (const SourceScore& score : ScoreBySource(predictions)) predicted += score.expressed;
  const std::string coverage =
      absl::StrCat("\n", predicted, " of ", predictions.size(), " runs are predicted, in time or in memory:\n");
  return absl::StrCat(kScoreIntroduction, constants, coverage, ErrorTable(predictions), kScoreCauses, ChoiceTable(predictions));
}

}  // namespace

absl::StatusOr<std::string> ValidationReport(const std::string& source_dir) {
  const std::string reference = source_dir + "/tests/validation/reference/";
  LYNX_ASSIGN_OR_RETURN(const Table korthikanti, ReadTable(reference + "korthikanti_2022.csv"));
  LYNX_ASSIGN_OR_RETURN(const Table yuan, ReadTable(reference + "yuan_atc24.csv"));
  const HardwareProfile a100 = ProfileOf(source_dir + "/examples/clusters/a100-80gb-nvlink.yaml");
  const HardwareProfile h800 = ProfileOf(source_dir + "/examples/clusters/h800.yaml");
  return absl::StrCat(kIntroduction, kModelText, KorthikantiText(korthikanti, a100), YuanText(yuan, a100, h800),
                      ScoreText(source_dir), KorthikantiFormulas(korthikanti));
}

}  // namespace lynx::validation
