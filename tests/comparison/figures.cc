#include "tests/comparison/figures.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "tests/comparison/chart.h"

namespace lynx::comparison {
namespace {

// The baselines that the figures show, in the order of the styles. Lynx has the strongest style.
constexpr Baseline kShown[] = {Baseline::kNoOverlap, Baseline::kSelective, Baseline::kFullKeepCollectives, Baseline::kBlock,
                               Baseline::kMegatronFull};

std::vector<std::string> Distinct(const std::vector<Curve>& curves, std::string Setting::*name) {
  std::vector<std::string> names;
  for (const Curve& curve : curves) {
    const std::string& one = curve.setting.*name;
    if (std::find(names.begin(), names.end(), one) == names.end()) names.push_back(one);
  }
  return names;
}

std::vector<int32_t> LengthsOf(const std::string& model, const std::vector<Curve>& curves) {
  std::vector<int32_t> lengths;
  for (const Curve& curve : curves) {
    if (curve.setting.model == model) lengths.push_back(curve.setting.seq);
  }
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

double ThroughputShare(const Curve& curve, Nanos step) {
  return static_cast<double>(curve.unlimited.value) / static_cast<double>(step.value);
}

Panel MemoryPanel(const Curve& curve) {
  Panel panel{.title = absl::StrFormat("%s, %d tokens", curve.setting.model, curve.setting.seq)};
  panel.x = {.low = 0.14,
             .high = 1.06,
             .logarithmic = true,
             .ticks = {{0.15, "15%"}, {0.25, "25%"}, {0.5, "50%"}, {1, "100%"}},
             .title = absl::StrFormat("of %.1f GiB", static_cast<double>(curve.stored.value) / kGiB.value)};
  panel.y = {.low = 0.5, .high = 1.42, .ticks = {{0.6, "60%"}, {0.8, "80%"}, {1, "100%"}, {1.2, "120%"}, {1.4, "140%"}}};
  const auto add = [&](int style, auto step_of) {
    Series series{.style = style};
    for (const Point& point : curve.points) {
      if (const std::optional<Nanos> step = step_of(point)) {
        series.points.emplace_back(point.share, ThroughputShare(curve, *step));
      }
    }
    panel.series.push_back(std::move(series));
  };
  add(0, [](const Point& point) { return point.lynx; });
  add(kSeriesStyles - 1, [](const Point& point) { return point.alone; });
  int style = 1;
  for (const Baseline baseline : kShown) {
    add(style++, [baseline](const Point& point) { return point.Step(baseline); });
  }
  return panel;
}

}  // namespace

int32_t ShownLength(const std::string& model, const std::vector<Curve>& curves) {
  const std::vector<int32_t> lengths = LengthsOf(model, curves);
  LYNX_CHECK(!lengths.empty());
  return lengths[lengths.size() / 2];
}

std::string MemoryFigure(const std::string& cluster, const std::vector<Curve>& curves) {
  Chart chart{.title = absl::StrCat("Throughput on ", cluster, " over the limit for activations, by recomputation policy"),
              .columns = 4,
              .legend = {{0, "Lynx (HEU), woven"}, {kSeriesStyles - 1, "Lynx, one pass at a time"}},
              .legend_in_grid = true};
  for (const Curve& curve : curves) {
    if (curve.setting.cluster == cluster && curve.setting.seq == ShownLength(curve.setting.model, curves)) {
      chart.panels.push_back(MemoryPanel(curve));
    }
  }
  int style = 1;
  for (const Baseline baseline : kShown) chart.legend.push_back({style++, BaselineName(baseline)});
  return SvgOf(chart);
}

double BestSpeedup(const Curve& curve, Baseline baseline) {
  double best = 0;
  for (const Point& point : curve.points) {
    if (point.Tight()) best = std::max(best, point.SpeedupOver(point.Step(baseline)));
  }
  return best;
}

std::string SpeedupFigure(const std::vector<Curve>& curves) {
  Chart chart{.title = "The most that Lynx is faster than Megatron-LM's full recomputation by",
              .columns = 2,
              .panel_width = 430,
              .panel_height = 220};
  const std::vector<std::string> models = Distinct(curves, &Setting::model);
  constexpr int kStyles[] = {4, 2, 0};
  for (const std::string& cluster : Distinct(curves, &Setting::cluster)) {
    Panel panel{.title = cluster, .bars = true};
    panel.x = {.low = -0.6, .high = static_cast<double>(models.size()) - 0.4};
    panel.y = {
        .low = 1, .high = 2, .ticks = {{1, "1.0x"}, {1.2, "1.2x"}, {1.4, "1.4x"}, {1.6, "1.6x"}, {1.8, "1.8x"}, {2, "2x"}}};
    panel.series = {{.style = kStyles[0]}, {.style = kStyles[1]}, {.style = kStyles[2]}};
    for (size_t i = 0; i < models.size(); ++i) {
      const bool gpt = models[i].starts_with("gpt-");
      panel.x.ticks.push_back({static_cast<double>(i), gpt ? models[i].substr(4) : models[i]});
      const std::vector<int32_t> lengths = LengthsOf(models[i], curves);
      for (const Curve& curve : curves) {
        if (curve.setting.cluster != cluster || curve.setting.model != models[i]) continue;
        const auto length = std::find(lengths.begin(), lengths.end(), curve.setting.seq) - lengths.begin();
        LYNX_CHECK(length < 3);
        panel.series[length].points.emplace_back(i, BestSpeedup(curve, Baseline::kMegatronFull));
      }
    }
    chart.panels.push_back(std::move(panel));
  }
  chart.legend = {{kStyles[0], "shortest sequence"}, {kStyles[1], "middle"}, {kStyles[2], "longest"}};
  return SvgOf(chart);
}

}  // namespace lynx::comparison
