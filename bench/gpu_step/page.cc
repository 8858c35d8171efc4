#include "bench/gpu_step/page.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/problem/flops.h"
#include "planner/problem/layer_graph.h"

namespace lynx::bench {
namespace {

double Mebibytes(Bytes bytes) { return static_cast<double>(bytes.value) / static_cast<double>(kMiB.value); }

std::string Spread(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return absl::StrFormat("%.2f (%.2f to %.2f)", MedianOf(values), *least, *most);
}

std::string MibText(const std::optional<Bytes>& bytes) { return bytes ? absl::StrFormat("%.2f", Mebibytes(*bytes)) : ""; }

// The measured bytes, and the planned bytes for comparison.
std::string BesidePlan(const std::optional<Bytes>& planned, const std::optional<Bytes>& measured) {
  return measured && measured == planned ? "equal" : MibText(measured);
}

// The model FLOPs of the step per second, as a share of a rate. Causal attention needs only half of the scores, so only this
// half counts.
double UtilizationOf(const ModelResult& result, double step_ms, double flops_per_second) {
  return StepFlops(result.model.model, result.model.samples(), FlopCount::kModelCausal) / (1e-3 * step_ms) / flops_per_second;
}

double ProductRate(const ModelResult& result) {
  const bool narrow = result.model.model.dtype == DataType::kBfloat16 && result.rates.bfloat16_flops_per_second > 0;
  return static_cast<double>(narrow ? result.rates.bfloat16_flops_per_second : result.rates.flops_per_second);
}

std::string HeadOf(const ModelResult& result) {
  const ModelSpec& model = result.model.model;
  return absl::StrFormat(
      "## %s\n\n%s of %d layers, hidden %d, %d heads (%d of keys), feed-forward %d, %d tokens a sample, vocabulary %d%s: "
      "%.1fM parameters. %s, %s attention, dropout %g. A step is %d microbatches of %d samples: %d tokens, %.3g TFLOP.\n\n",
      result.model.title, model.family == ModelFamily::kGpt ? "A GPT" : "A Llama", model.layers, model.hidden, model.heads,
      model.key_heads(), model.ffn, model.seq, model.vocab, model.tied_embeddings ? " (tied)" : "",
      1e-6 * static_cast<double>(ModelParameters(model)), EnumName(model.dtype), EnumName(model.attention), model.dropout,
      result.model.microbatches, result.model.micro_batch, result.model.tokens(),
      1e-12 * StepFlops(model, result.model.samples(), FlopCount::kModelCausal));
}

// Says why a row has no figures, or what went wrong after its figures were measured.
std::string ErrorText(const CaseResult& row) { return absl::StrCat(row.left_out ? "left out: " : "FAILED: ", row.error); }

std::string StepsTable(const ModelResult& result, const std::optional<StatedPeak>& peak) {
  std::string text = absl::StrCat("| policy | rounds | step (ms) | predicted | error | tokens/s | MFU of the product's rate |",
                                  peak ? " MFU of the stated peak |" : "", " tokens/s beside PyTorch, eager |\n",
                                  "| --- | ---: | ---: | ---: | ---: | ---: | ---: |", peak ? " ---: |" : "", " ---: |\n");
  const auto eager = std::find_if(result.cases.begin(), result.cases.end(),
                                  [](const CaseResult& row) { return row.name == "PyTorch, eager" && !row.round_ms.empty(); });
  for (const CaseResult& row : result.cases) {
    absl::StrAppend(&text, "| ", row.name, " | ", row.round_ms.size(), " | ");
    if (row.round_ms.empty()) {
      absl::StrAppend(&text, ErrorText(row), " | | | | |", peak ? " |" : "", " |\n");
      continue;
    }
    const double step = MedianOf(row.round_ms);
    const double predicted = row.predicted ? Millis(row.predicted->step) : 0;
    absl::StrAppend(&text, Spread(row.round_ms.size() > 1 ? row.round_ms : row.step_ms), " | ",
                    row.predicted ? absl::StrFormat("%.2f | %+.1f%%", predicted, 100 * (predicted / step - 1)) : " | ",
                    absl::StrFormat(" | %.0f | %.1f%% |", 1e3 * static_cast<double>(result.model.tokens()) / step,
                                    100 * UtilizationOf(result, step, ProductRate(result))),
                    peak ? absl::StrFormat(" %.1f%% |", 100 * UtilizationOf(result, step, 1e12 * peak->teraflops)) : "",
                    eager != result.cases.end() ? absl::StrFormat(" %.2f |\n", MedianOf(eager->round_ms) / step) : " |\n");
  }
  for (const CaseResult& row : result.cases) {
    if (!row.round_ms.empty() && !row.error.empty()) absl::StrAppend(&text, "\n", row.name, ": ", ErrorText(row), "\n");
  }
  return text;
}

std::string MemoryTable(const ModelResult& result) {
  std::string text =
      "\nMemory (MiB). Arena: activations and their gradients; with Lynx (HEU), at most that percentage of what full "
      "recomputation needs. States: weights, gradients and the optimizer's. Device: on a GPU, what all processes use more than "
      "before the case; on a CPU, the process's memory in RAM.\n\n"
      "| policy | arena, planned | allocated | written at most | states, planned | allocated | device, seen at most |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  for (const CaseResult& row : result.cases) {
    if (row.round_ms.empty()) continue;
    std::optional<Bytes> arena, states, planned_arena, planned_states, written;
    if (row.ready) arena = row.ready->arena, states = row.ready->states;
    if (row.predicted) planned_arena = row.predicted->arena, planned_states = row.predicted->states;
    for (const StepReport& step : row.steps) written = std::max(written.value_or(Bytes(0)), step.arena_peak);
    absl::StrAppend(&text, "| ", row.name, " | ", MibText(planned_arena), " | ", BesidePlan(planned_arena, arena), " | ",
                    BesidePlan(planned_arena, written), " | ", MibText(planned_states), " | ",
                    BesidePlan(planned_states, states), " | ", MibText(row.device_peak), " |\n");
  }
  return text;
}

struct Part {
  const char* name;
  Nanos StepParts::*part;
};
constexpr Part kParts[] = {{"forward", &StepParts::forward},
                           {"backward", &StepParts::backward},
                           {"weight gradients", &StepParts::weight},
                           {"recomputation", &StepParts::recompute},
                           {"optimizer", &StepParts::optimizer}};

double MeasuredMs(const CaseResult& row, Nanos StepParts::*part) {
  std::vector<double> values;
  for (const StepReport& step : row.steps) values.push_back(Millis(PartsOf(step).*part));
  return MedianOf(values);
}

std::string PartsTable(const ModelResult& result) {
  std::string text = "\nWhere the step's time goes, predicted and measured (ms):\n\n| policy |", rule = "| --- |";
  for (const Part& part : kParts) {
    absl::StrAppend(&text, " ", part.name, " | |");
    absl::StrAppend(&rule, " ---: | ---: |");
  }
  absl::StrAppend(&text, "\n", rule, "\n");
  for (const CaseResult& row : result.cases) {
    if (row.steps.empty()) continue;
    absl::StrAppend(&text, "| ", row.name, " |");
    for (const Part& part : kParts) {
      absl::StrAppendFormat(&text, " %.2f | %.2f |", Millis(row.predicted->parts.*part.part), MeasuredMs(row, part.part));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

// The shortest time that the measured rates allow.
double RooflineSeconds(const ModelResult& result, const OpRow& row) {
  return std::max(static_cast<double>(row.flops) / ProductRate(result),
                  static_cast<double>(row.bytes.value) / static_cast<double>(result.rates.memory_bytes_per_second));
}

std::string OpsTable(const ModelResult& result) {
  if (result.ops.empty()) return absl::StrCat("\nThe ops were not measured: ", result.ops_error, "\n");
  std::string text = absl::StrFormat(
      "\nOps, as the agent measures them in the same run: products reach %.3g TFLOP/s in this type, additions move %.4g "
      "GB/s, starting an op takes %.1f us. Roofline: the time that these two rates allow, as a share of the time. A step: "
      "all runs of a step that recomputes nothing.\n\n"
      "| op | pass | one run (us) | GFLOP | MB | roofline | a step (ms) |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n",
      1e-12 * ProductRate(result), 1e-9 * static_cast<double>(result.rates.memory_bytes_per_second),
      1e-3 * static_cast<double>(result.rates.op_overhead.value));
  double sum = 0;
  for (const OpRow& row : result.ops) {
    const double step = Millis(row.time) * static_cast<double>(row.runs);
    sum += step;
    absl::StrAppendFormat(&text, "| %s | %s | %.1f | %.3f | %.2f | %.0f%% | %.2f |\n", row.op, row.pass,
                          1e-3 * static_cast<double>(row.time.value), 1e-9 * static_cast<double>(row.flops),
                          1e-6 * static_cast<double>(row.bytes.value), 100 * RooflineSeconds(result, row) / Seconds(row.time),
                          step);
  }
  absl::StrAppendFormat(&text, "| optimizer | | | | | | %.2f |\n| sum | | | | | | %.2f |\n", Millis(result.optimizer),
                        sum + Millis(result.optimizer));
  return text;
}

// Compares the losses of all policies: they must be equal to the last bit.
std::string LossLine(const ModelResult& result) {
  std::set<double> losses;
  size_t cases = 0;
  for (const CaseResult& row : result.cases) {
    if (row.steps.empty()) continue;
    losses.insert(row.steps.front().loss);
    ++cases;
  }
  if (cases < 2) return "";
  return absl::StrCat("\nThe losses of all policies after the first counted step are ",
                      losses.size() == 1 ? "the same to the last bit.\n" : "NOT THE SAME: a policy has changed the result.\n");
}

std::string Section(const ModelResult& result, const std::optional<StatedPeak>& peak) {
  const std::string head = HeadOf(result);
  if (!result.error.empty()) return absl::StrCat(head, "Not measured: ", result.error, "\n\n");
  std::string text = absl::StrCat(head, StepsTable(result, peak));
  const bool any = std::any_of(result.cases.begin(), result.cases.end(), [](const CaseResult& c) { return !c.steps.empty(); });
  if (any) absl::StrAppend(&text, LossLine(result), MemoryTable(result), PartsTable(result));
  return absl::StrCat(text, OpsTable(result), "\n");
}

}  // namespace

std::string Page(const StepBenchResult& result) {
  std::string text = absl::StrFormat(
      "# What a training step costs on one device\n\n%s%s, %s that a rank may use%s%s. %s. Foreign load: at most %.1f%% of "
      "the machine's cores%s.\n\n```sh\n%s\n```\n\n",
      result.device.model, result.driver.empty() ? "" : absl::StrCat(", driver ", result.driver),
      FormatBytes(result.device.memory), result.device.detail.empty() ? "" : "; ", result.device.detail, result.date,
      100 * result.foreign_share,
      result.foreign_share > kMaxForeignShare ? ". **The machine was too noisy to conclude anything from these times**" : "",
      result.command);
  absl::StrAppendFormat(
      &text,
      "%d rounds, in each of which every case is a process of its own and does %d steps after %d to warm up; the column "
      "`rounds` says for how many rounds there was time. Steps: the median of the rounds, with the spread; of a single "
      "round, the spread of its steps. MFU counts the model's FLOPs, with half the square of attention's scores. PyTorch "
      "trains under autocast, with scaled_dot_product_attention and, on a GPU, its fused AdamW. %s The run took %.0f s.\n\n",
      result.rounds, result.steps, result.warmup,
      result.peak ? absl::StrFormat("The stated peak is %g TFLOP/s (%s).", result.peak->teraflops, result.peak->source)
                  : "No peak is known of this device: state it with --peak-tflops.",
      result.seconds);
  for (const ModelResult& model : result.models) text += Section(model, result.peak);
  return text;
}

}  // namespace lynx::bench
