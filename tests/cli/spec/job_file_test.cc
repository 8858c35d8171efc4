#include "cli/spec/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_replace.h"
#include "planner/problem/model_presets.h"

namespace lynx::cli {
namespace {

using testing::HasSubstr;

constexpr char kGood[] = R"(apiVersion: lynx/v1
kind: TrainingJob
name: tiny
model:
  layers: 4
  hidden: 64
  heads: 4
  seq: 32
data:
  kind: text
  path: corpus.txt
train:
  steps: 10
  globalBatch: 8
resources:
  ranks: 2..4
  activationMemoryPerRank: 24MiB
)";

std::string Replaced(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string ErrorOf(const std::string& text) {
  auto spec = ParseJobFile(text, "job.yaml", "/data");
  EXPECT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(spec.status().message());
}

TEST(JobFile, ReadsFieldsAndDefaults) {
  auto spec = ParseJobFile(kGood, "job.yaml", "/data");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name, "tiny");
  EXPECT_EQ(spec->model.ffn, 256);
  EXPECT_EQ(spec->data.path, "/data/corpus.txt");
  EXPECT_EQ(spec->resources.min_ranks, 2);
  EXPECT_EQ(spec->resources.max_ranks, 4);
  EXPECT_EQ(spec->resources.activation_memory_per_rank, kMiB * 24);
  EXPECT_EQ(spec->parallel.tp, 0);
  EXPECT_EQ(spec->recompute, RecomputeMode::kAuto);
  EXPECT_EQ(spec->train.optimizer.beta2, 0.95);
}

TEST(JobFile, ReadsAScheduleFromItsText) {
  const std::string with_schedule = Replaced("resources:",
                                             "parallel:\n  tp: 1\n  dp: 1\n  schedule: |\n    custom ranks=2 microbatches=2\n"
                                             "    0F0 0F1 0B0 0B1\n    1F0 1B0 1F1 1B1  # as in 1F1B\nresources:");
  const auto spec = ParseJobFile(with_schedule, "job.yaml", "/data");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->parallel.schedule, ScheduleKind::kCustom);
  EXPECT_EQ(spec->parallel.pp, 2);
  EXPECT_EQ(spec->parallel.schedule_text,
            "custom ranks=2 chunks=1 microbatches=2 placement=looping weight=fused\n0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n");
  const auto again = ParseJobFile(JobFileText(*spec), "printed.yaml", "/elsewhere");
  ASSERT_TRUE(again.ok()) << again.status() << JobFileText(*spec);
  EXPECT_EQ(*again, *spec);
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(with_schedule, {{"0B1", "0B2"}})),
              testing::AllOf(HasSubstr("parallel.schedule: "), HasSubstr("0B2")));
  EXPECT_THAT(ErrorOf(Replaced("resources:", "parallel: {schedule: custom}\nresources:")), HasSubstr("a schedule's text"));
}

TEST(JobFile, ReadsWhenAJobRunsAndWhatFailuresMean) {
  const std::string text =
      Replaced("resources:",
               "scheduling: {queue: research, priority: -5, hold: true, after: prepare 12ab, timeLimit: 90min, "
               "preemptible: false}\nonFailure: |\n  exit 137: retry\n"
               "  log ECC error: bank 7: exclude-node\n  exit 2: fail\nresources:");
  const auto spec = ParseJobFile(text, "job.yaml", "/data");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const SchedulingSpec expected{.queue = "research",
                                .priority = -5,
                                .hold = true,
                                .after = {"prepare", "12ab"},
                                .time_limit = Nanos(5'400'000'000'000),
                                .preemptible = false};
  EXPECT_EQ(spec->scheduling, expected);
  const std::vector<FailureRule> rules = {{.exit_code = 137, .action = FailureAction::kRetry},
                                          {.log = "ECC error: bank 7", .action = FailureAction::kExcludeNode},
                                          {.exit_code = 2, .action = FailureAction::kFail}};
  EXPECT_EQ(spec->on_failure, rules);
  const auto again = ParseJobFile(JobFileText(*spec), "printed.yaml", "/elsewhere");
  ASSERT_TRUE(again.ok()) << again.status() << JobFileText(*spec);
  EXPECT_EQ(*again, *spec);
}

TEST(JobFile, ReadsExperts) {
  const std::string text =
      Replaced("  seq: 32",
               "  seq: 32\n  family: llama\n  dropout: 0\n  moe: {experts: 8, topK: 2, ffn: 48, "
               "normalized: false, capacity: 1.25, dropless: true, skew: 1.5, auxLoss: 0.01, zLoss: 1e-3}");
  const auto spec = ParseJobFile(text, "job.yaml", "/data", {"parallel.ep=2"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  const MoeSpec expected{.experts = 8,
                         .top_k = 2,
                         .ffn = 48,
                         .normalized = false,
                         .capacity = 1.25,
                         .dropless = true,
                         .skew = 1.5,
                         .aux_loss = 0.01,
                         .z_loss = 0.001};
  EXPECT_EQ(spec->model.moe, expected);
  EXPECT_EQ(spec->parallel.ep, 2);
  const auto again = ParseJobFile(JobFileText(*spec), "printed.yaml", "/elsewhere");
  ASSERT_TRUE(again.ok()) << again.status() << JobFileText(*spec);
  EXPECT_EQ(*again, *spec);
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(text, {{"topK: 2", "topK: 9"}})),
              HasSubstr("model.moe.topK is 9: must be from 1 to 8"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(text, {{"topK", "topk"}})), HasSubstr("did you mean 'topK'?"));
}

TEST(JobFile, ReadsLatentAttentionAndSharedExperts) {
  const std::string text =
      Replaced("  seq: 32",
               "  seq: 32\n  family: llama\n  dropout: 0\n  attention: fused\n  headDim: 24\n  rope: {dims: 8}\n"
               "  latent: {queryRank: 40, kvRank: 20, valueDim: 12}\n"
               "  moe: {experts: 8, topK: 2, sharedFfn: 96, denseLayers: 1}");
  const auto spec = ParseJobFile(text, "job.yaml", "/data");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.latent, (LatentSpec{.query_rank = 40, .kv_rank = 20, .value_dim = 12}));
  EXPECT_EQ(spec->model.moe, (MoeSpec{.experts = 8, .top_k = 2, .shared_ffn = 96, .dense_layers = 1}));
  const auto again = ParseJobFile(JobFileText(*spec), "printed.yaml", "/elsewhere");
  ASSERT_TRUE(again.ok()) << again.status() << JobFileText(*spec);
  EXPECT_EQ(*again, *spec);
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(text, {{"kvRank: 20, ", ""}})), HasSubstr("give model.latent.kvRank"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(text, {{"denseLayers: 1", "denseLayers: 99"}})),
              HasSubstr("model.moe.denseLayers is 99: must be from 0 to"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(text, {{"kvRank", "kvrank"}})), HasSubstr("did you mean 'kvRank'?"));
}

TEST(JobFile, PrintedFileReadsBackEqual) {
  auto spec = ParseJobFile(Replaced("  steps: 10",
                                    "  steps: 10\n  minLr: 1.7e-5\n  seed: 18446744073709551615\n"
                                    "  microBatch: 2\n  schedule: linear\n  optimizer: {lr: 0.1, eps: 1e-9}"),
                           "job.yaml", "/data");
  ASSERT_TRUE(spec.ok()) << spec.status();
  spec->checkpoint.directory = "/tmp/a \"b\": #c";
  spec->checkpoint.from = "/tmp/b";
  spec->checkpoint.weights_only = true;
  auto again = ParseJobFile(JobFileText(*spec), "printed.yaml", "/elsewhere");
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << JobFileText(*spec);
  EXPECT_TRUE(*again == *spec) << JobFileText(*again) << "\nbecame\n" << JobFileText(*spec);
}

TEST(JobFile, SaysWhatAFailureRuleShouldBe) {
  const auto with = [](const std::string& rule) {
    return ErrorOf(Replaced("resources:", "onFailure: \"" + rule + "\"\nresources:"));
  };
  EXPECT_THAT(with("exit 1"), HasSubstr("expected rules such as 'exit 137: retry'"));
  EXPECT_THAT(with("exit 1: again"), HasSubstr("expected retry, exclude-node or fail, found 'again'"));
  EXPECT_THAT(with("exit one: fail"), HasSubstr("expected a whole number"));
  EXPECT_THAT(with("exit 300: fail"), HasSubstr("expected an exit code from 0 to 255"));
  EXPECT_THAT(with("log : fail"), HasSubstr("expected rules such as"));
  EXPECT_THAT(with("signal 9: fail"), HasSubstr("expected rules such as"));
}

struct BadCase {
  std::string name, from, to, expected;
};
void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.name; }

class BadJobFile : public testing::TestWithParam<BadCase> {};

TEST_P(BadJobFile, NamesPlaceAndRemedy) {
  EXPECT_THAT(ErrorOf(Replaced(GetParam().from, GetParam().to)), HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadJobFile,
    testing::Values(
        BadCase{"Malformed", "model:", "model: [", "job.yaml:4:8: not valid YAML: the '[' here is not closed"},
        BadCase{"UnknownField", "globalBatch", "globalBach",
                "job.yaml:14:3: train.globalBach: unknown field; did you mean 'globalBatch'?"},
        BadCase{"UnknownCase", "globalBatch", "globalbatch", "did you mean 'globalBatch'?"},
        BadCase{"UnknownSection", "resources:", "quux:", "job.yaml:15:1: quux: unknown field; known here: apiVersion"},
        BadCase{"IllTyped", "layers: 4", "layers: four", "job.yaml:5:11: model.layers: expected a whole number"},
        BadCase{"Fraction", "layers: 4", "layers: 4.5", "found '4.5'"},
        BadCase{"Overflow", "layers: 4", "layers: 99999999999", "expected a whole number up to 2147483647"},
        BadCase{"NotFinite", "heads: 4", "heads: 4\n  dropout: nan", "model.dropout: expected a number, found 'nan'"},
        BadCase{"MapForScalar", "layers: 4", "layers: {a: 1}", "job.yaml:5:11: model.layers: expected one value"},
        BadCase{"ScalarForMap", "model:\n  layers: 4\n  hidden: 64\n  heads: 4\n  seq: 32", "model: big",
                "job.yaml:4:8: model: expected fields: preset, config, layers, hidden"},
        BadCase{"Twice", "layers: 4", "layers: 4\n  layers: 5", "model.layers: given twice"},
        BadCase{"MissingField", "  layers: 4\n", "", "job.yaml: model.layers: missing"},
        BadCase{"WrongVersion", "lynx/v1", "lynx/v2", "job.yaml:1:13: apiVersion: expected 'lynx/v1', found 'lynx/v2'"},
        BadCase{"NoVersion", "apiVersion: lynx/v1\n", "", "apiVersion: missing; write 'apiVersion: lynx/v1'"},
        BadCase{"BadSize", "24MiB", "24 megs", "resources.activationMemoryPerRank: expected a size such as"},
        BadCase{"ZeroSize", "24MiB", "0", "expected a size above zero"},
        BadCase{"BadRange", "2..4", "2...4", "resources.ranks: expected a number or a range"},
        BadCase{"BadEnum", "kind: text", "kind: parquet", "data.kind: expected text or megatron, found 'parquet'"},
        BadCase{"BadRecompute", "name: tiny", "name: tiny\nrecompute: most", "opt, found 'most'"},
        BadCase{"BadForbid", "name: tiny", "name: tiny\nrecomputeOptions: {forbid: full auto}",
                "recomputeOptions.forbid: expected names of policies other than auto, or offload, found 'auto'"},
        BadCase{
            "BadModule", "name: tiny", "name: tiny\nrecompute: selective\nrecomputeOptions: {modules: mlp act}",
            "recomputeOptions.modules: expected names of core_attn, layernorm, moe_act, mla_up_proj, mlp, moe, shared_experts"},
        BadCase{"ForbiddenShare", "name: tiny", "name: tiny\nrecomputeOptions: {forbid: offload, offloadShare: 0.5}",
                "must be 0, for recomputeOptions.forbid has offload"},
        BadCase{"HeadsAgainstHidden", "heads: 4", "heads: 5",
                "job.yaml:6:11: model.hidden is 64: must be a multiple of model.heads, which is 5"},
        BadCase{"HeadsAgainstTp", "name: tiny", "name: tiny\nparallel: {tp: 3}", "3"},
        BadCase{"TwoDocuments", "name: tiny", "name: tiny\n---\na: b", "holds 2 documents"},
        BadCase{"UpperCaseName", "name: tiny", "name: Tiny", "job.yaml:3:7: name"}),
    [](const auto& info) { return info.param.name; });

TEST(JobFile, OverridesWin) {
  auto spec = ParseJobFile(kGood, "job.yaml", "/data", {"data.path=/else/where=x.txt", "train.steps=3", "recompute=full"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->data.path, "/else/where=x.txt");
  EXPECT_EQ(spec->train.steps, 3);
  EXPECT_EQ(spec->recompute, RecomputeMode::kFull);
}

TEST(JobFile, ForbidsOffloadingBesidePolicies) {
  const auto spec = ParseJobFile(kGood, "job.yaml", "/data", {"recomputeOptions.forbid=full offload"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->recompute_options.forbids_offload);
  EXPECT_THAT(spec->recompute_options.forbidden, testing::ElementsAre(RecomputeMode::kFull));
  const auto again = ParseJobFile(JobFileText(*spec), "printed.yaml", "/elsewhere");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == *spec) << JobFileText(*spec);
  const auto allowed = ParseJobFile(JobFileText(*spec), "printed.yaml", "/elsewhere", {"recomputeOptions.forbid=full"});
  ASSERT_TRUE(allowed.ok()) << allowed.status();
  EXPECT_FALSE(allowed->recompute_options.forbids_offload);
}

TEST(JobFile, ReadsModules) {
  const auto spec =
      ParseJobFile(kGood, "job.yaml", "/data", {"recompute=selective", "recomputeOptions.modules=mlp layernorm mlp"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->recompute_options.modules, testing::ElementsAre(RecomputeModule::kLayernorm, RecomputeModule::kMlp));
  const auto again = ParseJobFile(JobFileText(*spec), "printed.yaml", "/elsewhere");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == *spec) << JobFileText(*spec);
}

TEST(JobFile, ReadsTheLayersOfStages) {
  const auto with = [](const std::string& layers, const std::vector<std::string>& sets = {}) {
    return ParseJobFile(Replaced("resources:", absl::StrCat("parallel: {pp: 2, stageLayers: ", layers, "}\nresources:")),
                        "job.yaml", "/data", sets);
  };
  const auto spec = with("[1, 3]");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->parallel.stage_layers, testing::ElementsAre(1, 3));
  EXPECT_THAT(JobFileText(*spec), HasSubstr("stageLayers: [1, 3]\n"));
  const auto again = ParseJobFile(JobFileText(*spec), "printed.yaml", "/elsewhere");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
  EXPECT_EQ(*with("1 3"), *spec) << "a text with blanks";
  EXPECT_THAT(with("[1, 3]", {"parallel.stageLayers=3 1"})->parallel.stage_layers, testing::ElementsAre(3, 1));
  EXPECT_THAT(with("[1, 3]", {"parallel.stageLayers="})->parallel.stage_layers, testing::IsEmpty());
  const auto error = [&](const std::string& layers) { return std::string(with(layers).status().message()); };
  EXPECT_THAT(error("[1, some]"), HasSubstr("parallel.stageLayers: expected a whole number up to 2147483647, found 'some'"));
  EXPECT_THAT(error("[1, [3]]"), HasSubstr("parallel.stageLayers: expected whole numbers"));
  EXPECT_THAT(error("[1, 2]"), HasSubstr("parallel.stageLayers is 1 2: the sum is 3, but model.layers is 4"));
}

TEST(JobFile, BadOverridesNameThemselves) {
  auto error = [](const std::string& set) {
    return std::string(ParseJobFile(kGood, "job.yaml", "/data", {set}).status().message());
  };
  EXPECT_EQ(error("train.step=3"), "--set train.step=3: unknown field; did you mean 'train.steps'?");
  EXPECT_EQ(error("train.steps"), "--set train.steps: expected FIELD=VALUE");
  EXPECT_EQ(error("train.steps=x"), "--set train.steps=x: expected a whole number up to 9223372036854775807, found 'x'");
}

TEST(JobFile, WhatIsNotUtf8NamesItsField) {
  const auto error = [](const std::string& folder, const std::string& set) {
    const auto spec = ParseJobFile(kGood, "job.yaml", folder, {set});
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << spec.status();
    return std::string(spec.status().message());
  };
  EXPECT_EQ(error("/data", "data.path=/caf\xe9/x"),
            "--set data.path: '/caf\\xe9/x' is not UTF-8 from byte 5 on; give it in that encoding");
  EXPECT_EQ(error("/data", "scheduling.queue=\xff"),
            "--set scheduling.queue: '\\xff' is not UTF-8 from byte 1 on; give it in that encoding");
  EXPECT_EQ(error("/data", "\xff=3"), "--set: '\\xff' is not UTF-8 from byte 1 on; name a field");
  EXPECT_EQ(error("/caf\xe9", "train.steps=3"),
            "data.path: '/caf\\xe9/corpus.txt' is not UTF-8 from byte 5 on; give the job file's folder another name, or the "
            "whole path");
  EXPECT_TRUE(ParseJobFile(kGood, "job.yaml", "/caf\xe9", {"data.path=/data"}).ok()) << "nothing is taken from that folder";
}

TEST(JobFile, EmptyFileIsAnError) { EXPECT_THAT(ErrorOf(""), HasSubstr("the file is empty")); }

TEST(JobFile, ListIsAnError) { EXPECT_THAT(ErrorOf("- a\n"), HasSubstr("expected a map")); }

TEST(JobFile, FilesOfManyPiecesAreReadWhole) {
  const std::string path = testing::TempDir() + "/pieces.txt";
  std::string text;
  while (text.size() < 300'000) text += std::to_string(text.size()) + "\n";
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(ReadTextFile(path).value(), text);
  std::ofstream(path, std::ios::binary) << std::string((16 << 20) + 1, 'x');
  EXPECT_THAT(std::string(ReadTextFile(path).status().message()), HasSubstr("is larger than 16777216 bytes"));
  EXPECT_THAT(std::string(ReadTextFile(testing::TempDir()).status().message()), HasSubstr("is it a folder?"));
}

TEST(JobFile, MissingFileIsNotFound) {
  auto spec = ReadJobFile("/nonexistent/job.yaml");
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr("/nonexistent/job.yaml"));
}

TEST(JobFile, ReferenceNamesEveryFieldOnce) {
  const std::string reference = JobFileReference();
  for (const char* field : {"`train.optimizer.lr`", "`resources.ranks`", "`recompute`", "`maxRestarts`"}) {
    EXPECT_EQ(reference.find(field), reference.rfind(field)) << field;
    EXPECT_NE(reference.find(field), std::string::npos) << field;
  }
}

TEST(JobFile, DocumentedReferenceIsCurrent) {
  std::ifstream in(std::string(LYNX_SOURCE_DIR) + "/docs/job-file.md");
  const std::string page((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_THAT(page, HasSubstr(JobFileReference())) << "paste the output of: lynxctl defaults --reference";
}

TEST(JobFile, ParallelAutoStandsForTheWholeSection) {
  auto spec = ParseJobFile(Replaced("name: tiny", "name: tiny\nparallel: auto"), "job.yaml", "/data");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->parallel, ParallelSpec());
  EXPECT_THAT(ErrorOf(Replaced("name: tiny", "name: tiny\nparallel: tp2")),
              HasSubstr("job.yaml:4:11: parallel: expected auto, or fields such as tp and pp, found 'tp2'"));
}

constexpr char kPresetJob[] = R"(apiVersion: lynx/v1
kind: TrainingJob
name: preset
model:
  seq: 8192
  preset: llama-70b
data: {kind: megatron, path: corpus}
train: {steps: 10, globalBatch: 8}
resources: {ranks: 8}
)";

TEST(JobFile, PresetsAreWhereAModelBeginsFrom) {
  auto spec = ParseJobFile(kPresetJob, "job.yaml", "/data");
  ASSERT_TRUE(spec.ok()) << spec.status();
  ModelSpec wanted = FindModelPreset("llama-70b")->model;
  wanted.seq = 8192;
  EXPECT_EQ(spec->model, wanted) << "the file's own fields win, wherever they stand";
  spec = ParseJobFile(kPresetJob, "job.yaml", "/data", {"model.layers=2", "model.preset=gpt-22b"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.hidden, 6144);
  EXPECT_EQ(spec->model.layers, 2);
  EXPECT_EQ(spec->model.seq, 8192);
  auto printed = ParseJobFile(JobFileText(*spec), "printed.yaml", "/");
  ASSERT_TRUE(printed.ok()) << printed.status();
  EXPECT_EQ(*printed, *spec);
}

TEST(JobFile, UnknownPresetsNameTheNearest) {
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(kPresetJob, {{"llama-70b", "lama-70b"}})),
              HasSubstr("job.yaml:6:11: model.preset: unknown model 'lama-70b'; did you mean 'llama-70b'?"));
  const auto error = [](const std::string& set) {
    return std::string(ParseJobFile(kGood, "job.yaml", "/data", {set}).status().message());
  };
  EXPECT_EQ(error("model.preset=gpt-22"), "--set model.preset=gpt-22: unknown model 'gpt-22'; did you mean 'gpt-22b'?");
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(kPresetJob, {{"preset: llama-70b", "preset: gpt-22b\n  config: a.json"}})),
              HasSubstr("job.yaml:7:11: model.config: given beside model.preset; keep one of them"));
}

TEST(JobFile, ModelsComeFromConfigFiles) {
  std::string asked;
  const TextReader read = [&](const std::string& path) -> absl::StatusOr<std::string> {
    asked = path;
    return R"({"model_type": "gpt2", "n_layer": 3, "n_embd": 64, "n_head": 4, "n_positions": 128, "vocab_size": 500})";
  };
  const std::string text = absl::StrReplaceAll(kPresetJob, {{"preset: llama-70b", "config: models/config.json"}});
  auto spec = ParseJobFile(text, "job.yaml", "/data", {}, read);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(asked, "/data/models/config.json");
  EXPECT_EQ(spec->model.layers, 3);
  EXPECT_EQ(spec->model.ffn, 256);
  EXPECT_EQ(spec->model.seq, 8192);
  EXPECT_TRUE(spec->model.tied_embeddings);
  const TextReader bad = [](const std::string&) -> absl::StatusOr<std::string> { return "{\"model_type\": \"t5\"}"; };
  EXPECT_THAT(std::string(ParseJobFile(text, "job.yaml", "/data", {}, bad).status().message()),
              HasSubstr("job.yaml:6:11: model.config: models/config.json: model_type is \"t5\": an encoder"));
  EXPECT_THAT(std::string(ParseJobFile(text, "job.yaml", "/nonexistent").status().message()),
              HasSubstr("model.config: cannot read '/nonexistent/models/config.json'"));
}

TEST(JobFile, OverridesMayGiveWhatTheFileLeavesOut) {
  auto spec = ParseJobFile(Replaced("  layers: 4\n", ""), "job.yaml", "/data", {"model.layers=7"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.layers, 7);
}

}  // namespace
}  // namespace lynx::cli
