#include "bench/overlap/report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace lynx::bench {
namespace {

double Milliseconds(Nanos time) { return static_cast<double>(time.value) / 1e6; }
double Mebibytes(Bytes bytes) { return static_cast<double>(bytes.value) / (1 << 20); }

double MedianMs(const PolicyResult& policy, const std::function<Nanos(const StepReport&)>& part) {
  std::vector<double> values;
  for (const StepReport& step : policy.steps) values.push_back(Milliseconds(part(step)));
  return MedianOf(values);
}

std::string Row(const PolicyResult& policy, int64_t tokens_per_step) {
  if (policy.step_ms.empty()) {
    return absl::StrFormat("| %s | %s | %.2f | | | %.1f | | | | | | |\n", policy.name, policy.within_limit ? "yes" : "no",
                           Mebibytes(policy.planned_peak), Milliseconds(policy.predicted));
  }
  const double step = MedianOf(policy.step_ms);
  const auto [least, most] = std::minmax_element(policy.step_ms.begin(), policy.step_ms.end());
  const double predicted = Milliseconds(policy.predicted);
  return absl::StrFormat(
      "| %s | %s | %.2f | %s | %.1f (%.1f to %.1f) | %.1f | %+.1f%% | %.0f | %.1f | %.1f | %.1f | %.1f |\n", policy.name,
      policy.within_limit ? "yes" : "no", Mebibytes(policy.planned_peak),
      policy.measured_peak == policy.planned_peak ? "equal" : absl::StrFormat("%.2f", Mebibytes(policy.measured_peak)), step,
      *least, *most, predicted, 100 * (predicted / step - 1), static_cast<double>(tokens_per_step) / step * 1e3,
      MedianMs(policy, [](const StepReport& s) { return s.recompute_hidden; }),
      MedianMs(policy, [](const StepReport& s) { return s.recompute_exposed; }),
      MedianMs(policy, [](const StepReport& s) { return PartsOf(s).waiting; }),
      MedianMs(policy, [](const StepReport& s) { return s.communication_cpu; }));
}

// A table of what rank 0 spends its time on, as predicted and as measured.
std::string PartsTable(const LinkReport& report) {
  using Part = std::pair<const char*, Nanos StepParts::*>;
  constexpr Part kParts[] = {{"forward", &StepParts::forward},         {"backward", &StepParts::backward},
                             {"weight gradients", &StepParts::weight}, {"recomputation", &StepParts::recompute},
                             {"waiting", &StepParts::waiting},         {"optimizer", &StepParts::optimizer}};
  std::string text = "\nWhere the time of rank 0 goes, predicted and measured (ms):\n\n| policy |", rule = "| --- |";
  for (const auto& [name, part] : kParts) {
    absl::StrAppend(&text, " ", name, " | |");
    absl::StrAppend(&rule, " ---: | ---: |");
  }
  absl::StrAppend(&text, "\n", rule, "\n");
  for (const PolicyResult& policy : report.policies) {
    if (policy.steps.empty()) continue;
    absl::StrAppend(&text, "| ", policy.name, " |");
    for (const auto& [name, part] : kParts) {
      const double measured = MedianMs(policy, [&](const StepReport& step) { return PartsOf(step).*part; });
      absl::StrAppendFormat(&text, " %.1f | %.1f |", Milliseconds(policy.parts.*part), measured);
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

const PolicyResult* Find(const LinkReport& report, const std::function<bool(const PolicyResult&)>& wanted) {
  const PolicyResult* best = nullptr;
  for (const PolicyResult& policy : report.policies) {
    if (wanted(policy) && (best == nullptr || MedianOf(policy.step_ms) < MedianOf(best->step_ms))) best = &policy;
  }
  return best;
}

// The ratio of the two policies' step times in each round. Load that slows a whole round slows both policies.
std::vector<double> RatiosOfRounds(const PolicyResult& slow, const PolicyResult& fast) {
  std::vector<double> ratios;
  for (size_t round = 0; round < std::min(slow.step_ms.size(), fast.step_ms.size()); ++round) {
    ratios.push_back(slow.step_ms[round] / fast.step_ms[round]);
  }
  return ratios;
}

std::string RatioText(const PolicyResult& slow, const PolicyResult& fast) {
  const std::vector<double> ratios = RatiosOfRounds(slow, fast);
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  return absl::StrFormat("%.3f (%.3f to %.3f)", MedianOf(ratios), *least, *most);
}

// Says for each target of the benchmark whether this run met it.
std::string Verdicts(const LinkReport& report, const PolicyResult& lynx) {
  std::string text = "\n";
  const bool loaded = report.foreign_share > kMaxForeignShare;
  const auto verdict = [&](const std::string& what, double value, bool met) {
    absl::StrAppend(&text, "- ", what, absl::StrFormat(": %.3f, ", value),
                    loaded ? "the machine was too loaded to tell\n"
                    : met  ? "met\n"
                           : "not met\n");
  };
  const auto faster_than = [&](const std::string& name, double aim) {
    const PolicyResult* other = Find(report, [&](const PolicyResult& p) { return p.name == name; });
    if (other == nullptr) return;
    const double ratio = MedianOf(RatiosOfRounds(*other, lynx));
    verdict(absl::StrFormat("%s / %s, aim %.2f", name, lynx.name, aim), ratio, ratio >= aim);
  };
  if (report.slow) {
    faster_than("full", 1.40);
    faster_than("full, keep collectives", 1.25);
    faster_than("store all, no limit", 1.10);
    const double waits = MedianMs(lynx, [](const StepReport& s) { return s.tensor_wait + s.stall; }) / MedianOf(lynx.step_ms);
    verdict("share of the step in which a rank waits, aim at most 0.06", waits, waits <= 0.06);
    return text;
  }
  const PolicyResult* best = Find(report, [](const PolicyResult& p) { return !p.woven && p.within_limit; });
  if (best != nullptr) {
    const double ratio = MedianOf(RatiosOfRounds(*best, lynx));
    verdict(absl::StrCat(best->name, ", the best that is not woven and fits / ", lynx.name, ", aim 1.04"), ratio,
            ratio >= 1.04);
  }
  return text;
}

std::string Ratios(const LinkReport& report) {
  const PolicyResult* lynx = Find(report, [](const PolicyResult& p) { return p.overlaps && p.within_limit; });
  if (lynx == nullptr) return "No overlapping policy fits.\n";
  if (lynx->step_ms.empty()) return "\nPlans only: nothing was trained.\n";
  std::string text = absl::StrCat("\nSteps as multiples of ", lynx->name, "'s, median of the rounds and spread:\n\n");
  for (const PolicyResult& policy : report.policies) {
    if (&policy != lynx) absl::StrAppend(&text, "- ", policy.name, ": ", RatioText(policy, *lynx), "\n");
  }
  const PolicyResult* best = Find(report, [](const PolicyResult& p) { return !p.overlaps && !p.woven && p.within_limit; });
  if (best != nullptr) absl::StrAppend(&text, "\nThe best without overlap that fits: ", best->name, ".\n");
  absl::StrAppend(&text, Verdicts(report, *lynx), "\n");
  std::map<int32_t, double> losses;  // the key is the micro-batch
  bool same = true;
  for (const PolicyResult& policy : report.policies) {
    same = same && losses.try_emplace(policy.micro_batch, policy.last_loss).first->second == policy.last_loss;
  }
  absl::StrAppend(&text, "Losses of all policies with the same micro-batch after the last step are ",
                  same ? "the same to the last bit.\n" : "NOT THE SAME: a policy has changed the result.\n");
  std::vector<double> errors;
  for (const PolicyResult& policy : report.policies) {
    errors.push_back(std::abs(Milliseconds(policy.predicted) / MedianOf(policy.step_ms) - 1));
  }
  return absl::StrCat(text, absl::StrFormat("Predicted steps are off by %.1f%% in the median, %.1f%% at worst.\n",
                                            100 * MedianOf(errors), 100 * *std::max_element(errors.begin(), errors.end())));
}

}  // namespace

double MedianOf(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

StepParts PartsOf(const StepReport& step) {
  return {.forward = step.forward,
          .backward = step.backward,
          .weight = step.weight,
          .recompute = step.recompute_hidden + step.recompute_exposed,
          .waiting = step.tensor_wait + step.stall,
          .optimizer = step.optimizer};
}

StepParts PartsOf(const StagePlan& stage) {
  return {.forward = stage.forward,
          .backward = stage.backward,
          .weight = stage.weight,
          .recompute = stage.recompute_hidden + stage.recompute_exposed,
          .waiting = stage.communication_exposed + stage.stall,
          .optimizer = stage.optimizer};
}

std::string LinkSection(const LinkReport& report, int64_t tokens_per_step) {
  std::string text = absl::StrFormat(
      "## %s: %.1f MB/s\n\nThe agent's measurement of this link: %.1f MB/s, latency %.0f us; a transfer takes %.1f%% of a "
      "core, and "
      "ops beside it %.3f times as long. Limit for activations: %.2f MiB. Foreign load during measurements and runs: at most "
      "%.1f%% of the "
      "machine%s.\n\n",
      report.name, static_cast<double>(report.bytes_per_second) / 1e6,
      static_cast<double>(report.measured_bytes_per_second) / 1e6, static_cast<double>(report.measured_latency.value) / 1e3,
      0.1 * report.communication_compute_permille, 1e-3 * report.overlap_slowdown_permille, Mebibytes(report.limit),
      100 * report.foreign_share,
      report.foreign_share > kMaxForeignShare ? ". **The machine was too noisy to conclude anything from these times**" : "");
  text +=
      "| policy | fits | peak, planned (MiB) | measured | step (ms) | predicted | error | tokens/s | hidden (ms) | exposed | "
      "waiting | communication CPU |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  for (const PolicyResult& policy : report.policies) text += Row(policy, tokens_per_step);
  for (const std::string& policy : report.left_out) absl::StrAppend(&text, "\nNo plan fits the limit for ", policy, ".\n");
  return text + PartsTable(report) + Ratios(report) + "\n";
}

}  // namespace lynx::bench
