// See job_fields.h.
#include "cli/spec/job_fields.h"

#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/spec/job_field_kinds.h"
#include "cli/spec/model_fields.h"
#include "cli/spec/scalar_text.h"
#include "common/status.h"
#include "planner/recompute/recompute_modules.h"
#include "planner/schedule/custom_schedule.h"

namespace lynx::cli {
namespace {

// The file gives the share as a number from zero to one; the spec has thousandths.
JobField OffloadShareField() {
  return {"recomputeOptions.offloadShare",
          "share of stored activations that go to the host, 0 to 1",
          false,
          [](const std::string& text, JobSpec& spec) {
            double value;
            if (!absl::SimpleAtod(text, &value) || !(value >= 0 && value <= 1))
              return Expected("a number from 0 to 1", text, RealAdvice(text));
            spec.recompute_options.offload_permille = static_cast<int32_t>(std::lround(value * 1000));
            return absl::OkStatus();
          },
          [](const JobSpec& spec) { return RealText(spec.recompute_options.offload_permille / 1000.0); },
          nullptr,
          ScalarKind::kReal};
}

JobField CopyEveryField() {
  return {"checkpoint.copyEverySteps",
          "copy the states to the memory of two nodes every so many steps; auto: as often as it costs little; 0: never "
          "(docs/checkpoints.md)",
          false,
          [](const std::string& text, JobSpec& spec) {
            if (text != "auto") return ReadInt(text, spec.checkpoint.copy_every_steps);
            spec.checkpoint.copy_every_steps = kCopiesAuto;
            return absl::OkStatus();
          },
          [](const JobSpec& spec) {
            const int64_t every = spec.checkpoint.copy_every_steps;
            return every == kCopiesAuto ? "auto" : absl::StrCat(every);
          },
          nullptr,
          ScalarKind::kInteger,
          {"auto"}};
}

constexpr char kOffloadWord[] = "offload";

JobField ForbiddenField() {
  return {"recomputeOptions.forbid",
          "policies that recompute: auto may not choose, separated by blanks; offload: nothing goes to the host", false,
          [](const std::string& text, JobSpec& spec) {
            spec.recompute_options.forbidden.clear();
            spec.recompute_options.forbids_offload = false;
            for (const std::string& name : std::vector<std::string>(absl::StrSplit(text, ' ', absl::SkipEmpty()))) {
              RecomputeMode mode;
              if (name == kOffloadWord) {
                spec.recompute_options.forbids_offload = true;
                continue;
              }
              if (!ParseEnum(name, mode) || mode == RecomputeMode::kAuto) {
                return Expected("names of policies other than auto, or offload", name);
              }
              spec.recompute_options.forbidden.push_back(mode);
            }
            return absl::OkStatus();
          },
          [](const JobSpec& spec) {
            std::vector<std::string> names;
            for (RecomputeMode mode : spec.recompute_options.forbidden) names.push_back(EnumName(mode));
            if (spec.recompute_options.forbids_offload) names.push_back(kOffloadWord);
            return names.empty() ? "" : QuotedText(absl::StrJoin(names, " "));
          }};
}

JobField ModulesField() {
  return {"recomputeOptions.modules",
          absl::StrCat("what recompute selective recomputes, separated by blanks (docs/memory-model.md): ",
                       absl::StrJoin(kEnumNames<RecomputeModule>, ", "), "; default: the scores of unfused attention"),
          false,
          [](const std::string& text, JobSpec& spec) {
            spec.recompute_options.modules.clear();
            for (const std::string& name : std::vector<std::string>(absl::StrSplit(text, ' ', absl::SkipEmpty()))) {
              RecomputeModule module;
              if (!ParseEnum(name, module)) {
                return Expected(absl::StrCat("names of ", absl::StrJoin(kEnumNames<RecomputeModule>, ", ")), name);
              }
              spec.recompute_options.modules.push_back(module);
            }
            return absl::OkStatus();
          },
          [](const JobSpec& spec) {
            const std::string text = ModulesText(spec.recompute_options.modules);
            return text.empty() ? "" : QuotedText(text);
          }};
}

JobField RanksField() {
  return {"resources.ranks",
          "devices to train on: a number, or a range such as 2..8, within which the job follows its cluster (docs/elastic.md)",
          true,
          [](const std::string& text, JobSpec& spec) {
            const std::vector<std::string> parts = absl::StrSplit(text, "..");
            ResourceSpec& r = spec.resources;
            if (parts.size() > 2 || !ReadInt(parts[0], r.min_ranks).ok() || !ReadInt(parts.back(), r.max_ranks).ok()) {
              return Expected("a number or a range such as 2..8", text);
            }
            return absl::OkStatus();
          },
          [](const JobSpec& spec) {
            const ResourceSpec& r = spec.resources;
            return r.min_ranks == r.max_ranks ? absl::StrCat(r.min_ranks) : absl::StrCat(r.min_ranks, "..", r.max_ranks);
          }};
}

JobField ActivationMemoryField() {
  return {"resources.activationMemoryPerRank",
          "limit for one rank's activations, such as 24MiB; auto: what the device has left", false,
          [](const std::string& text, JobSpec& spec) {
            Bytes& limit = spec.resources.activation_memory_per_rank;
            if (text == "auto") {
              limit = Bytes(0);
              return absl::OkStatus();
            }
            auto bytes = ParseByteSize(text);
            if (!bytes.ok()) return bytes.status();
            if (bytes->value == 0) return Expected("a size above zero, or auto", text);
            limit = *bytes;
            return absl::OkStatus();
          },
          [](const JobSpec& spec) {
            const Bytes limit = spec.resources.activation_memory_per_rank;
            return limit.value == 0 ? "auto" : ByteSizeText(limit);
          }};
}

JobField TextField(std::string path, std::string meaning, bool required, std::function<std::string&(JobSpec&)> owner) {
  return {path, meaning, required,
          [=](const std::string& text, JobSpec& spec) {
            owner(spec) = text;
            return absl::OkStatus();
          },
          [=](const JobSpec& spec) {
            const std::string& text = owner(const_cast<JobSpec&>(spec));
            return text.empty() ? "" : QuotedText(text);
          }};
}

// Reads a list ([9, 10, 9]) or a text with the same numbers ("9 10 9").
JobField StageLayersField() {
  constexpr char kMeaning[] =
      "layers of each stage, or of each chunk with virtual stages, in the model's order, such as [9, 10, 9]; needs "
      "parallel.pp; "
      "empty: parallel.partition decides";
  const auto read = [](const std::string& text, std::vector<int32_t>& layers) {
    for (const std::string& number :
         std::vector<std::string>(absl::StrSplit(text, absl::ByAnyChar(" ,[]"), absl::SkipEmpty()))) {
      LYNX_RETURN_IF_ERROR(ReadInt(number, layers.emplace_back()));
    }
    return absl::OkStatus();
  };
  return {"parallel.stageLayers",
          kMeaning,
          false,
          [=](const std::string& text, JobSpec& spec) {
            spec.parallel.stage_layers.clear();
            return read(text, spec.parallel.stage_layers);
          },
          [](const JobSpec& spec) {
            const std::vector<int32_t>& layers = spec.parallel.stage_layers;
            return layers.empty() ? "" : absl::StrCat("[", absl::StrJoin(layers, ", "), "]");
          },
          [=](YamlReader& reader, const YamlValue& value, const std::string& path, JobSpec& spec) {
            spec.parallel.stage_layers.clear();
            const std::vector<YamlValue> one = {value};
            for (const YamlValue& item : value.IsList() ? value.items : one) {
              if (!item.IsScalar()) return reader.Error(item, path, absl::StrCat("expected whole numbers (", kMeaning, ")"));
              const absl::Status status = read(item.scalar, spec.parallel.stage_layers);
              if (!status.ok()) return reader.Error(item, path, std::string(status.message()));
            }
            return absl::OkStatus();
          },
          ScalarKind::kIntegers};
}

JobField AfterField() {
  return {"scheduling.after", "jobs, by id or name, that must have succeeded before this one begins, separated by blanks",
          false,
          [](const std::string& text, JobSpec& spec) {
            spec.scheduling.after = absl::StrSplit(text, ' ', absl::SkipEmpty());
            return absl::OkStatus();
          },
          [](const JobSpec& spec) {
            const std::vector<std::string>& after = spec.scheduling.after;
            return after.empty() ? "" : QuotedText(absl::StrJoin(after, " "));
          }};
}

JobField TimeLimitField() {
  return {"scheduling.timeLimit",
          "of training, such as 12h, over all restarts; then the job writes a checkpoint and has failed; 0: none", false,
          [](const std::string& text, JobSpec& spec) {
            LYNX_ASSIGN_OR_RETURN(spec.scheduling.time_limit, ParseDuration(text));
            return absl::OkStatus();
          },
          [](const JobSpec& spec) { return DurationText(spec.scheduling.time_limit); }};
}

absl::StatusOr<FailureRule> ReadFailureRule(const std::string& line) {
  const std::string expected = "rules such as 'exit 137: retry' or 'log uncorrectable ECC error: exclude-node'";
  const size_t colon = line.rfind(':');
  if (colon == std::string::npos) return Expected(expected, line);
  const absl::string_view action = absl::StripAsciiWhitespace(absl::string_view(line).substr(colon + 1));
  absl::string_view when = absl::StripAsciiWhitespace(absl::string_view(line).substr(0, colon));
  FailureRule rule;
  if (!ParseEnum(std::string(action), rule.action)) return Expected("retry, exclude-node or fail", std::string(action));
  if (absl::ConsumePrefix(&when, "exit ")) {
    LYNX_RETURN_IF_ERROR(ReadInt(std::string(absl::StripAsciiWhitespace(when)), rule.exit_code));
    if (rule.exit_code < 0 || rule.exit_code > 255) return Expected("an exit code from 0 to 255", std::string(when));
    return rule;
  }
  if (!absl::ConsumePrefix(&when, "log ")) return Expected(expected, line);
  rule.log = std::string(absl::StripAsciiWhitespace(when));
  if (rule.log.empty()) return Expected(expected, line);
  return rule;
}

JobField OnFailureField() {
  return {
      "onFailure",
      "what a rank's failure means, a rule a line, the first that matches: 'exit CODE: ACTION' or 'log TEXT: ACTION', where an "
      "action is retry, exclude-node or fail (docs/scheduling.md)",
      false,
      [](const std::string& text, JobSpec& spec) {
        spec.on_failure.clear();
        for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n', absl::SkipWhitespace()))) {
          LYNX_ASSIGN_OR_RETURN(FailureRule rule, ReadFailureRule(line));
          spec.on_failure.push_back(std::move(rule));
        }
        return absl::OkStatus();
      },
      [](const JobSpec& spec) {
        std::string lines;
        for (const FailureRule& rule : spec.on_failure) {
          absl::StrAppend(&lines, "\n  ",
                          rule.log.empty() ? absl::StrCat("exit ", rule.exit_code) : absl::StrCat("log ", rule.log), ": ",
                          EnumName(rule.action));
        }
        return lines.empty() ? "" : absl::StrCat("|", lines);
      }};
}

// The field that has the name of a schedule, or the text of a schedule. The text of a schedule contains "ranks=".
JobField ScheduleField() {
  return {"parallel.schedule",
          "order of the pipeline's passes: auto, gpipe, 1f1b, interleaved, zero-bubble, zero-bubble-v, chimera, or the text "
          "of one of your own (docs/schedules.md)",
          false,
          [](const std::string& text, JobSpec& spec) {
            ParallelSpec& parallel = spec.parallel;
            parallel.schedule_text.clear();
            if (!absl::StrContains(text, "=")) {
              const bool known = ParseEnum(text, parallel.schedule) && parallel.schedule != ScheduleKind::kCustom;
              return known ? absl::OkStatus()
                           : Expected(
                                 "auto, gpipe, 1f1b, interleaved, zero-bubble, zero-bubble-v, chimera or a "
                                 "schedule's text, such as \"custom ranks=2 microbatches=4\" and a line for each rank",
                                 text);
            }
            LYNX_ASSIGN_OR_RETURN(const SharedSchedule custom, ReadCustomSchedule(text));
            parallel.schedule = ScheduleKind::kCustom;
            parallel.schedule_text = ScheduleText(*custom.schedule);
            return absl::OkStatus();
          },
          [](const JobSpec& spec) {
            if (spec.parallel.schedule != ScheduleKind::kCustom) return std::string(EnumName(spec.parallel.schedule));
            std::string lines = spec.parallel.schedule_text;
            if (!lines.empty()) lines.pop_back();  // the end of the last line
            return absl::StrCat("|\n    ", absl::StrReplaceAll(lines, {{"\n", "\n    "}}));
          }};
}

// `parallel: auto` leaves all fields of the section at their defaults. It does not undo fields that are already set.
JobField ParallelWordField() {
  return {"parallel",
          "",
          false,
          [](const std::string& text, JobSpec&) {
            return text == "auto" ? absl::OkStatus() : Expected("auto, or fields such as tp and pp", text);
          },
          nullptr,
          nullptr,
          ScalarKind::kText,
          {"auto"}};
}

std::vector<JobField> TrainFields() {
  auto train = [](JobSpec& s) -> TrainSpec& { return s.train; };
  using D = JobSpec&;
  return {
      IntField("train.steps", "optimizer steps", true, train, &TrainSpec::steps),
      IntField("train.globalBatch", "samples per optimizer step, over all replicas", true, train, &TrainSpec::global_batch),
      IntField("train.microBatch", "samples per microbatch, or auto", false, train, &TrainSpec::micro_batch, "auto"),
      DoubleField("train.optimizer.lr", "peak learning rate", [](D s) -> double& { return s.train.optimizer.lr; }),
      DoubleField("train.optimizer.beta1", "AdamW", [](D s) -> double& { return s.train.optimizer.beta1; }),
      DoubleField("train.optimizer.beta2", "AdamW", [](D s) -> double& { return s.train.optimizer.beta2; }),
      DoubleField("train.optimizer.eps", "AdamW", [](D s) -> double& { return s.train.optimizer.eps; }),
      DoubleField("train.optimizer.weightDecay", "decoupled, of matrices only",
                  [](D s) -> double& { return s.train.optimizer.weight_decay; }),
      DoubleField("train.optimizer.clipNorm", "limit of the global gradient norm; 0: none",
                  [](D s) -> double& { return s.train.optimizer.clip_norm; }),
      EnumField("train.schedule", "learning rate after the warm-up", "constant, linear or cosine",
                [](D s) -> LrSchedule& { return s.train.schedule; }),
      IntField("train.warmupSteps", "steps of linear warm-up", false, train, &TrainSpec::warmup_steps),
      DoubleField("train.minLr", "where linear and cosine end", [](D s) -> double& { return s.train.min_lr; }),
      IntField("train.seed", "of weights, dropout and the order of samples", false, train, &TrainSpec::seed),
      EnumField("train.onNonFinite",
                "when the loss or the gradient norm is not a finite number: end the run, or go on without the step's update",
                "stop or skip", [](D s) -> NonFinitePolicy& { return s.train.on_non_finite; }),
      IntField("train.evalEvery", "steps between evaluations of the validation loss; 0: never", false, train,
               &TrainSpec::eval_every),
      IntField("train.evalBatches", "global batches of an evaluation, the same ones each time", false, train,
               &TrainSpec::eval_batches),
  };
}

}  // namespace

const std::vector<JobField>& JobFields() {
  static const auto& fields = *new std::vector<JobField>([] {
    std::vector<JobField> all = {
        TextField("name", "lower-case letters, digits and dashes, at most 48", true,
                  [](JobSpec& s) -> std::string& { return s.name; }),
    };
    auto append = [&all](std::vector<JobField> more) { all.insert(all.end(), more.begin(), more.end()); };
    auto parallel = [](JobSpec& s) -> ParallelSpec& { return s.parallel; };
    auto checkpoint = [](JobSpec& s) -> CheckpointSpec& { return s.checkpoint; };
    auto scheduling = [](JobSpec& s) -> SchedulingSpec& { return s.scheduling; };
    append(ModelFields());
    append({
        EnumField("data.kind", "what the path holds", "text or megatron", [](JobSpec& s) -> DataKind& { return s.data.kind; }),
        TextField("data.path", "a text file, or the prefix of a .bin/.idx pair; relative to this file", true,
                  [](JobSpec& s) -> std::string& { return s.data.path; }),
        TextField("data.validationPath", "held-out data of the same kind, for train.evalEvery; relative to this file", false,
                  [](JobSpec& s) -> std::string& { return s.data.validation_path; }),
    });
    append(TrainFields());
    append({
        RanksField(),
        ActivationMemoryField(),
        EnumField("resources.device", "of all ranks; any means cuda where the cluster has enough GPUs, else cpu",
                  "any, cpu or cuda", [](JobSpec& s) -> DeviceKind& { return s.resources.device; }),
        ParallelWordField(),
        IntField("parallel.tp", "tensor-parallel size, or auto", false, parallel, &ParallelSpec::tp, "auto"),
        IntField("parallel.pp", "pipeline stages, or auto", false, parallel, &ParallelSpec::pp, "auto"),
        IntField("parallel.dp", "data-parallel replicas, or auto", false, parallel, &ParallelSpec::dp, "auto"),
        IntField("parallel.cp", "context-parallel size, or auto", false, parallel, &ParallelSpec::cp, "auto"),
        IntField("parallel.ep",
                 "expert-parallel size: ranks that share the experts of a layer, a divisor of tp * cp * dp and of "
                 "model.moe.experts; or auto",
                 false, parallel, &ParallelSpec::ep, "auto"),
        IntField("parallel.virtualStages", "model chunks per rank, or auto; above 1 with schedule interleaved", false, parallel,
                 &ParallelSpec::virtual_stages, "auto"),
        ChoiceField("parallel.sequenceParallel", "shard norms and residuals over the tensor-parallel ranks",
                    [](JobSpec& s) -> Choice& { return s.parallel.sequence_parallel; }),
        ScheduleField(),
        EnumField("parallel.zero", "model states that data-parallel ranks share out",
                  "auto, none, optimizer, gradients or weights", [](JobSpec& s) -> ZeroStage& { return s.parallel.zero; }),
        IntField(
            "parallel.zeroGroup",
            "replicas that shard the states among them, such as those of a node; the groups hold the same states; planned, not "
            "trained; auto: all replicas",
            false, parallel, &ParallelSpec::zero_group, "auto"),
        EnumField(
            "parallel.weave",
            "passes of microbatches that run side by side, so that one computes while another's collective is under way: 2 or "
            "4 microbatches, or neighbouring passes of the schedule",
            "off, auto, pairs, quads or neighbours", [](JobSpec& s) -> WeaveMode& { return s.parallel.weave; }),
        EnumField("parallel.rankOrder",
                  "how ranks are numbered, and so which of them share a node: the stages of a replica (tp-pp-dp) or the "
                  "replicas of a stage (tp-dp-pp)",
                  "auto, tp-pp-dp or tp-dp-pp", [](JobSpec& s) -> RankOrder& { return s.parallel.rank_order; }),
        EnumField(
            "parallel.partition",
            "how layers are spread over the stages: for the shortest step, or, to compare with, as many each, by forward and "
            "backward time alone, by moving one layer at a time",
            "exact, even, compute or greedy", [](JobSpec& s) -> PartitionMethod& { return s.parallel.partition; }),
        StageLayersField(),
        EnumField("recompute", "recomputation policy",
                  "auto, none, full, full-keep-collectives, selective, uniform, block, balanced, no-overlap, heu or opt",
                  [](JobSpec& s) -> RecomputeMode& { return s.recompute; }),
        IntField(
            "recomputeOptions.layers",
            "N of recompute uniform and block, one for all stages; auto: that of the shortest step that fits", false,
            [](JobSpec& s) -> RecomputeOptions& { return s.recompute_options; }, &RecomputeOptions::layers, "auto"),
        OffloadShareField(),
        ForbiddenField(),
        ModulesField(),
        TextField("checkpoint.directory",
                  "shared by all nodes, one for each job; relative to this file; default: chosen by the server", false,
                  [](JobSpec& s) -> std::string& { return s.checkpoint.directory; }),
        IntField("checkpoint.everySteps", "0: only at the end; the last one is always written", false, checkpoint,
                 &CheckpointSpec::every_steps),
        CopyEveryField(),
        IntField("checkpoint.keep", "newest checkpoints kept", false, checkpoint, &CheckpointSpec::keep),
        TextField(
            "checkpoint.from",
            "begin with this checkpoint, or the newest whole one of this directory, whatever layout wrote it; relative to "
            "this file (docs/checkpoints.md)",
            false, [](JobSpec& s) -> std::string& { return s.checkpoint.from; }),
        BoolField("checkpoint.weightsOnly", "take only its weights, and begin at step 0",
                  [](JobSpec& s) -> bool& { return s.checkpoint.weights_only; }),
        IntField(
            "maxRestarts", "automatic restarts after a lost rank or node", false, [](JobSpec& s) -> JobSpec& { return s; },
            &JobSpec::max_restarts),
        TextField("scheduling.queue", "whose share of the cluster the job has (docs/scheduling.md)", false,
                  [](JobSpec& s) -> std::string& { return s.scheduling.queue; }),
        IntField("scheduling.priority", "jobs with a higher one go first, -1000 to 1000", false, scheduling,
                 &SchedulingSpec::priority),
        BoolField("scheduling.hold", "waits until 'lynxctl release'", [](JobSpec& s) -> bool& { return s.scheduling.hold; }),
        AfterField(),
        TimeLimitField(),
        BoolField("scheduling.preemptible",
                  "gives way, with a checkpoint, where a job of a higher priority or its queue's owner needs its devices",
                  [](JobSpec& s) -> bool& { return s.scheduling.preemptible; }),
        OnFailureField(),
        EnumField(
            "nodeCheck",
            "ranks check their devices and links before they train, after failures that may be a node's doing or at every "
            "start "
            "(docs/failures.md)",
            "auto, always or never", [](JobSpec& s) -> NodeCheckPolicy& { return s.node_check; }),
    });
    return all;
  }());
  return fields;
}

}  // namespace lynx::cli
