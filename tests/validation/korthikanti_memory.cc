// Implements the part of korthikanti.h that computes memory.
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/lower/lower.h"
#include "planner/problem/flops.h"
#include "planner/program/memory_model.h"
#include "planner/recompute/recompute_policy.h"
#include "planner/schedule/schedule_generate.h"
#include "planner/schedule/schedule_memory.h"
#include "tests/validation/korthikanti.h"

namespace lynx::validation {
namespace {

constexpr double kGigabyte = 1e9;

struct Sizes {
  double s, b, h, a, t, v;
};

// A technique, and the paper's formula for the bytes that a layer keeps. `formula` is the text that the table has for the
// formula.
struct Technique {
  const char* row;
  const char* formula;
  bool tensor_parallel, sequence_parallel;
  RecomputeMode recompute;
  double (*bytes)(const Sizes&);
};

const Technique kTechniques[] = {
    {"no_parallelism", "s*b*h*(34+5*a*s/h)", false, false, RecomputeMode::kNone,
     [](const Sizes& z) { return z.s * z.b * z.h * (34 + 5 * z.a * z.s / z.h); }},
    {"TP", "s*b*h*(10+24/t+5*a*s/(h*t))", true, false, RecomputeMode::kNone,
     [](const Sizes& z) { return z.s * z.b * z.h * (10 + 24 / z.t + 5 * z.a * z.s / (z.h * z.t)); }},
    {"TP+SP", "s*b*h/t*(34+5*a*s/h)", true, true, RecomputeMode::kNone,
     [](const Sizes& z) { return z.s * z.b * z.h / z.t * (34 + 5 * z.a * z.s / z.h); }},
    {"TP+selective", "s*b*h*(10+24/t)", true, false, RecomputeMode::kSelective,
     [](const Sizes& z) { return z.s * z.b * z.h * (10 + 24 / z.t); }},
    {"TP+SP+selective", "34*s*b*h/t", true, true, RecomputeMode::kSelective,
     [](const Sizes& z) { return 34 * z.s * z.b * z.h / z.t; }},
    {"full_recompute", "2*s*b*h", true, false, RecomputeMode::kFull, [](const Sizes& z) { return 2 * z.s * z.b * z.h; }},
};

Sizes SizesOf(const StepRequest& run) {
  const ModelSpec& m = run.model;
  return {static_cast<double>(m.seq),   static_cast<double>(run.micro_batch), static_cast<double>(m.hidden),
          static_cast<double>(m.heads), static_cast<double>(run.layout.tp),   static_cast<double>(m.vocab)};
}

// The bytes that are alive at the end of the forward pass, in a step of one microbatch. The memory model of the step's program
// gives them.
struct Alive {
  Bytes layer;  // bytes of one transformer layer
  Bytes embedding_mask, final_norm_input, output_input, logits;
};

Alive AliveAfterForward(const StepRequest& run, bool tensor_parallel, bool sequence_parallel, RecomputeMode mode) {
  StageContext context{.model = run.model, .micro_batch = run.micro_batch, .microbatches = 1};
  context.model.layers = 2;
  if (tensor_parallel) context.layout = {.tp = run.layout.tp, .sequence_parallel = sequence_parallel};
  context.slices = {SliceOf(context.layout, 0, 0, 2)};
  const Program program = LowerStage(context, NamedPolicy(context.graph(), mode, 2));
  const absl::StatusOr<MemoryPlan> memory = FoldLiveness(program, context);
  LYNX_CHECK(memory.ok());
  int32_t end = -1;
  for (size_t i = 0; i < program.size(); ++i) {
    if (program[i].kind == ActionKind::kForward) end = static_cast<int32_t>(i);
  }
  Alive alive;
  for (const BufferInstance& buffer : memory->buffers) {
    if (buffer.first > end || buffer.last < end) continue;
    const BufferKey& key = buffer.key;
    if (key.layer == 0) alive.layer += buffer.bytes;
    if (key.tensor == Tensor::kEmbedMask) alive.embedding_mask += buffer.bytes;
    if (key.tensor == Tensor::kX && key.layer == kHeadLayer) alive.final_norm_input += buffer.bytes;
    if (key.tensor == Tensor::kLnf) alive.output_input += buffer.bytes;
    if (key.tensor == Tensor::kLogits) alive.logits += buffer.bytes;
  }
  return alive;
}

Bytes LayerBytes(const StepRequest& run, const Technique& technique) {
  return AliveAfterForward(run, technique.tensor_parallel, technique.sequence_parallel, technique.recompute).layer;
}

// Returns the number of layers whose activations the first stage holds at the same time.
double LayersInFlight(const StepRequest& run) {
  const absl::StatusOr<Schedule> schedule =
      GenerateSchedule(run.layout.schedule, run.layout.pp, run.layout.virtual_stages, run.microbatches);
  LYNX_CHECK(schedule.ok());
  const int32_t chunk_layers = run.model.layers / (run.layout.pp * run.layout.virtual_stages);
  return CountInFlight(*schedule).front().activations * static_cast<double>(chunk_layers);
}

void CheckFormula(const Table& table, const std::string& name, const std::string& row, const std::string& formula) {
  for (const Row& r : table) {
    if (r.at("table") == name && r.at("row") == row) {
      LYNX_CHECK(r.at("value") == formula);
      return;
    }
  }
  LYNX_CHECK(!"the table has no such formula");
}

const Technique& TechniqueOf(const std::string& row) {
  for (const Technique& technique : kTechniques) {
    if (row == technique.row) return technique;
  }
  LYNX_CHECK(!"no such technique");
  return kTechniques[0];
}

// Adds the parts at the two ends of a pipeline. Each has a row in the table and a formula.
void AddEnds(const Table& table, const PublishedRun& run, std::vector<Comparison>& all) {
  const Sizes z = SizesOf(run.present);
  const double p = run.present.layout.pp;
  const Alive alive = AliveAfterForward(run.present, true, true, RecomputeMode::kNone);
  const auto add = [&](const char* row, const char* formula, double published, Bytes ours, double times) {
    CheckFormula(table, "pipeline_memory", row, formula);
    all.push_back({run.name, row, "GB", published / kGigabyte, static_cast<double>(ours.value) * times / kGigabyte});
  };
  add("embed_dropout", "s*b*h*p/t", z.s * z.b * z.h * p / z.t, alive.embedding_mask, p);
  if (p > 1) return;
  add("final_layernorm(p==1)", "2*s*b*h/t", 2 * z.s * z.b * z.h / z.t, alive.final_norm_input, 1);
  add("output_layer_input(p==1)", "2*s*b*h/t", 2 * z.s * z.b * z.h / z.t, alive.output_input, 1);
  add("logits_fp32(p==1)", "4*s*b*v/t", 4 * z.s * z.b * z.v / z.t, alive.logits, 1);
}

}  // namespace

std::vector<Comparison> LayerMemory(const Table& table) {
  std::vector<Comparison> all;
  for (const PublishedRun& run : PublishedRuns(table)) {
    for (const Technique& technique : kTechniques) {
      CheckFormula(table, "T2_bytes_per_layer", technique.row, technique.formula);
      all.push_back({run.name, technique.row, "MB", technique.bytes(SizesOf(run.full)) / 1e6,
                     static_cast<double>(LayerBytes(run.full, technique).value) / 1e6});
    }
  }
  return all;
}

std::vector<Comparison> StageMemory(const Table& table) {
  std::vector<Comparison> all;
  for (const PublishedRun& run : PublishedRuns(table)) {
    for (const Row& row : table) {
      if (row.at("table") != "first_stage_activation_GB" || row.at("row") != run.name) continue;
      const std::string& field = row.at("field");
      Technique technique = TechniqueOf(field.substr(0, 4) == "full" ? "full_recompute" : field);
      technique.sequence_parallel = technique.sequence_parallel || field == "full_sharded_t";
      const double bytes = static_cast<double>(LayerBytes(run.full, technique).value) * LayersInFlight(run.full);
      all.push_back({run.name, field, "GB", Number(row, "value"), bytes / kGigabyte});
    }
    AddEnds(table, run, all);
    const double none = static_cast<double>(LayerBytes(run.full, TechniqueOf("TP+SP")).value);
    const double selective = static_cast<double>(LayerBytes(run.full, TechniqueOf("TP+SP+selective")).value);
    all.push_back({run.name, "saved by selective recomputation", "%",
                   Value(table, "selective_saving", run.name, "pct_of_layer"), 100 * (1 - selective / none)});
  }
  return all;
}

}  // namespace lynx::validation
