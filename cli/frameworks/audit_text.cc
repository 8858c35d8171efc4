// Shows audits. See audit.h.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/frameworks/audit.h"
#include "planner/frameworks/layer_repeat.h"
#include "planner/recompute/recompute_modules.h"
#include "planner/report/framework_table.h"
#include "planner/report/plan_table.h"
#include "planner/report/table.h"

namespace lynx::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kTera = 1e12;

size_t FullestRank(const FrameworkPlan& plan) {
  const auto fullest = std::max_element(plan.memory.begin(), plan.memory.end(),
                                        [](const auto& a, const auto& b) { return a.total() < b.total(); });
  return static_cast<size_t>(fullest - plan.memory.begin());
}

std::string BatchText(const StepRequest& request) {
  return absl::StrCat("micro-batch ", request.micro_batch, " x ", request.microbatches);
}

// By how much `value` differs from `base`, such as "12.3% more".
std::string MoreText(int64_t value, int64_t base) {
  if (base <= 0) return "";
  const double percent = 100.0 * (static_cast<double>(value) / static_cast<double>(base) - 1);
  return absl::StrFormat("%.1f%% %s", std::abs(percent), percent < 0 ? "less" : "more");
}

int64_t TokensPerSecond(const RunAudit& audit, Nanos step, int64_t samples) {
  const double tokens = static_cast<double>(samples) * audit.run.job.model.seq;
  return step.value <= 0 ? 0 : std::llround(tokens * 1e9 / static_cast<double>(step.value));
}

std::string RunText(const RunAudit& audit, const std::string& file) {
  const StepRequest& request = audit.plan.request;
  return absl::StrCat("run: ", EnumName(audit.run.framework), ", ", audit.run.devices, " devices, ", LayoutText(request.layout),
                      ", ", BatchText(request), ", recompute ", RecomputeText(audit.run.job.recompute, request.modules), " (",
                      file, ")\n");
}

std::string MemoryText(const RunAudit& audit) {
  const FrameworkPlan& plan = audit.plan;
  const Bytes peak = plan.peak(), has = plan.device_memory;
  std::string verdict = "the cluster does not say how much a device has";
  if (has.value > 0) {
    verdict = plan.fits() ? absl::StrCat("fits, ", FormatBytes(has - peak), " of ", FormatBytes(has), " are left")
                          : absl::StrCat("does not fit: ", FormatBytes(peak - has), " more than the ", FormatBytes(has),
                                         " that a device has");
  }
  return absl::StrCat("\nmemory: ", FormatBytes(peak), " on the fullest rank, of stage ", FullestRank(plan), "; ", verdict,
                      "\n", TextOf(FrameworkMemoryTable(plan)));
}

// What a layer of this shape keeps, and what its backward pass runs again. "" if it recomputes nothing.
std::string RepeatText(const char* name, const LayerShape& shape, const LayerEstimate& layer, const StepRequest& request) {
  if (layer.recompute.value == 0) return "";
  const LayerRepeat repeat = LayerRepeatOf(shape, request.recompute, request.modules, request.traits);
  std::vector<std::string> kept, again;
  for (const KeptTensor& tensor : repeat.kept) kept.push_back(absl::StrCat(tensor.name, " ", FormatBytes(tensor.bytes)));
  for (const auto& [op, time] : layer.repeated) again.push_back(absl::StrCat(EnumName(op), " ", FormatDuration(time)));
  if (layer.repeated_collectives.value > 0) {
    again.push_back(absl::StrCat("collectives ", FormatDuration(layer.repeated_collectives)));
  }
  Nanos rest = layer.recompute - layer.repeated_collectives;
  for (const auto& [op, time] : layer.repeated) rest -= time;
  if (rest > Nanos(0)) again.push_back(absl::StrCat("waiting for the host ", FormatDuration(rest)));
  return absl::StrCat("\n", name, " keeps ", FormatBytes(repeat.kept_bytes()), " of a microbatch: ", absl::StrJoin(kept, ", "),
                      "\nand runs again, in ", FormatDuration(layer.recompute), ": ", absl::StrJoin(again, ", "), "\n");
}

// For each kind of layer. "" if layers of one kind differ, or nothing is recomputed.
std::string RecomputationText(const RunAudit& audit) {
  const StepRequest& request = audit.plan.request;
  const StepEstimate& step = audit.plan.step;
  if (request.recompute == RecomputeMode::kBlock) return "";
  const LayerShape shape = ShapeOf(request.model, request.layout, request.micro_batch);
  if (request.model.moe.dense_layers == 0) return RepeatText("a layer", shape, step.layer, request);
  return absl::StrCat(RepeatText("a layer with experts", shape, step.layer, request),
                      RepeatText("a layer without experts", DenseShape(shape), step.dense_layer, request));
}

std::vector<std::pair<const char*, Nanos>> PartRows(const StepParts& parts) {
  return {{"layers, forward and backward", parts.layers},
          {"recomputation", parts.recompute},
          {"embedding, loss, transfers between stages, waiting", parts.rest},
          {"gradients and weights over replicas, not hidden", parts.reduction},
          {"tied embedding's gradients", parts.tied},
          {"optimizer", parts.optimizer}};
}

std::string StepText(const RunAudit& audit) {
  const Nanos step = audit.plan.step.step;
  Table table{.columns = {"part of the step", {"time", Align::kRight}, {"share", Align::kRight}}};
  for (const auto& [name, time] : PartRows(audit.parts)) {
    table.rows.push_back({name, FormatDuration(time), PercentText(time.value, step.value)});
  }
  return absl::StrCat(
      "\nstep: ", FormatDuration(step), " predicted, ", TokensPerSecond(audit, step, audit.run.job.train.global_batch),
      absl::StrFormat(" tokens/s, %.1f TFLOP/s on each device\n", FlopsPerSecondOfDevice(audit.plan) / kTera), TextOf(table));
}

// torchtitan logs what its allocator has reserved, not what it has given out.
bool LogsReserved(const RunAudit& audit) { return audit.run.framework == Framework::kTorchtitan; }

std::string MeasuredText(const RunAudit& audit) {
  if (!audit.log) return "";
  const RunLog& log = *audit.log;
  const StepTimes times = TimesOf(log);
  const int64_t samples = log.global_batch > 0 ? log.global_batch : audit.run.job.train.global_batch;
  std::string text = absl::StrCat("\nmeasured: step ", FormatDuration(times.median), ", the median of ", times.count, " from ",
                                  times.first, " to ", times.last, " (", FormatDuration(times.shortest), " to ",
                                  FormatDuration(times.longest), "), ", TokensPerSecond(audit, times.median, samples),
                                  " tokens/s; ", MoreText(times.median.value, audit.plan.step.step.value), " than predicted\n");
  if (log.most_allocated.value > 0) {
    absl::StrAppend(&text, "measured: memory ", FormatBytes(log.most_allocated),
                    LogsReserved(audit) ? " reserved" : " allocated at most", "; ",
                    MoreText(log.most_allocated.value, audit.plan.peak().value), " than predicted\n");
  }
  if (log.other_batches > 0) {
    absl::StrAppend(&text, "left out: ", log.other_batches, " steps of the log with other batches than the last, of ", samples,
                    " samples\n");
  }
  if (log.tflops > 0)
    absl::StrAppend(&text, absl::StrFormat("measured: %.1f TFLOP/s on each device, as the log says\n", log.tflops));
  if (log.global_batch > 0 && log.global_batch != audit.run.job.train.global_batch) {
    absl::StrAppend(&text, "the log says ", log.global_batch, " samples a step, the arguments say ",
                    audit.run.job.train.global_batch, ": is it the log of this run?\n");
  }
  return text;
}

// Returns the largest memory that the plan of Lynx's planner predicts for a rank.
Bytes PeakOf(const Plan& plan) {
  Bytes most;
  for (const StagePlan& stage : plan.stages) most = std::max(most, stage.arena + stage.states.total());
  return most;
}

std::vector<Cell> PlanCells(const RunAudit& audit, const std::string& name, const StepRequest& request, RecomputeMode recompute,
                            Nanos step, Bytes peak) {
  return {name,
          LayoutText(request.layout),
          absl::StrCat(request.micro_batch, " x ", request.microbatches),
          RecomputeText(recompute, request.modules),
          FormatDuration(step),
          PercentText(step.value, audit.plan.step.step.value),
          FormatBytes(peak)};
}

std::string PlansText(const RunAudit& audit) {
  Table table{.columns = {"plan",
                          "layout",
                          "micro-batch",
                          "recompute",
                          {"step", Align::kRight},
                          {"of run", Align::kRight},
                          {"memory", Align::kRight}}};
  table.rows.push_back(
      PlanCells(audit, "this run", audit.plan.request, audit.run.job.recompute, audit.plan.step.step, audit.plan.peak()));
  const std::string best = absl::StrCat("best of ", EnumName(audit.run.framework));
  if (audit.best) {
    table.rows.push_back(
        PlanCells(audit, best, audit.best->request, audit.best->request.recompute, audit.best->step.step, audit.best->peak()));
  }
  if (audit.lynx) {
    table.rows.push_back(
        PlanCells(audit, "lynx", RequestOf(*audit.lynx), audit.lynx->mode, audit.lynx->step, PeakOf(*audit.lynx)));
  }
  std::string text = "\n" + TextOf(table);
  if (!audit.best) absl::StrAppend(&text, best, ": ", audit.no_best, "\n");
  if (!audit.no_lynx.empty()) absl::StrAppend(&text, "lynx: ", audit.no_lynx, "\n");
  return text;
}

std::string ChangesText(const RunAudit& audit) {
  std::string text;
  if (audit.best) {
    const Framework framework = audit.run.framework;
    const SettingChanges changes = ChangesOf(framework, audit.plan.request, audit.best->request);
    absl::StrAppend(&text, "\nbest of ", EnumName(framework),
                    changes.empty() ? ": the run has these settings already\n" : "\n");
    for (const RunSetting& setting : changes.set) absl::StrAppend(&text, "  set     ", SettingText(framework, setting), "\n");
    for (const std::string& name : changes.removed) absl::StrAppend(&text, "  remove  ", name, "\n");
  }
  if (audit.lynx) {
    const SettingChanges changes = ChangesOf(Framework::kLynx, audit.plan.request, RequestOf(*audit.lynx));
    absl::StrAppend(&text, "\nlynx: the job file of 'lynxctl import', with\n");
    for (const RunSetting& setting : changes.set) {
      absl::StrAppend(&text, "  ", SettingText(Framework::kLynx, setting), "\n");
    }
  }
  return text;
}

std::string NotesText(const RunAudit& audit) {
  std::string text;
  if (audit.recomputed_permille >= 0) {
    absl::StrAppend(&text, "\nnote: step and memory are interpolated, for only some layers recompute: ",
                    PercentText(audit.recomputed_permille, 1000), " of them\n");
  }
  if (audit.run.job.recompute == RecomputeMode::kUniform) {
    absl::StrAppend(&text, "\nnote: recomputed groups of ", audit.run.job.recompute_options.layers,
                    " layers are counted as groups of one layer, which keep more inputs\n");
  }
  if (audit.run.job.parallel.partition != PartitionMethod::kEven && audit.run.job.parallel.stage_layers.empty()) {
    absl::StrAppend(&text, "\nnote: the estimate counts stages of the same number of layers each, unlike the run\n");
  }
  const std::string remarks = ImportRemarks(audit.run);
  return remarks.empty() ? text : absl::StrCat(text, "\n", remarks);
}

Json SettingsJson(Framework framework, const StepRequest& from, const StepRequest& to) {
  const SettingChanges changes = ChangesOf(framework, from, to);
  Json json;
  json["set"] = Json::object();
  for (const RunSetting& setting : changes.set) json["set"][setting.name] = setting.value;
  json["remove"] = changes.removed;
  return json;
}

Json PlanJson(Framework framework, const RunAudit& audit, const StepRequest& request, RecomputeMode recompute, Nanos step,
              Bytes peak) {
  Json json;
  json["layout"] = LayoutText(request.layout);
  json["microBatch"] = request.micro_batch;
  json["microbatches"] = request.microbatches;
  json["recompute"] = EnumName(recompute);
  if (!request.modules.empty()) json["recomputeModules"] = ModulesText(request.modules);
  json["stepNs"] = step.value;
  json["peakBytes"] = peak.value;
  json["changes"] = SettingsJson(framework, audit.plan.request, request);
  return json;
}

Json MemoryJson(const FrameworkPlan& plan) {
  Json json;
  json["deviceBytes"] = plan.device_memory.value;
  json["fits"] = plan.fits();
  json["peakBytes"] = plan.peak().value;
  json["stages"] = Json::array();
  for (const MemoryEstimate& rank : plan.memory) {
    json["stages"].push_back({{"weights", rank.weights.value},
                              {"gradients", rank.gradients.value},
                              {"optimizer", rank.optimizer.value},
                              {"activations", rank.activations.value},
                              {"transient", rank.transient.value},
                              {"workspace", rank.workspace.value},
                              {"total", rank.total().value}});
  }
  return json;
}

Json MeasuredJson(const RunAudit& audit) {
  const RunLog& log = *audit.log;
  const StepTimes times = TimesOf(log);
  return {{"stepNs", times.median.value},
          {"shortestNs", times.shortest.value},
          {"longestNs", times.longest.value},
          {"steps", times.count},
          {"firstStep", times.first},
          {"lastStep", times.last},
          {"stepsOfOtherBatches", log.other_batches},
          {LogsReserved(audit) ? "reservedBytes" : "allocatedBytes", log.most_allocated.value},
          {"tflops", log.tflops},
          {"globalBatch", log.global_batch}};
}

}  // namespace

std::string AuditText(const RunAudit& audit, const std::string& file) {
  return absl::StrCat(RunText(audit, file), MemoryText(audit), StepText(audit), RecomputationText(audit), MeasuredText(audit),
                      PlansText(audit), ChangesText(audit), NotesText(audit));
}

std::string AuditJson(const RunAudit& audit) {
  const StepParts& parts = audit.parts;
  Json json;
  json["framework"] = EnumName(audit.run.framework);
  json["devices"] = audit.run.devices;
  json["run"] = PlanJson(audit.run.framework, audit, audit.plan.request, audit.run.job.recompute, audit.plan.step.step,
                         audit.plan.peak());
  json["memory"] = MemoryJson(audit.plan);
  json["step"] = {{"stepNs", audit.plan.step.step.value}, {"layersNs", parts.layers.value},
                  {"recomputeNs", parts.recompute.value}, {"restNs", parts.rest.value},
                  {"reductionNs", parts.reduction.value}, {"tiedNs", parts.tied.value},
                  {"optimizerNs", parts.optimizer.value}};
  json["measured"] = audit.log ? MeasuredJson(audit) : Json();
  json["best"] = audit.best ? PlanJson(audit.run.framework, audit, audit.best->request, audit.best->request.recompute,
                                       audit.best->step.step, audit.best->peak())
                            : Json();
  json["noBest"] = audit.no_best;
  json["lynx"] = audit.lynx ? PlanJson(Framework::kLynx, audit, RequestOf(*audit.lynx), audit.lynx->mode, audit.lynx->step,
                                       PeakOf(*audit.lynx))
                            : Json();
  json["noLynx"] = audit.no_lynx;
  json["recomputedPermille"] = audit.recomputed_permille;
  json["assumed"] = audit.run.assumed;
  json["notTaken"] = audit.run.not_taken;
  json["unknown"] = audit.run.unknown;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lynx::cli
