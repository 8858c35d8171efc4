#include "studio/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/spec/preset_list.h"
#include "common/clock.h"
#include "planner/search/make_plan.h"

namespace lynx {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Answered {
  Json kept, answer;
};

Answered Ask(const Json& question) {
  static const RealClock clock;
  const std::string text = AnswerQuestion(question.dump(), {.clock = &clock});
  const size_t end = text.find('\n');
  return {Json::parse(text.substr(0, end)), Json::parse(text.substr(end + 1))};
}

// A small model on one or more nodes with eight small devices.
Json SmallState(const Json& job = Json::object(), int nodes = 1) {
  Json state = {{"model", {{"preset", "gpt-1.3b"}}},
                {"machine", {{"name", "a100-40gb-nvlink"}}},
                {"nodes", nodes},
                {"job", {{"train.globalBatch", 64}, {"train.microBatch", 2}, {"parallel.pp", 2}}}};
  state["job"].update(job);
  return state;
}

Answered AskPlan(const Json& state) { return Ask({{"ask", "plan"}, {"request", {{"state", state}}}}); }

TEST(StudioAnswers, PlanHasFiguresPartsDataAndTheStateNormalized) {
  const Answered got = AskPlan(SmallState({{"train.steps", 1000}}));
  const Json& summary = got.answer["summary"];
  ASSERT_TRUE(summary.is_object()) << got.answer;
  EXPECT_GT(summary["stepNs"], 0);
  EXPECT_GT(summary["tokensPerSecond"], 0);
  EXPECT_THAT(summary["layout"].get<std::string>(), HasSubstr("pp2"));
  EXPECT_EQ(summary["microBatch"], 2);
  EXPECT_EQ(summary["ranks"], 8);
  EXPECT_LE(summary["peakBytes"], summary["limitBytes"]);
  EXPECT_FALSE(summary["layoutKept"].get<bool>());
  for (const char* part : {"title", "figures", "timeline_note", "memory", "plan_table"}) {
    EXPECT_TRUE(got.answer["parts"].contains(part)) << part;
  }
  EXPECT_TRUE(got.answer["data"].is_object());
  Json normal = SmallState();
  normal["linkScale"] = 1.0;
  normal["memoryBytes"] = 0;
  EXPECT_EQ(got.answer["state"], normal);
  EXPECT_EQ(got.kept["parallel.pp"], "2");
}

TEST(StudioAnswers, PlanIsThatOfTheSameJobAndCluster) {
  const absl::StatusOr<StudioState> state = ParseState(SmallState());
  ASSERT_TRUE(state.ok()) << state.status();
  const absl::StatusOr<StudioRequest> made = RequestOf(*state, ReadyMachines());
  ASSERT_TRUE(made.ok()) << made.status();
  const absl::StatusOr<PlanResult> plan = MakePlan(made->request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(AskPlan(SmallState()).answer["summary"]["stepNs"], std::get<Plan>(*plan).step.value);
}

TEST(StudioAnswers, SameLayoutIsKeptWhileItFits) {
  const Answered first = AskPlan(SmallState());
  Json question = {{"ask", "plan"}, {"request", {{"state", SmallState()}, {"layout", "same"}}}, {"kept", first.kept}};
  Answered same = Ask(question);
  EXPECT_TRUE(same.answer["summary"]["layoutKept"].get<bool>());
  EXPECT_EQ(same.answer["summary"]["stepNs"], first.answer["summary"]["stepNs"]);
  EXPECT_EQ(same.answer["state"], first.answer["state"]);  // what was kept is not what the person chose
  // A layout that cannot be: the whole search answers.
  question["kept"]["parallel.tp"] = "7";
  same = Ask(question);
  EXPECT_FALSE(same.answer["summary"]["layoutKept"].get<bool>());
  EXPECT_EQ(same.answer["summary"]["stepNs"], first.answer["summary"]["stepNs"]);
  // The first question of a page has no layout of an earlier answer, so all layouts are searched.
  question["kept"] = Json::object();
  EXPECT_FALSE(Ask(question).answer["summary"]["layoutKept"].get<bool>());
}

TEST(StudioAnswers, InfeasibleSaysWhyAtOnceAndWhatWouldFitLater) {
  Json state = SmallState({{"parallel.pp", 1}, {"parallel.tp", 1}});
  state["memoryBytes"] = int64_t{2} << 30;
  const Json plan = AskPlan(state).answer;
  ASSERT_TRUE(plan.contains("infeasible")) << plan;
  EXPECT_THAT(plan["infeasible"]["reason"].get<std::string>(), HasSubstr("more"));
  EXPECT_EQ(plan["infeasible"]["suggestion"], "");
  EXPECT_EQ(plan["infeasible"]["set"], Json::object());
  EXPECT_EQ(plan["state"]["memoryBytes"], int64_t{2} << 30);
  const Json more = Ask({{"ask", "more"}, {"request", {{"state", state}}}}).answer;
  const Json set = more["infeasible"]["set"];
  ASSERT_FALSE(set.empty()) << more;
  // The change that it names does make the job fit.
  if (set.contains("job")) state["job"].update(set["job"]);
  for (const char* key : {"nodes", "memoryBytes"}) {
    if (set.contains(key)) state[key] = set[key];
  }
  EXPECT_TRUE(AskPlan(state).answer.contains("summary")) << set;
}

TEST(StudioAnswers, ChangesThatFitBecomePartsOfTheState) {
  const ClusterTopology cluster = UniformCluster(2, 8);
  const StudioState open, pinned{.job = {{"resources.ranks", "8"}}};
  const std::tuple<const char*, const StudioState*, Json> cases[] = {
      {"train.microBatch: 2", &open, {{"job", {{"train.microBatch", 2}}}}},
      {"recompute: auto", &open, {{"job", {{"recompute", "auto"}}}}},
      {"recompute: auto, recomputeOptions.modules: \"\"",
       &open,
       {{"job", {{"recompute", "auto"}, {"recomputeOptions.modules", ""}}}}},
      {"resources.activationMemoryPerRank: 3GiB", &open, {{"job", {{"resources.activationMemoryPerRank", "3GiB"}}}}},
      {"parallel.dp: 2, parallel.pp: 4", &open, {{"job", {{"parallel.dp", 2}, {"parallel.pp", 4}}}}},
      {"resources.ranks: 24 (1 more node)", &open, {{"nodes", 3}}},
      {"resources.ranks: 24 (1 more node)", &pinned, {{"nodes", 3}, {"job", {{"resources.ranks", 24}}}}},
      {"resources.ranks: 28, parallel.pp: 7 (2 more nodes)",
       &open,
       {{"nodes", 4}, {"job", {{"resources.ranks", 28}, {"parallel.pp", 7}}}}},
      {"devices with at least 96GiB each", &open, {{"memoryBytes", int64_t{96} << 30}}},
      {"a smaller model", &open, Json::object()},
      {"", &open, Json::object()},
  };
  for (const auto& [text, state, wanted] : cases) EXPECT_EQ(ChangeOfState(text, cluster, *state), wanted) << text;
}

TEST(StudioAnswers, AChosenPolicyStandsOnceInMore) {
  Json state = SmallState({{"train.globalBatch", 16}, {"parallel.tp", 2}, {"parallel.weave", "off"}, {"recompute", "full"}});
  const Json more = Ask({{"ask", "more"}, {"request", {{"state", state}}}}).answer;
  ASSERT_TRUE(more.contains("policies")) << more;
  std::vector<bool> full;
  for (const Json& policy : more["policies"]) {
    if (policy["name"] == "full") full.push_back(policy["chosen"].get<bool>());
  }
  EXPECT_EQ(full, std::vector<bool>{true});
}

TEST(StudioAnswers, NamesTheModulesThatAreRecomputed) {
  const Json state = SmallState({{"train.globalBatch", 16},
                                 {"parallel.tp", 2},
                                 {"parallel.weave", "off"},
                                 {"recompute", "selective"},
                                 {"recomputeOptions.modules", "mlp"}});
  EXPECT_EQ(AskPlan(state).answer["summary"]["recompute"], "selective (mlp)");
  const Json more = Ask({{"ask", "more"}, {"request", {{"state", state}}}}).answer;
  ASSERT_TRUE(more.contains("policies")) << more;
  EXPECT_EQ(more["policies"].back()["name"], "selective (mlp)");
}

TEST(StudioAnswers, MoreHasPoliciesAFrontierAndAReason) {
  Json state = SmallState({{"train.globalBatch", 16}, {"parallel.tp", 2}, {"parallel.weave", "off"}});
  state["memoryBytes"] = int64_t{12} << 30;
  const Json more = Ask({{"ask", "more"}, {"request", {{"state", state}}}}).answer;
  ASSERT_TRUE(more.contains("policies")) << more;
  EXPECT_EQ(more["limitBytes"], int64_t{12} << 30);
  int chosen = 0, without_plan = 0;
  for (const Json& policy : more["policies"]) {
    chosen += policy["chosen"].get<bool>();
    without_plan += policy["stepNs"] == 0;
    if (policy["stepNs"] == 0) EXPECT_NE(policy["note"], "") << policy;
    if (policy["fits"].get<bool>()) EXPECT_LE(policy["peakBytes"], more["limitBytes"]) << policy;
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_GE(more["policies"].size(), 9u);
  // More memory along the frontier, and always a shorter step for it.
  ASSERT_FALSE(more["frontier"].empty());
  for (size_t i = 1; i < more["frontier"].size(); ++i) {
    EXPECT_GT(more["frontier"][i]["peakBytes"], more["frontier"][i - 1]["peakBytes"]);
    EXPECT_LT(more["frontier"][i]["stepNs"], more["frontier"][i - 1]["stepNs"]);
  }
  const std::string why = more["why"];
  EXPECT_THAT(why, HasSubstr("no plan on these devices takes less"));
  EXPECT_EQ(why.back(), '.');
}

TEST(StudioAnswers, WhyNamesTheLargestLossAndTheBestChanges) {
  Explanation explanation{.plan = {.stages = std::vector<StagePlan>(2), .step = Nanos(1'000'000'000)},
                          .bound = Nanos(900'000'000)};
  EXPECT_EQ(WhyNotFaster(explanation),
            "The step is nearly all computation; no plan on these devices takes less than 900.0 ms.");
  explanation.plan.stages[0].stall = Nanos(300'000'000);
  explanation.plan.stages[1].communication_exposed = Nanos(100'000'000);
  const auto add = [&](const char* change, int64_t step) {
    Plan plan;
    plan.step = Nanos(step);
    explanation.sensitivities.push_back({.change = change, .plan = plan, .reason = {}});
  };
  add("1 GiB more memory per device", 999'000'000);
  add("one more node", 800'000'000);
  add("links inside nodes twice as fast", 980'000'000);
  add("links between nodes twice as fast", 950'000'000);
  explanation.sensitivities.push_back({.change = "no plan", .plan = {}, .reason = "does not fit"});
  EXPECT_EQ(
      WhyNotFaster(explanation),
      "For 15.0% of the step, stages wait for each other; one more node would take 20.0% off it; links between nodes twice as "
      "fast would take 5.0% off it; no plan on these devices takes less than 900.0 ms.");
  explanation.bound = explanation.plan.step;
  EXPECT_THAT(WhyNotFaster(explanation), HasSubstr("; no plan on these devices takes less time."));
}

TEST(StudioAnswers, ExportsFilesAndWhatTheyLack) {
  Json state = SmallState(Json::object(), 2);
  state["linkScale"] = 0.5;
  const Json job = Ask({{"ask", "export"}, {"request", {{"state", state}, {"format", "job"}}}}).answer;
  ASSERT_EQ(job["files"].size(), 2u) << job;
  EXPECT_EQ(job["files"][0]["name"], "job.yaml");
  EXPECT_THAT(job["files"][0]["text"].get<std::string>(), HasSubstr("  preset: gpt-1.3b\n"));
  EXPECT_EQ(job["files"][1]["name"], "cluster.yaml");
  ASSERT_EQ(job["notExpressed"].size(), 2u) << job;
  EXPECT_THAT(job["notExpressed"][0].get<std::string>(), HasSubstr("lynxctl plan --nodes 2"));
  EXPECT_THAT(job["notExpressed"][1].get<std::string>(), HasSubstr("0.5 times"));
  for (const char* format : {"megatron", "deepspeed", "torchtitan"}) {
    const Json exported = Ask({{"ask", "export"}, {"request", {{"state", SmallState()}, {"format", format}}}}).answer;
    EXPECT_TRUE(exported.contains("files")) << format << ": " << exported;
    EXPECT_FALSE(exported["files"].empty()) << format;
  }
  const Json unknown = Ask({{"ask", "export"}, {"request", {{"state", SmallState()}, {"format", "csv"}}}}).answer;
  EXPECT_THAT(unknown["error"]["text"].get<std::string>(), StartsWith("format: expected job, megatron"));
}

TEST(StudioAnswers, AModelOfAConfigFile) {
  const std::string config = R"({"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4,
    "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 128, "hidden_act": "silu"})";
  Json state = SmallState();
  state["model"] = {{"config", config}, {"name", "mine.json"}};
  const Json plan = AskPlan(state).answer;
  ASSERT_TRUE(plan.contains("summary")) << plan;
  EXPECT_EQ(plan["state"]["model"]["name"], "mine.json");
  const Json job = Ask({{"ask", "export"}, {"request", {{"state", state}, {"format", "job"}}}}).answer;
  EXPECT_EQ(job["files"][2]["name"], "mine.json");
  EXPECT_EQ(job["files"][2]["text"], config);
  EXPECT_THAT(job["files"][0]["text"].get<std::string>(), HasSubstr("config: mine.json"));
}

TEST(StudioAnswers, ErrorsAreAnswers) {
  Json state = SmallState();
  state["machine"] = {{"text", "apiVersion: lynx/v1\nkind: Cluster\nname: a\nnodes: 3\n"}};
  const Json broken = AskPlan(state).answer["error"];
  EXPECT_EQ(broken["field"], "machine");
  EXPECT_EQ(broken["line"], 4);
  EXPECT_EQ(broken["column"], 1);
  state = SmallState();
  state["model"] = {{"config", R"({"model_type": "flubber"})"}};
  const Json family = AskPlan(state).answer["error"];
  EXPECT_EQ(family["field"], "model.config");
  EXPECT_EQ(family["file"], "config.json");
  EXPECT_THAT(AskPlan(SmallState({{"parallel.pp", 7}, {"parallel.tp", 8}})).answer["error"]["text"].get<std::string>(),
              HasSubstr("parallel"));
  EXPECT_EQ(Ask({{"ask", "plan"}, {"request", Json::object()}}).answer["error"]["field"], "state");
  EXPECT_THAT(Ask("text").answer["error"]["text"].get<std::string>(), HasSubstr("no JSON object"));
}

TEST(StudioChoices, OfferEverythingAndBeginWithAPreset) {
  const Json choices = Ask({{"ask", "choices"}}).answer;
  EXPECT_EQ(choices["models"], Json(cli::PresetsJson()));
  EXPECT_GT(choices["models"].size(), 20u);
  EXPECT_GT(choices["machines"].size(), 10u);
  for (const Json& machine : choices["machines"]) {
    EXPECT_GT(machine["memoryBytes"], 0) << machine["name"];
    EXPECT_NE(machine["device"], "");
  }
  EXPECT_EQ(choices["policies"][0], "auto");
  EXPECT_GT(choices["fields"].size(), 50u);
  // The first view shows what windows hide.
  const Json first = AskPlan(choices["state"]).answer;
  ASSERT_TRUE(first.contains("summary"));
  EXPECT_GT(first["summary"]["hiddenNs"].get<int64_t>(), 2 * first["summary"]["exposedNs"].get<int64_t>());
  EXPECT_GT(first["summary"]["hiddenNs"].get<int64_t>(), first["summary"]["stepNs"].get<int64_t>() / 50);
}

TEST(StudioChoices, BeginWithTheQuestionsFiles) {
  const Json h200 = Ask({{"ask", "choices"}}).answer["machines"];
  std::string text;
  for (const Json& machine : h200) text = machine["name"] == "h200" ? machine["text"].get<std::string>() : text;
  const std::string folder = ::testing::TempDir() + "/studio_choices";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/c.json") << R"({"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256,
    "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 128})";
  const std::string job =
      "apiVersion: lynx/v1\nkind: TrainingJob\nname: mine\nmodel: {config: c.json}\ndata: {path: x}\n"
      "train: {steps: 5, globalBatch: 16}\nresources: {ranks: 8}\nparallel: {pp: 2, stageLayers: [1, 3]}\n";
  const Json choices = Ask({{"ask", "choices"},
                            {"job", {{"text", job}, {"name", "mine.yaml"}, {"folder", folder}}},
                            {"cluster", {{"text", text}, {"name", "c.yaml"}}}})
                           .answer;
  ASSERT_TRUE(choices.contains("state")) << choices;
  const Json& state = choices["state"];
  EXPECT_EQ(state["model"]["name"], "c.json");
  EXPECT_THAT(state["model"]["config"].get<std::string>(), HasSubstr("hidden_size"));
  EXPECT_EQ(state["machine"], Json({{"name", "h200"}}));
  EXPECT_EQ(state["job"], Json({{"name", "mine"},
                                {"data.path", "x"},
                                {"train.steps", 5},
                                {"train.globalBatch", 16},
                                {"resources.ranks", 8},
                                {"parallel.pp", 2},
                                {"parallel.stageLayers", "1 3"}}));
  EXPECT_TRUE(AskPlan(state).answer.contains("summary")) << AskPlan(state).answer;
}

TEST(StudioChoices, BeginWithAMachineOfTheQuestion) {
  const std::string text = ReadyMachines().front().text;
  const Json choices =
      Ask({{"ask", "choices"}, {"machines", {{{"name", "live"}, {"title", "this cluster"}, {"text", text}}}}}).answer;
  EXPECT_EQ(choices["machines"][0]["title"], "this cluster");
  EXPECT_EQ(choices["state"]["machine"], Json({{"name", "live"}}));
  // The studio knows nothing of a machine from a file. So it begins with a small model and fixes no value.
  EXPECT_EQ(choices["state"]["model"], Json({{"preset", "llama-7b"}}));
  EXPECT_EQ(choices["state"]["job"], Json::object());
  const Json file = Ask({{"ask", "choices"}, {"cluster", {{"text", text}, {"name", "c.yaml"}}}}).answer["state"];
  EXPECT_EQ(file["model"], Json({{"preset", "llama-7b"}}));
}

TEST(StudioChoices, WrongFilesAreErrorsWithTheirPlace) {
  const auto error = [](const Json& files) {
    Json question = {{"ask", "choices"}};
    question.update(files);
    return Ask(question).answer["error"]["text"].get<std::string>();
  };
  EXPECT_THAT(error({{"job", {{"text", "kind: x\n"}, {"name", "j.yaml"}, {"folder", "/"}}}}), StartsWith("j.yaml"));
  EXPECT_THAT(
      error({{"cluster", {{"text", "apiVersion: lynx/v1\nkind: Cluster\nnome: a\n"}, {"name", "c.yaml"}, {"folder", "/"}}}}),
      StartsWith("c.yaml:3:1"));
}

}  // namespace
}  // namespace lynx
