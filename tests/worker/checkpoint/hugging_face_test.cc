// Tests the import of whole folders. tests/reference/test_hugging_face.py tests exports with an independent reader.
#include "worker/checkpoint/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "absl/strings/str_join.h"
#include "tests/worker/checkpoint/checkpoint_world.h"
#include "tests/worker/checkpoint/faulty_file_system.h"
#include "tests/worker/checkpoint/hugging_face_folder.h"
#include "tests/worker/test_folder.h"
#include "worker/checkpoint/hugging_face_files.h"
#include "worker/checkpoint/hugging_face_names.h"
#include "worker/checkpoint/offline.h"
#include "worker/checkpoint/safetensors_file.h"
#include "worker/checkpoint/tensor_reader.h"

namespace lynx::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kIn[] = "/weights", kOut[] = "/run";
constexpr char kEmbedding[] = "transformer.wte.weight", kHead[] = "lm_head.weight";

std::string BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string In(const std::string& name) { return std::string(kIn) + "/" + name; }

ForeignTensors ReadFile(FileSystem& disk, const std::string& path) {
  ForeignTensors tensors;
  const auto file = OpenSafetensorsFile(disk, path);
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return tensors;
  for (const SafetensorsEntry& entry : file->header.tensors) {
    tensors[entry.name] = Floats(ReadAsFloat(disk, *file, entry).value(), entry.shape);
  }
  return tensors;
}

// Imports a trained model that was exported to a simulated disk.
class HuggingFaceImport : public testing::Test {
 protected:
  void Export(bool tied) {
    model_ = WorldModel();
    model_.tied_embeddings = tied;
    ExportFrom({});
  }
  // Exports a model whose ranks share the experts: a Mixtral or, with norms of queries and keys, a Qwen3.
  void ExportExperts(bool qk_norm) {
    model_ = WorldModel();
    model_.family = ModelFamily::kLlama;
    model_.dropout = 0;
    model_.qk_norm = qk_norm;
    model_.moe = {.experts = 4, .top_k = 2, .ffn = 6, .capacity = 1};
    ExportFrom({.dp = 2, .ep = 2});
  }
  void ExportFrom(const ParallelLayout& layout) {
    CheckpointWorld world(layout, model_);
    ASSERT_TRUE(world.WriteAndPublish("/trained", world.Identity(3), 1, disk_).ok());
    const auto found = FindCheckpoints("/trained", disk_);
    ASSERT_TRUE(found.ok()) << found.status();
    const auto bytes = ExportToHuggingFace(found->checkpoints.at(0), kIn, disk_);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    tensors_ = ReadFile(disk_, In(kHuggingFaceWeightsFile));
  }

  void Write(const std::string& name, const std::string& content) {
    ASSERT_TRUE(WriteWholeFile(disk_, In(name), content).ok());
  }
  void WriteModel() { Write(kHuggingFaceWeightsFile, ForeignFile(tensors_)); }

  absl::StatusOr<ImportedWeights> Import(NonFiniteWeights non_finite = NonFiniteWeights::kRefuse) {
    return ImportFromHuggingFace(kIn, model_, *ExportFamilyOf(model_).value(), kOut, non_finite, disk_);
  }
  // Expects that the import is refused with a message that contains `parts`, and that it leaves no files.
  void ExpectRefused(const std::vector<std::string>& parts) {
    const absl::Status status = Import().status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    const auto left = disk_.List(kOut);
    EXPECT_TRUE(absl::IsNotFound(left.status()) || left->empty()) << absl::StrJoin(*left, " ");
  }
  // Returns the weights of the imported checkpoint, in the form of an export.
  ForeignTensors Imported() {
    const auto found = FindCheckpoints(kOut, disk_);
    EXPECT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(ExportToHuggingFace(found->checkpoints.at(0), "/again", disk_).ok());
    return ReadFile(disk_, std::string("/again/") + kHuggingFaceWeightsFile);
  }
  void ExpectImported(const std::vector<std::string>& notes) {
    const auto imported = Import();
    ASSERT_TRUE(imported.ok()) << imported.status();
    ASSERT_EQ(imported->notes.size(), notes.size()) << absl::StrJoin(imported->notes, "\n");
    for (size_t i = 0; i < notes.size(); ++i) EXPECT_THAT(imported->notes[i], HasSubstr(notes[i]));
    const ForeignTensors again = Imported();
    ASSERT_EQ(again.size(), tensors_.size());
    for (const auto& [name, tensor] : tensors_) EXPECT_EQ(again.at(name).bytes, tensor.bytes) << name;
  }
  void Set(const std::string& tensor, size_t element, float value) {
    std::memcpy(tensors_.at(tensor).bytes.data() + element * sizeof(float), &value, sizeof(float));
  }

  FaultyFileSystem disk_;
  ModelSpec model_;
  ForeignTensors tensors_;
};

// The name of the stale file comes last, but its tensors must not replace those of the indexed shards.
TEST_F(HuggingFaceImport, StaleFilesBesideIndexedShardsAreNotTaken) {
  Export(/*tied=*/false);
  std::map<std::string, std::string> map;
  ForeignTensors shards[2], stale;
  for (const auto& [name, tensor] : tensors_) {
    const size_t shard = map.size() % 2;
    map[name] = absl::StrCat("model-0000", shard + 1, "-of-00002.safetensors");
    shards[shard][name] = tensor;
    stale[name] = tensor;
    std::memset(stale[name].bytes.data(), 0x11, stale[name].bytes.size());
  }
  ASSERT_TRUE(disk_.RemoveTree(In(kHuggingFaceWeightsFile)).ok());
  for (const int shard : {0, 1}) {
    Write(absl::StrCat("model-0000", shard + 1, "-of-00002.safetensors"), ForeignFile(shards[shard]));
  }
  Write("model-old.safetensors", ForeignFile(stale));
  ExpectRefused({"model-00001-of-00002.safetensors is not the same as", "in model-old.safetensors: either may be meant"});
  Write(kHuggingFaceIndexFile, WeightIndex(map));
  ExpectImported(
      {"not taken: model-old.safetensors; the weights are those of model-00001-of-00002.safetensors, "
       "model-00002-of-00002.safetensors"});
}

TEST_F(HuggingFaceImport, ATiedHeadMustBeTheEmbedding) {
  Export(/*tied=*/true);
  ASSERT_FALSE(tensors_.contains(kHead));
  const ForeignTensors exported = tensors_;
  tensors_[kHead] = tensors_.at(kEmbedding);
  Set(kHead, tensors_[kHead].bytes.size() / sizeof(float) - 1, 77);
  WriteModel();
  ExpectRefused(
      {"/weights/model.safetensors: lm_head.weight is not the same as transformer.wte.weight", "tie_word_embeddings"});
  tensors_[kHead] = {{13, 8}, "I8", std::string(13 * 8, 'x')};
  WriteModel();
  ExpectRefused({"lm_head.weight is of type I8, not F32, F16 or BF16"});
  tensors_[kHead] = Floats({1, 2});
  WriteModel();
  ExpectRefused({"lm_head.weight is not the same as transformer.wte.weight"});
  tensors_[kHead] = exported.at(kEmbedding);
  WriteModel();
  tensors_ = exported;
  ExpectImported({});
}

TEST_F(HuggingFaceImport, AHeadOfItsOwnIsTaken) {
  Export(/*tied=*/false);
  Set(kHead, 3, 77);
  WriteModel();
  ExpectImported({});
}

TEST_F(HuggingFaceImport, AMissingHeadIsNamed) {
  Export(/*tied=*/false);
  // Only tensors of the base model may have names without the first part. The head is not in the base model.
  tensors_["weight"] = tensors_.at(kHead);
  tensors_.erase(kHead);
  WriteModel();
  ExpectRefused({"/weights has no tensor lm_head.weight (in model.safetensors)"});
}

TEST_F(HuggingFaceImport, OtherTypesAreRefusedByName) {
  Export(/*tied=*/true);
  const ForeignTensors right = tensors_;
  for (const std::string type : {"F8_E4M3", "F8_E5M2", "I8", "U8"}) {
    tensors_ = right;
    ForeignTensor& tensor = tensors_.at("transformer.h.1.ln_2.weight");
    tensor = {tensor.shape, type, std::string(tensor.bytes.size() / sizeof(float), '\1')};
    WriteModel();
    ExpectRefused({"/weights/model.safetensors: transformer.h.1.ln_2.weight is of type " + type + ", not F32, F16 or BF16"});
  }
}

TEST_F(HuggingFaceImport, OtherShapesAndTensorsAreRefusedByName) {
  Export(/*tied=*/true);
  const ForeignTensors right = tensors_;
  tensors_.at("transformer.ln_f.bias") = Floats({1, 2, 3});
  WriteModel();
  ExpectRefused({"/weights/model.safetensors: transformer.ln_f.bias has shape (3), not the (8) of config.json"});
  tensors_ = right;
  tensors_["transformer.h.0.attn.c_attn.g_idx"] = Floats({1});
  WriteModel();
  ExpectRefused({"/weights/model.safetensors: tensor transformer.h.0.attn.c_attn.g_idx is not a part of such a model in Lynx"});
}

TEST_F(HuggingFaceImport, LayersThatPredictFurtherTokensAreLeftOutWhereTheModelHasThem) {
  ExportExperts(/*qk_norm=*/true);
  const ForeignTensors layers = tensors_;
  const ForeignTensor& norm = tensors_.at("model.norm.weight");
  for (const char* name : {"eh_proj.weight", "shared_head.norm.weight"}) {
    tensors_[absl::StrCat("model.layers.", model_.layers, ".", name)] = norm;
  }
  WriteModel();
  ExpectRefused({absl::StrCat("model.layers.", model_.layers, ".eh_proj.weight is not a part of such a model")});
  model_.plan_only = Bit(PlanOnlyFeature::kMultiTokenPrediction);
  tensors_["model.layers.x.weight"] = norm;
  WriteModel();
  ExpectRefused({"model.layers.x.weight is not a part of such a model"});
  tensors_.erase("model.layers.x.weight");
  WriteModel();
  tensors_ = layers;
  ExpectImported({"2 tensors of layers after the last one (num_nextn_predict_layers) are left out"});
  EXPECT_EQ(FindCheckpoints(kOut, disk_)->checkpoints.at(0).identity.model.plan_only, PlanOnlyFeatures{0});
}

TEST_F(HuggingFaceImport, NonFiniteWeightsAreRefusedUnlessWanted) {
  Export(/*tied=*/true);
  // The shape is (8, 24) in the file and (24, 8) in Lynx. The message must name the place in the file.
  const std::string name = "transformer.h.0.attn.c_attn.weight";
  ASSERT_THAT(tensors_.at(name).shape, ElementsAre(8, 24));
  Set(name, 24 * 2 + 5, NAN);
  Set(name, 24 * 2 + 6, std::numeric_limits<float>::infinity());
  Set(name, 24 * 7, -std::numeric_limits<float>::infinity());
  WriteModel();
  const std::string says =
      "/weights/model.safetensors: transformer.h.0.attn.c_attn.weight has 3 values that are NaN or infinity, the "
      "first at [2, 5]";
  ExpectRefused({says + "; --allow-non-finite takes such weights"});
  Set("transformer.ln_f.bias", 7, NAN);
  WriteModel();
  const auto imported = Import(NonFiniteWeights::kTake);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->notes,
              ElementsAre(says + "; taken as they are",
                          "/weights/model.safetensors: transformer.ln_f.bias has 1 value that is NaN or infinity, the "
                          "first at [7]; taken as they are"));
  EXPECT_EQ(Imported().at(name).bytes, tensors_.at(name).bytes);
}

// Positions beyond the length of a sample are not imported.
TEST_F(HuggingFaceImport, NonFiniteValuesThatAreNotTakenDoNotCount) {
  Export(/*tied=*/true);
  const std::string name = "transformer.wpe.weight";
  ASSERT_THAT(tensors_.at(name).shape, ElementsAre(4, 8));
  Set(name, 3 * 8, NAN);
  WriteModel();
  ExpectRefused({"transformer.wpe.weight has 1 value that is NaN or infinity, the first at [3, 0]"});
  model_.seq = 3;
  tensors_.at(name) = {{3, 8}, "F32", tensors_.at(name).bytes.substr(0, 3 * 8 * sizeof(float))};
  ExpectImported({});
}

// Returns the values of the tensors, one tensor after another.
std::string Joined(const ForeignTensors& tensors, const std::vector<std::string>& names) {
  std::string bytes;
  for (const std::string& name : names) bytes += tensors.at(name).bytes;
  return bytes;
}

TEST_F(HuggingFaceImport, ExpertsAreTensorsOfTheirOwn) {
  for (const bool qk_norm : {false, true}) {
    for (const char* folder : {"/trained", kIn, kOut, "/again"}) ASSERT_TRUE(disk_.RemoveTree(folder).ok());
    ExportExperts(qk_norm);
    const std::string layer = qk_norm ? "model.layers.1.mlp." : "model.layers.1.block_sparse_moe.";
    EXPECT_THAT(tensors_.at(layer + "gate.weight").shape, ElementsAre(4, 8));
    const auto found = FindCheckpoints("/trained", disk_);
    ASSERT_TRUE(found.ok()) << found.status();
    TensorReader reader(disk_, found->checkpoints.at(0));
    std::vector<float> gates_and_ups(4 * 12 * 8), outputs(4 * 8 * 6);
    ASSERT_EQ(reader.Read({{"layers.1.experts.fc1.weight", {4 * 12, 8, {{0, 4 * 12, 0, 8, 0}}}, gates_and_ups.data()},
                           {"layers.1.experts.fc2.weight", {4 * 8, 6, {{0, 4 * 8, 0, 6, 0}}}, outputs.data()}},
                          {}, {.index = 0, .of = 0}),
              absl::OkStatus());
    std::vector<std::string> first, second;  // names in the order of Lynx's rows
    for (const int expert : {0, 1, 2, 3}) {
      const std::string name = absl::StrCat(layer, "experts.", expert, ".");
      for (const char* part : {qk_norm ? "gate_proj" : "w1", qk_norm ? "up_proj" : "w3"}) {
        first.push_back(name + part + ".weight");
        EXPECT_THAT(tensors_.at(first.back()).shape, ElementsAre(6, 8));
      }
      second.push_back(name + (qk_norm ? "down_proj" : "w2") + ".weight");
      EXPECT_THAT(tensors_.at(second.back()).shape, ElementsAre(8, 6));
    }
    EXPECT_EQ(Joined(tensors_, first), BytesOf(gates_and_ups));
    EXPECT_EQ(Joined(tensors_, second), BytesOf(outputs));
    ExpectImported({});
  }
}

TEST_F(HuggingFaceImport, StackedExpertsAreRefusedWithAdvice) {
  ExportExperts(/*qk_norm=*/true);
  for (const char* part : {"gate_proj", "up_proj"}) {
    for (const int expert : {0, 1, 2, 3})
      tensors_.erase(absl::StrCat("model.layers.1.mlp.experts.", expert, ".", part, ".weight"));
  }
  WriteModel();
  const std::string missing = "/weights has no tensor model.layers.1.mlp.experts.0.gate_proj.weight";
  ExpectRefused({missing});
  EXPECT_THAT(std::string(Import().status().message()), Not(HasSubstr("stacked")));
  tensors_["model.layers.1.mlp.experts.gate_up_proj"] = {{4, 12, 8}, "F32", std::string(4 * 12 * 8 * sizeof(float), '\0')};
  WriteModel();
  ExpectRefused({missing, "the experts of a layer are stacked there", "save_original_format=True"});
}

// config.json has no capacity. So the job sets a capacity that differs from that of the imported checkpoint. Each rank reads
// its own experts.
TEST_F(HuggingFaceImport, RanksThatShareExpertsBeginWithTheirs) {
  ExportExperts(/*qk_norm=*/true);
  model_.moe.capacity = 0;
  ASSERT_TRUE(Import().ok());
  model_.moe.capacity = 2;
  const ParallelLayout layout{.dp = 2, .ep = 2};
  CheckpointWorld expected(layout, model_), begun(layout, model_);
  expected.Train(3);  // trains the same steps as the exported model
  begun.Poison();
  for (size_t i = 0; i < begun.ranks().size(); ++i) {
    WorldRank& rank = begun.ranks()[i];
    ASSERT_EQ(LoadStart(kOut, 0, StartWith::kWeights, begun.Identity(0), rank.context, rank.tp_rank, rank.state, {}, disk_),
              absl::OkStatus());
    EXPECT_TRUE(std::ranges::equal(rank.state.weights(), expected.ranks()[i].state.weights())) << i;
  }
}

TEST_F(HuggingFaceImport, ExpertsThatDoNotFitAreRefusedByName) {
  for (const bool qk_norm : {false, true}) {
    ASSERT_TRUE(disk_.RemoveTree("/trained").ok());
    ASSERT_TRUE(disk_.RemoveTree(kIn).ok());
    ExportExperts(qk_norm);
    const ForeignTensors right = tensors_;
    const std::string layer = qk_norm ? "model.layers.1.mlp." : "model.layers.1.block_sparse_moe.";
    const std::string down = qk_norm ? ".down_proj.weight" : ".w2.weight";
    tensors_.erase(layer + "experts.2" + down);
    WriteModel();
    ExpectRefused({"/weights has no tensor " + layer + "experts.2" + down + " (in model.safetensors)"});
    tensors_ = right;
    tensors_.at(layer + "experts.3" + down) = Floats({1, 2, 3});
    WriteModel();
    ExpectRefused(
        {"/weights/model.safetensors: " + layer + "experts.3" + down + " has shape (3), not the (8, 6) of config.json"});
    tensors_ = right;
    tensors_[layer + "experts.4" + down] = right.at(layer + "experts.3" + down);
    WriteModel();
    ExpectRefused(
        {"/weights/model.safetensors: tensor " + layer + "experts.4" + down + " is not a part of such a model in Lynx"});
    // The router has weights for fewer experts than config.json says.
    tensors_ = right;
    tensors_.at(layer + "gate.weight") = {{3, 8}, "F32", std::string(3 * 8 * sizeof(float), '\0')};
    WriteModel();
    ExpectRefused({layer + "gate.weight has shape (3, 8), not the (4, 8) of config.json"});
  }
}

TEST_F(HuggingFaceImport, ACheckpointThatIsThereStays) {
  Export(/*tied=*/true);
  ASSERT_TRUE(Import().ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Import().status()));
  disk_.Content("/run/step-00000000/index.json") = "{}";
  EXPECT_TRUE(absl::IsAlreadyExists(Import().status()));
}

TEST_F(HuggingFaceImport, AFileInPlaceOfTheFoldersIsAnError) {
  const TestFolder folder;
  const std::string file = folder.Write("file", "");
  const FamilyTraits& family = *ExportFamilyOf(WorldModel()).value();
  EXPECT_FALSE(ImportFromHuggingFace(folder.path(), WorldModel(), family, file).ok());
  EXPECT_FALSE(ImportFromHuggingFace(file, WorldModel(), family, folder.Path("out")).ok());
  EXPECT_TRUE(absl::IsNotFound(ImportFromHuggingFace(folder.Path("none"), WorldModel(), family, folder.Path("out")).status()));
  EXPECT_FALSE(std::filesystem::exists(folder.Path("out")));
}

TEST_F(HuggingFaceImport, ConfigMustBeThereAndNoPointer) {
  Export(/*tied=*/true);
  EXPECT_THAT(ReadHuggingFaceConfig(kIn, disk_).value(), HasSubstr("\"model_type\": \"gpt2\""));
  Write("config.json", LfsPointer());
  const absl::Status status = ReadHuggingFaceConfig(kIn, disk_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/weights/config.json is a git-lfs pointer"));
  ASSERT_TRUE(disk_.RemoveTree(In("config.json")).ok());
  EXPECT_TRUE(absl::IsNotFound(ReadHuggingFaceConfig(kIn, disk_).status()));
}

// Some versions of transformers read `factor`, others compute the factor from the positions. All of them must get the same
// factor.
TEST(HuggingFaceConfig, NamesThePositionsThatYarnStretchesTo) {
  ModelSpec model;
  model.family = ModelFamily::kLlama, model.hidden = 32, model.heads = 4;
  model.rotary = {.scaling = RopeScaling::kYarn, .factor = 2.5, .original_seq = 10};
  const std::string config = HuggingFaceConfigText(model, *ExportFamilyOf(model).value());
  EXPECT_THAT(config, HasSubstr("\"max_position_embeddings\": 25,"));
  EXPECT_THAT(config, HasSubstr("\"original_max_position_embeddings\": 10"));
}

// Mixtral uses one field for both widths: of the feed-forward block and of an expert. Without output_router_logits,
// transformers adds no loss of routers, so the file may contain the factor.
TEST(HuggingFaceConfig, HasTheExpertsInTheWordsOfEachClass) {
  ModelSpec model;
  model.family = ModelFamily::kLlama, model.layers = 3, model.hidden = 32, model.heads = 4, model.ffn = 96;
  model.moe = {.experts = 6, .top_k = 2, .ffn = 24, .capacity = 1.25, .aux_loss = 0.5};
  const auto config = [&] { return HuggingFaceConfigText(model, *ExportFamilyOf(model).value()); };
  for (const char* part : {"\"MixtralForCausalLM\"", "\"model_type\": \"mixtral\"", "\"intermediate_size\": 24,",
                           "\"num_local_experts\": 6,", "\"num_experts_per_tok\": 2,", "\"router_aux_loss_coef\": 0.75,"}) {
    EXPECT_THAT(config(), HasSubstr(part));
  }
  for (const char* part : {"norm_topk_prob", "moe_intermediate_size", "output_router_logits", "capacity"}) {
    EXPECT_THAT(config(), Not(HasSubstr(part)));
  }
  model.qk_norm = true, model.moe.normalized = false;
  for (const char* part :
       {"\"Qwen3MoeForCausalLM\"", "\"model_type\": \"qwen3_moe\"", "\"intermediate_size\": 96,",
        "\"moe_intermediate_size\": 24,", "\"num_experts\": 6,", "\"num_experts_per_tok\": 2,", "\"norm_topk_prob\": false,",
        "\"decoder_sparse_step\": 1,", "\"mlp_only_layers\": [],", "\"router_aux_loss_coef\": 0.75,"}) {
    EXPECT_THAT(config(), HasSubstr(part));
  }
  EXPECT_THAT(config(), Not(HasSubstr("output_router_logits")));
}

// Any call of the disk may fail: then there must be an error and no checkpoint, or a complete checkpoint with the right
// weights.
TEST_F(HuggingFaceImport, EveryCallOfTheDiskMayFail) {
  Export(/*tied=*/true);
  tensors_[kHead] = tensors_.at(kEmbedding);
  WriteModel();
  bool failed = true;
  int errors = 0;
  for (int call = 1; failed; ++call) {
    ASSERT_TRUE(disk_.RemoveTree(kOut).ok());
    disk_.FailAt(call, Fault::kFailOnce);
    const auto imported = Import();
    failed = disk_.Failed();
    disk_.Heal();
    if (imported.ok()) {
      EXPECT_TRUE(VerifyCheckpoint(imported->checkpoint, disk_).empty()) << call;
    } else {
      ++errors;
    }
  }
  EXPECT_GT(errors, 50);
}

}  // namespace
}  // namespace lynx::worker
