#include "studio/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "planner/search/make_plan.h"
#include "studio/strict_json.h"

namespace lynx {
namespace {

using Json = nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kState[] = R"({"model": {"preset": "llama-7b"}, "machine": {"name": "h100"}})";

absl::StatusOr<StudioState> Read(const std::string& text) {
  const absl::StatusOr<Json> json = ParseStrictJson(text);
  if (!json.ok()) return json.status();
  return ParseState(*json);
}

StudioState StateOf(const Json& changes = Json::object()) {
  Json json = Json::parse(kState);
  json.update(changes);
  const absl::StatusOr<StudioState> state = ParseState(json);
  EXPECT_TRUE(state.ok()) << state.status();
  return state.value_or(StudioState());
}

absl::StatusOr<StudioRequest> RequestFrom(const StudioState& state) { return RequestOf(state, ReadyMachines()); }

TEST(StudioState, IsReadAndWritten) {
  const StudioState state = StateOf({{"job", {{"model.seq", 8192}, {"parallel.tp", 2}, {"train.optimizer.lr", 1e-4}}},
                                     {"nodes", 8},
                                     {"memoryBytes", 40'000'000'000},
                                     {"linkScale", 0.5}});
  EXPECT_EQ(state.preset, "llama-7b");
  EXPECT_EQ(state.machine_name, "h100");
  EXPECT_EQ(state.nodes, 8);
  EXPECT_EQ(state.memory, Bytes(40'000'000'000));
  EXPECT_EQ(state.link_scale, 0.5);
  const Json written = StateJson(state);
  EXPECT_EQ(written["job"]["model.seq"], 8192);
  EXPECT_EQ(written["job"]["train.optimizer.lr"], 1e-4);
  const absl::StatusOr<StudioState> again = ParseState(written);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(StateJson(*again), written);
}

// A browser's numbers are doubles, so longer whole numbers are texts.
TEST(StudioState, WholeNumbersAreExactInABrowser) {
  EXPECT_EQ(ValueJson({"train.seed", "9007199254740991"}), Json(9007199254740991));
  EXPECT_EQ(ValueJson({"train.seed", "9007199254740993"}), Json("9007199254740993"));
}

// A wrong state, and what the error says.
TEST(StudioState, RefusesWhatItDoesNotKnow) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "state: expected an object"},
      {"3", "state: expected an object"},
      {"{}", "machine: say which"},
      {R"({"machine": {"name": "h100"}, "node": 3})", "state: unknown key 'node'; did you mean 'nodes'?"},
      {R"({"machine": {"name": "h100"}, "model": "llama-7b"})", "model: expected an object"},
      {R"({"machine": {"name": "h100"}, "model": {"presets": "x"}})", "model: unknown key 'presets'"},
      {R"({"machine": {"name": "h100"}, "model": {"preset": 7}})", "model: expected a text for 'preset'"},
      {R"({"machine": {"name": "h100"}, "model": {"preset": ""}})", "model: the preset has no name"},
      {R"({"machine": {"name": "h100"}, "model": {"preset": "a", "config": "{}"}})", "keep one of them"},
      {R"({"machine": {"name": "h100"}, "model": {"config": "  "}})", "model.config: the file is empty"},
      {R"({"machine": {"name": "h100"}, "model": {"name": "x.json"}})", "there is no config"},
      {R"({"machine": {"name": "h100"}, "model": {"config": "{}", "name": "../x"}})", "without folders"},
      {R"({"machine": {"name": "h100"}, "model": {"config": "{}", "name": "a\nb"}})", "without folders"},
      {R"({"machine": {}})", "machine: expected either"},
      {R"({"machine": {"name": "h100", "text": "x"}})", "machine: expected either"},
      {R"({"machine": {"name": ["h100"]}})", "machine: expected a text"},
      {R"({"machine": {"name": "h100"}, "job": []})", "job: expected an object"},
      {R"({"machine": {"name": "h100"}, "job": {"model.sequence": 1}})", "job: unknown field 'model.sequence'"},
      {R"({"machine": {"name": "h100"}, "job": {"seq": 1}})", "did you mean 'model.seq'"},
      {R"({"machine": {"name": "h100"}, "job": {"parallel": "auto"}})", "job: unknown field 'parallel'"},
      {R"({"machine": {"name": "h100"}, "job": {"model.preset": "gpt-22b"}})", "model.preset: belongs in 'model'"},
      {R"({"machine": {"name": "h100"}, "job": {"model.config": "/etc/passwd"}})", "model.config: belongs in 'model'"},
      {R"({"machine": {"name": "h100"}, "job": {"model.seq": null}})", "model.seq: expected a text or a number"},
      {R"({"machine": {"name": "h100"}, "job": {"model.seq": {"value": 3}}})", "model.seq: expected a text or a number"},
      {R"({"machine": {"name": "h100"}, "job": {"model.seq": [3]}})", "model.seq: expected a text or a number"},
      {R"({"machine": {"name": "h100"}, "job": {"parallel.stageLayers": [1, "2"]}})", "parallel.stageLayers: expected"},
      {R"({"machine": {"name": "h100"}, "nodes": -1})", "nodes: expected a whole number from 0 to 1048576, found -1"},
      {R"({"machine": {"name": "h100"}, "nodes": 1.5})", "nodes: expected a whole number"},
      {R"({"machine": {"name": "h100"}, "nodes": "8"})", "nodes: expected a whole number"},
      {R"({"machine": {"name": "h100"}, "nodes": 1048577})", "nodes: expected a whole number"},
      {R"({"machine": {"name": "h100"}, "memoryBytes": 18446744073709551615})", "memoryBytes: expected a whole number"},
      {R"({"machine": {"name": "h100"}, "linkScale": 0})", "linkScale: expected a number from 0.001 to 1000, found 0"},
      {R"({"machine": {"name": "h100"}, "linkScale": -2})", "linkScale: expected a number"},
      {R"({"machine": {"name": "h100"}, "linkScale": "1"})", "linkScale: expected a number"},
  };
  for (const auto& [text, wanted] : cases) {
    const absl::StatusOr<StudioState> state = Read(text);
    ASSERT_FALSE(state.ok()) << text;
    EXPECT_THAT(std::string(state.status().message()), HasSubstr(wanted)) << text;
    EXPECT_NE(ErrorOf(state.status(), {}).field, "") << text;
  }
}

// A state that is cut off, or has a changed byte, must be read or refused with a text. Nothing else may happen.
TEST(StudioState, AnyTextIsReadOrRefused) {
  const std::string whole =
      R"({"model":{"config":"{\"model_type\": \"llama\"}","name":"c.json"},"machine":{"text":"kind: Cluster"},)"
      R"("job":{"model.seq":4096,)"
      R"("parallel.stageLayers":[1,2],"recompute":"auto"},"nodes":8,"memoryBytes":1,"linkScale":2.5})";
  ASSERT_TRUE(Read(whole).ok());
  int read = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_FALSE(Read(whole.substr(0, i)).ok());
    for (const char byte : {'\0', '"', '{', '}', '9', '-', '\\', '\xc3', ','}) {
      std::string changed = whole;
      changed[i] = byte;
      const absl::StatusOr<StudioState> state = Read(changed);
      read += state.ok();
      if (state.ok()) {
        RequestFrom(*state).IgnoreError();
      } else {
        EXPECT_NE(state.status().message(), "");
      }
    }
  }
  EXPECT_GT(read, 0);
}

TEST(StudioState, BecomesTheRequestOfAJobFileAndACluster) {
  const absl::StatusOr<StudioRequest> made = RequestFrom(StateOf({{"nodes", 2}, {"job", {{"model.seq", 1024}}}}));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->request.cluster.devices(), 16);
  EXPECT_EQ(made->request.spec.resources.max_ranks, 16);
  EXPECT_EQ(made->request.spec.model.seq, 1024);
  EXPECT_EQ(made->job_text,
            "apiVersion: lynx/v1\nkind: TrainingJob\nname: studio\nmodel:\n  preset: llama-7b\n  seq: 1024\ndata:\n  path: "
            "corpus\ntrain:\n  steps: 1000\n  globalBatch: 256\nresources:\n  ranks: 16\n");
}

TEST(StudioState, ChangesTheMachine) {
  const absl::StatusOr<StudioRequest> as_it_is = RequestFrom(StateOf());
  ASSERT_TRUE(as_it_is.ok()) << as_it_is.status();
  const NodeGroup before = as_it_is->request.cluster.groups[0];
  const absl::StatusOr<StudioRequest> made = RequestFrom(StateOf({{"nodes", 3}, {"memoryBytes", 12345}, {"linkScale", 2}}));
  ASSERT_TRUE(made.ok()) << made.status();
  const NodeGroup& after = made->request.cluster.groups[0];
  EXPECT_EQ(after.nodes, 3);
  EXPECT_EQ(after.memory_per_device, Bytes(12345));
  EXPECT_EQ(after.profile.inter_node.bytes_per_second, 2 * before.profile.inter_node.bytes_per_second);
  EXPECT_EQ(after.profile.intra_node, before.profile.intra_node);
}

TEST(StudioState, EveryReadyMachineIsOneOfTheExamplesAndHasATitle) {
  const std::vector<StudioMachine> machines = ReadyMachines();
  EXPECT_GT(machines.size(), 10u);
  for (const StudioMachine& machine : machines) {
    EXPECT_NE(machine.title, "") << machine.name;
    const absl::StatusOr<StudioRequest> made = RequestFrom(StateOf({{"machine", {{"name", machine.name}}}}));
    EXPECT_TRUE(made.ok()) << machine.name << ": " << made.status();
  }
}

// A value with every character that YAML gives a meaning stays one value.
TEST(StudioState, ValuesCannotBringInOtherFields) {
  const absl::StatusOr<StudioRequest> made =
      RequestFrom(StateOf({{"job", {{"data.path", "a\nrecompute: none\n# \"b\": {c}"}, {"checkpoint.directory", "null"}}}}));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->request.spec.recompute, RecomputeMode::kAuto);
  EXPECT_THAT(made->request.spec.data.path, HasSubstr("recompute: none"));
  EXPECT_EQ(made->request.spec.checkpoint.directory, "/null");
}

TEST(StudioState, NeedsNoModelNameIfTheJobDescribesTheModel) {
  const Json job = {{"model.layers", 4}, {"model.hidden", 64}, {"model.heads", 4}, {"model.seq", 32}};
  const absl::StatusOr<StudioState> state = ParseState({{"machine", {{"name", "a10g"}}}, {"job", job}});
  ASSERT_TRUE(state.ok()) << state.status();
  const absl::StatusOr<StudioRequest> made = RequestFrom(*state);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->request.spec.model.layers, 4);
  EXPECT_EQ(Normalized(*state, ReadyMachines()).job.size(), 4u);
}

TEST(StudioState, NormalizedHasOnlyWhatDiffers) {
  const Json job = {{"model.seq", 4096},     {"model.hidden", 4096}, {"train.globalBatch", 256},
                    {"parallel.tp", "auto"}, {"recompute", "full"},  {"train.steps", "1000"},
                    {"resources.ranks", 32}, {"model.vocab", 64000}, {"train.optimizer.lr", 0.0003}};
  const StudioState normal = Normalized(StateOf({{"job", job}}), ReadyMachines());
  EXPECT_EQ(StateJson(normal)["job"], Json({{"recompute", "full"}, {"model.vocab", 64000}}));
}

struct Place {
  const char* changes;  // to the state, as JSON
  const char *text, *field, *file;
  int32_t line, column;
};

TEST(StudioState, ErrorsSayWhichFieldOrFile) {
  const Place places[] = {
      {R"({"job": {"model.seq": "long"}})", "model.seq: expected a whole number", "model.seq", "", 0, 0},
      {R"({"job": {"parallel.tp": 3}})", "must be a multiple of parallel.tp", "model.heads", "", 0, 0},
      {R"({"job": {"recompute": "most"}})", "recompute: expected", "recompute", "", 0, 0},
      {R"({"model": {"preset": "llama-8b"}})", "model.preset: unknown model 'llama-8b'; did you mean", "model.preset", "", 0,
       0},
      {R"({"model": {"config": "{]", "name": "c.json"}})", "not valid JSON", "model.config", "c.json", 0, 0},
      {R"({"model": {"config": "{\"model_type\": \"flubber\"}", "name": "c.json"}})", "missing", "model.config", "c.json", 0,
       0},
      {R"({"machine": {"name": "h1000"}})", "machine: unknown machine 'h1000'; did you mean 'h100'", "machine", "", 0, 0},
      {R"({"machine": {"text": "kind: Cluster\nname: [a\n"}})", "not valid YAML", "machine", "", 2, 7},
      {R"({"machine": {"text": "apiVersion: lynx/v1\nkind: Cluster\nname: a\ndevice: []\n"}})", "unknown field", "machine", "",
       4, 1},
      {R"({"nodes": 1048576})", "machine: ", "machine", "", 0, 0},
  };
  for (const Place& place : places) {
    Json json = Json::parse(kState);
    json.update(Json::parse(place.changes));
    const absl::StatusOr<StudioState> state = ParseState(json);
    ASSERT_TRUE(state.ok()) << state.status();
    const absl::StatusOr<StudioRequest> made = RequestFrom(*state);
    ASSERT_FALSE(made.ok()) << place.changes;
    const StudioError error = ErrorOf(made.status(), *state);
    EXPECT_THAT(error.text, HasSubstr(place.text)) << place.changes;
    EXPECT_THAT(error.text, ::testing::Not(HasSubstr("job file"))) << place.changes;
    EXPECT_EQ(error.field, place.field) << place.changes << ": " << error.text;
    EXPECT_EQ(error.file, place.file) << place.changes << ": " << error.text;
    EXPECT_EQ(error.line, place.line) << place.changes << ": " << error.text;
    EXPECT_EQ(error.column, place.column) << place.changes << ": " << error.text;
  }
}

TEST(StudioState, NodesOfSeveralGroupsAreNotOneNumber) {
  std::string text = ReadyMachines().front().text;
  const size_t group = text.find("  - name:", text.find("nodeGroups:"));
  std::string second = text.substr(group);
  second.replace(second.find("name: ") + 6, 0, "other-");
  const absl::StatusOr<StudioRequest> made = RequestFrom(StateOf({{"machine", {{"text", text + second}}}, {"nodes", 4}}));
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(std::string(made.status().message()), StartsWith("nodes: this machine has 2 groups of nodes"));
  EXPECT_EQ(ErrorOf(made.status(), {}).field, "nodes");
}

// The values of a plan's layout lead to the same plan, and to one with more replicas on more nodes.
TEST(StudioState, KeepsTheLayoutOfAPlan) {
  StudioState state = StateOf({{"nodes", 2}, {"job", {{"train.globalBatch", 64}}}});
  const absl::StatusOr<StudioRequest> first = RequestFrom(state);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::StatusOr<PlanResult> free = MakePlanWithoutAdvice(first->request);
  ASSERT_TRUE(free.ok()) << free.status();
  const Plan& plan = std::get<Plan>(*free);
  const std::vector<JobValue> kept = LayoutValues(plan, first->request.spec);
  const absl::StatusOr<StudioRequest> pinned = RequestOf(state, ReadyMachines(), kept);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  const absl::StatusOr<PlanResult> same = MakePlanWithoutAdvice(pinned->request);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(std::get<Plan>(*same).digest, plan.digest);

  state.nodes = 4;
  const absl::StatusOr<StudioRequest> larger = RequestOf(state, ReadyMachines(), kept);
  ASSERT_TRUE(larger.ok()) << larger.status();
  const absl::StatusOr<PlanResult> more = MakePlanWithoutAdvice(larger->request);
  ASSERT_TRUE(more.ok()) << more.status();
  ParallelLayout wanted = plan.layout;
  wanted.dp *= 2;
  EXPECT_EQ(std::get<Plan>(*more).layout, wanted);
}

// What the state says itself stays, whatever the layout before was.
TEST(StudioState, ChosenFieldsComeBeforeKeptOnes) {
  const absl::StatusOr<StudioRequest> made =
      RequestOf(StateOf({{"job", {{"parallel.tp", 4}}}}), ReadyMachines(), {{"parallel.tp", "2"}, {"parallel.pp", "2"}});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->request.spec.parallel.tp, 4);
  EXPECT_EQ(made->request.spec.parallel.pp, 2);
}

}  // namespace
}  // namespace lynx
