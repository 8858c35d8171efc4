// See plan_rows.h.
#include "cli/output/plan_rows.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/output/render.h"
#include "planner/problem/flops.h"

namespace lynx::cli {
namespace {

int64_t TokensOf(const Plan& plan) { return int64_t{plan.samples()} * plan.model.seq; }

double TokensPerSecond(const Plan& plan) {
  return static_cast<double>(TokensOf(plan)) * 1e9 / static_cast<double>(std::max<int64_t>(1, plan.step.value));
}

// Model FLOPs utilization, relative to the peak of the slowest devices.
double MfuOf(const PlanRequest& request, const Plan& plan) {
  const HardwareProfile profile = SlowestProfile(request.cluster);
  const bool half = plan.model.dtype == DataType::kBfloat16 && profile.bfloat16_flops_per_second > 0;
  const int64_t peak = half ? profile.bfloat16_flops_per_second : profile.flops_per_second;
  const double flops = StepFlops(plan.model, TokensOf(plan) / plan.model.seq, FlopCount::kModel);
  return FlopsUtilization(flops, static_cast<double>(plan.step.value) / 1e9, plan.layout.ranks(), peak);
}

Bytes PeakOf(const Plan& plan) {
  Bytes peak;
  for (const StagePlan& stage : plan.stages) peak = std::max(peak, stage.arena);
  return peak;
}

Nanos SumOf(const Plan& plan, Nanos StagePlan::*time) {
  Nanos sum;
  for (const StagePlan& stage : plan.stages) sum += stage.*time;
  return sum;
}

std::vector<int32_t> LayersOf(const Plan& plan) {
  std::vector<int32_t> layers;
  for (const StagePlan& stage : plan.stages) {
    int32_t count = 0;
    for (const SlicePlan& slice : stage.slices) count += slice.layers();
    layers.push_back(count);
  }
  return layers;
}

double ThroughputOf(const PlanRow& row) { return TokensPerSecond(*row.plan) / TokensPerSecond(*row.base); }

std::string ThroughputText(const PlanRow& row, LastCell last) {
  if (row.base == nullptr) return "-";
  const bool is_base = row.plan == row.base && last == LastCell::kLayout;
  return is_base ? "1" : absl::StrFormat("%.3fx", ThroughputOf(row));
}

std::string LastText(const PlanRow& row, LastCell last) {
  if (last == LastCell::kLayout) return LayoutText(row.plan->layout);
  return last == LastCell::kLayers ? absl::StrJoin(LayersOf(*row.plan), " ") : row.note;
}

}  // namespace

std::string PlanRowsTable(const std::vector<PlanRow>& rows, const PlanTitles& titles, LastCell last) {
  std::vector<std::vector<std::string>> table = {
      {titles.name, "STEP", "TOKENS/S", "MFU", "HIDDEN", "EXPOSED", "PEAK", titles.throughput, titles.last}};
  for (const PlanRow& row : rows) {
    if (row.plan == nullptr) {
      table.push_back({row.name, "-", "-", "-", "-", "-", "-", "-", row.note});
      continue;
    }
    const Plan& plan = *row.plan;
    table.push_back({row.name, FormatDuration(plan.step), Count(TokensPerSecond(plan)),
                     absl::StrFormat("%.1f%%", 100 * MfuOf(*row.request, plan)),
                     FormatDuration(SumOf(plan, &StagePlan::recompute_hidden)),
                     FormatDuration(SumOf(plan, &StagePlan::recompute_exposed)),
                     row.peak_known ? FormatBytes(PeakOf(plan)) : "-", ThroughputText(row, last), LastText(row, last)});
  }
  return TableText(table);
}

std::string PlanRowsJson(const std::vector<PlanRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PlanRow& row : rows) {
    nlohmann::ordered_json& json = list.emplace_back();
    json = {{"kind", row.kind}, {"name", row.name}, {"fits", row.plan != nullptr}};
    if (row.plan != nullptr) {
      const Plan& plan = *row.plan;
      json["layout"] = LayoutText(plan.layout);
      json["microBatch"] = plan.micro_batch;
      json["layers"] = LayersOf(plan);
      json["stepNs"] = plan.step.value;
      json["tokensPerSecond"] = TokensPerSecond(plan);
      json["mfu"] = MfuOf(*row.request, plan);
      json["recomputeHiddenNs"] = SumOf(plan, &StagePlan::recompute_hidden).value;
      json["recomputeExposedNs"] = SumOf(plan, &StagePlan::recompute_exposed).value;
      if (row.peak_known) json["peakBytes"] = PeakOf(plan).value;
      if (row.base != nullptr) json["throughput"] = ThroughputOf(row);
    }
    json["note"] = row.note;
  }
  return nlohmann::ordered_json({{"plans", std::move(list)}})
             .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

Listing PlanRowsListing(const std::vector<PlanRow>& rows) {
  Listing listing;
  for (const char* column :
       {"kind", "name", "fits", "layout", "micro_batch", "layers", "step_seconds", "tokens_per_second", "mfu_ratio",
        "recompute_hidden_seconds", "recompute_exposed_seconds", "peak_bytes", "throughput_ratio", "note"}) {
    listing.columns.push_back({column, column});
  }
  const CellText cells(OutputFormat::kCsv, Nanos(0));
  for (const PlanRow& row : rows) {
    std::vector<std::string> line = {row.kind, row.name, row.plan != nullptr ? "true" : "false"};
    if (row.plan != nullptr) {
      const Plan& plan = *row.plan;
      line.insert(line.end(),
                  {LayoutText(plan.layout), absl::StrCat(plan.micro_batch), absl::StrJoin(LayersOf(plan), " "),
                   cells.Duration(plan.step.value), cells.Count(TokensPerSecond(plan)), cells.Count(MfuOf(*row.request, plan)),
                   cells.Duration(SumOf(plan, &StagePlan::recompute_hidden).value),
                   cells.Duration(SumOf(plan, &StagePlan::recompute_exposed).value),
                   row.peak_known ? cells.Size(PeakOf(plan)) : "", row.base != nullptr ? cells.Count(ThroughputOf(row)) : ""});
    }
    line.resize(listing.columns.size() - 1);
    line.push_back(row.note);
    listing.rows.push_back(std::move(line));
  }
  return listing;
}

}  // namespace lynx::cli
