#include "worker/checkpoint/hugging_face_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_join.h"
#include "tests/worker/checkpoint/faulty_file_system.h"
#include "tests/worker/checkpoint/hugging_face_folder.h"

namespace lynx::worker {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

constexpr char kFolder[] = "/weights";
constexpr char kModel[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
const std::set<std::string> kNeeded = {"model.a", "model.b"};

// Returns a file with one value for each tensor.
std::string File(const std::map<std::string, float>& values) {
  ForeignTensors tensors;
  for (const auto& [name, value] : values) tensors[name] = Floats({value});
  return ForeignFile(tensors);
}

struct Case {
  std::string name;
  std::map<std::string, std::string> files;
  std::map<std::string, float> taken;  // the values show from which file each tensor was taken
  std::vector<std::string> notes;      // a part of each note, in order
  StatusCode code = StatusCode::kOk;
  std::vector<std::string> error = {};  // parts of the error's message
};

const std::map<std::string, float> kRight = {{"model.a", 1}, {"model.b", 2}};
const std::string kShard1 = "model-00001-of-00002.safetensors", kShard2 = "model-00002-of-00002.safetensors";
const std::string kGoodIndex = WeightIndex({{"model.a", kShard1}, {"model.b", kShard2}});
constexpr StatusCode kWrong = StatusCode::kInvalidArgument;
constexpr StatusCode kAbsent = StatusCode::kNotFound;

std::unique_ptr<FaultyFileSystem> DiskWith(const std::map<std::string, std::string>& contents) {
  auto disk = std::make_unique<FaultyFileSystem>();
  EXPECT_TRUE(disk->CreateFolders(kFolder).ok());
  for (const auto& [name, content] : contents) {
    EXPECT_TRUE(WriteWholeFile(*disk, std::string(kFolder) + "/" + name, content).ok());
  }
  return disk;
}

void Check(const Case& c) {
  SCOPED_TRACE(c.name);
  const auto disk = DiskWith(c.files);
  const absl::StatusOr<WeightFiles> chosen = ChooseWeightFiles(*disk, kFolder, kNeeded);
  ASSERT_EQ(chosen.status().code(), c.code) << chosen.status();
  for (const std::string& part : c.error) EXPECT_THAT(std::string(chosen.status().message()), HasSubstr(part));
  if (!chosen.ok()) return;
  std::map<std::string, float> taken;
  for (const auto& [name, place] : chosen->tensors) {
    const TensorInFile tensor = chosen->At(place);
    const auto values = ReadAsFloat(*disk, *tensor.file, *tensor.tensor);
    ASSERT_TRUE(values.ok()) << values.status();
    taken[name] = values->at(0);
  }
  EXPECT_EQ(taken, c.taken);
  ASSERT_EQ(chosen->notes.size(), c.notes.size()) << absl::StrJoin(chosen->notes, "\n");
  for (size_t i = 0; i < c.notes.size(); ++i) EXPECT_THAT(chosen->notes[i], HasSubstr(c.notes[i]));
}

TEST(HuggingFaceFiles, WithoutAnIndex) {
  const Case cases[] = {
      {"one file", {{kModel, File(kRight)}}, kRight, {}},
      {"older files beside it",
       {{kModel, File(kRight)}, {"old.safetensors", File({{"model.a", 7}})}, {"zz.safetensors", "damaged"}},
       kRight,
       {"not taken: old.safetensors, zz.safetensors; the weights are those of model.safetensors"}},
      {"shards", {{kShard1, File({{"model.a", 1}})}, {kShard2, File({{"model.b", 2}})}}, kRight, {}},
      {"a base model's names", {{kModel, File({{"a", 1}, {"model.b", 2}})}}, kRight, {}},
      {"tensors beyond the model's are shown to the caller",
       {{kModel, File({{"model.a", 1}, {"model.b", 2}, {"more", 3}})}},
       {{"model.a", 1}, {"model.b", 2}, {"more", 3}},
       {}},
      {"the same content twice",
       {{"x.safetensors", File(kRight)}, {"y.safetensors", File({{"model.b", 2}})}},
       kRight,
       {"x.safetensors and y.safetensors both hold, with the same content: model.b; taken from x.safetensors"}},
      {"the same content twice in one file",
       {{kModel, File({{"a", 1}, {"model.a", 1}, {"b", 2}})}},
       kRight,
       {"model.safetensors holds twice, with the same content: model.a"}},
      {"constants are not compared",
       {{"x.safetensors", File({{"model.a", 1}, {"model.b", 2}, {"l.rotary_emb.inv_freq", 3}})},
        {"y.safetensors", File({{"l.rotary_emb.inv_freq", 4}})}},
       {{"model.a", 1}, {"model.b", 2}, {"l.rotary_emb.inv_freq", 3}},
       {}},
      {"two contents",
       {{"x.safetensors", File(kRight)}, {"y.safetensors", File({{"model.b", 7}})}},
       {},
       {},
       kWrong,
       {"model.b in x.safetensors is not the same as model.b in y.safetensors", "either may be meant"}},
      {"two contents under a long and a short name",
       {{"x.safetensors", File(kRight)}, {"y.safetensors", File({{"b", 7}})}},
       {},
       {},
       kWrong,
       {"model.b in x.safetensors is not the same as b in y.safetensors"}},
      {"two contents in one file",
       {{kModel, File({{"a", 7}, {"model.a", 1}, {"b", 2}})}},
       {},
       {},
       kWrong,
       {"a in model.safetensors is not the same as model.a in model.safetensors"}},
      {"two shapes",
       {{"x.safetensors", File(kRight)}, {"y.safetensors", ForeignFile({{"model.b", Floats({2, 2})}})}},
       {},
       {},
       kWrong,
       {"model.b in x.safetensors is not the same as model.b in y.safetensors"}},
      {"twice in a type that is not read",
       {{"x.safetensors", File(kRight)}, {"y.safetensors", ForeignFile({{"model.b", {{4}, "I8", "abcd"}}})}},
       {},
       {},
       kWrong,
       {"y.safetensors: model.b is of type I8, not F32, F16 or BF16"}},
      {"a shard is missing", {{kShard1, File({{"model.a", 1}})}}, {}, {}, kWrong, {"has no tensor model.b (in " + kShard1}},
      {"a damaged file",
       {{"x.safetensors", File(kRight)}, {"y.safetensors", "short"}},
       {},
       {},
       StatusCode::kDataLoss,
       {"/weights/y.safetensors"}},
      {"nothing",
       {{"config.json", "{}"}, {"rng_state.pth", ""}, {"optimizer.pt", ""}},
       {},
       {},
       kAbsent,
       {"there is no model.safetensors in /weights"}},
  };
  for (const Case& c : cases) Check(c);
}

TEST(HuggingFaceFiles, WithAnIndex) {
  const std::string a = File({{"model.a", 1}}), b = File({{"model.b", 2}});
  const Case cases[] = {
      {"its shards", {{kIndex, kGoodIndex}, {kShard1, a}, {kShard2, b}}, kRight, {}},
      {"stale files of the same tensors, which come last by name",
       {{kIndex, kGoodIndex},
        {kShard1, a},
        {kShard2, b},
        {"old.safetensors", File({{"model.a", 7}, {"model.b", 8}})},
        {"zz.safetensors", "damaged"}},
       kRight,
       {"not taken: old.safetensors, zz.safetensors; the weights are those of model-00001-of-00002.safetensors, "
        "model-00002-of-00002.safetensors"}},
      {"a shard with another shard's tensor",
       {{kIndex, kGoodIndex}, {kShard1, File({{"model.a", 1}, {"model.b", 7}})}, {kShard2, b}},
       kRight,
       {"not taken from " + kShard1 + ": model.b; model.safetensors.index.json does not name that file for it"}},
      {"the later shard with the earlier one's tensor",
       {{kIndex, kGoodIndex}, {kShard1, a}, {kShard2, File({{"model.a", 7}, {"model.b", 2}})}},
       kRight,
       {"not taken from " + kShard2 + ": model.a"}},
      {"an unlisted short name of a listed tensor",
       {{kIndex, kGoodIndex}, {kShard1, a}, {kShard2, File({{"a", 7}, {"model.b", 2}})}},
       kRight,
       {"not taken from " + kShard2 + ": a"}},
      {"unlisted tensors that the model has no place for are shown to the caller",
       {{kIndex, kGoodIndex}, {kShard1, a}, {kShard2, File({{"model.b", 2}, {"more", 3}})}},
       {{"model.a", 1}, {"model.b", 2}, {"more", 3}},
       {}},
      {"an index of model.safetensors itself",
       {{kIndex, WeightIndex({{"model.a", kModel}, {"model.b", kModel}})}, {kModel, File(kRight)}, {kShard1, "damaged"}},
       kRight,
       {"not taken: " + kShard1}},
      {"a needed tensor that it does not list",
       {{kIndex, WeightIndex({{"model.a", kShard1}})}, {kShard1, File(kRight)}},
       {},
       {},
       kWrong,
       {"/weights/model.safetensors.index.json does not list model.b, which the model needs and " + kShard1 + " holds"}},
      {"a needed tensor that is nowhere",
       {{kIndex, WeightIndex({{"model.a", kShard1}})}, {kShard1, a}},
       {},
       {},
       kWrong,
       {"has no tensor model.b (in " + kShard1}},
      {"a tensor that its file does not hold",
       {{kIndex, kGoodIndex}, {kShard1, a}, {kShard2, File({{"model.c", 2}})}},
       {},
       {},
       kWrong,
       {kShard2 + " is said to hold model.b, but does not"}},
      {"two names of one tensor, of different content",
       {{kIndex, WeightIndex({{"model.a", kShard1}, {"a", kShard2}, {"model.b", kShard2}})},
        {kShard1, a},
        {kShard2, File({{"a", 7}, {"model.b", 2}})}},
       {},
       {},
       kWrong,
       {"model.a in " + kShard1 + " is not the same as a in " + kShard2}},
      {"a damaged shard",
       {{kIndex, kGoodIndex}, {kShard1, a}, {kShard2, "short"}},
       {},
       {},
       StatusCode::kDataLoss,
       {"/weights/" + kShard2}},
      {"a shard that is missing",
       {{kIndex, kGoodIndex}, {kShard1, a}},
       {},
       {},
       kAbsent,
       {"/weights/model.safetensors.index.json names " + kShard2 + " (with model.b), which is not there"}},
      {"all shards missing, and another format there",
       {{kIndex, kGoodIndex}, {"pytorch_model.bin", ""}},
       {},
       {},
       kAbsent,
       {"names " + kShard1 + ", " + kShard2 + " (with model.a, model.b), which are not there"}},
      {"a stale index of files that are gone",
       {{kIndex, kGoodIndex}, {"new-1.safetensors", a}, {"new-2.safetensors", b}},
       kRight,
       {"which are not there; it is passed over, as new-1.safetensors, new-2.safetensors hold the whole model"}},
      {"a stale index, and two contents without it",
       {{kIndex, kGoodIndex}, {kShard1, File({{"model.a", 7}})}, {"new.safetensors", File(kRight)}},
       {},
       {},
       kWrong,
       {kShard2 + " (with model.b), which is not there",
        "model.a in " + kShard1 + " is not the same as model.a in new.safetensors"}},
  };
  for (const Case& c : cases) Check(c);
}

TEST(HuggingFaceFiles, AnIndexBesideAWholeFile) {
  const std::string a = File({{"model.a", 1}}), b = File({{"model.b", 2}});
  const Case cases[] = {
      {"the same",
       {{kIndex, kGoodIndex}, {kShard1, a}, {kShard2, b}, {kModel, File(kRight)}},
       kRight,
       {"there are both model.safetensors and model.safetensors.index.json; what both hold is the same, and taken "
        "from model.safetensors",
        "not taken: " + kShard1}},
      {"different content",
       {{kIndex, kGoodIndex}, {kShard1, a}, {kShard2, b}, {kModel, File({{"model.a", 1}, {"model.b", 7}})}},
       {},
       {},
       kWrong,
       {"model.safetensors and model.safetensors.index.json do not agree",
        "model.b in model.safetensors is not the same as model.b in " + kShard2}},
      {"different content under the base model's names",
       {{kIndex, kGoodIndex}, {kShard1, a}, {kShard2, b}, {kModel, File({{"a", 1}, {"b", 7}})}},
       {},
       {},
       kWrong,
       {"b in model.safetensors is not the same as model.b in " + kShard2}},
      {"model.safetensors has a part",
       {{kIndex, kGoodIndex}, {kShard1, a}, {kShard2, b}, {kModel, a}},
       kRight,
       {"model.safetensors lacks model.b; the files that model.safetensors.index.json names are taken",
        "not taken: model.safetensors"}},
      {"model.safetensors has a part, with different content",
       {{kIndex, kGoodIndex}, {kShard1, a}, {kShard2, b}, {kModel, File({{"model.a", 7}})}},
       {},
       {},
       kWrong,
       {"model.a in model.safetensors is not the same"}},
      {"neither is whole",
       {{kIndex, WeightIndex({{"model.a", kShard1}})}, {kShard1, a}, {kModel, a}},
       {},
       {},
       kWrong,
       {"has no tensor model.b (in model.safetensors)"}},
      {"shards that are gone, and a stray file",
       {{kIndex, kGoodIndex}, {kModel, File(kRight)}, {"old.safetensors", File({{"model.a", 7}})}},
       kRight,
       {"it is passed over, as model.safetensors holds the whole model", "not taken: old.safetensors"}},
      {"a shard that is left, of the same content",
       {{kIndex, kGoodIndex}, {kShard1, a}, {kModel, File(kRight)}},
       kRight,
       {"both hold, with the same content: model.a; taken from model.safetensors", "it is passed over"}},
      {"a shard that is left, of another content",
       {{kIndex, kGoodIndex}, {kShard1, File({{"model.a", 7}})}, {kModel, File(kRight)}},
       {},
       {},
       kWrong,
       {kShard2 + " (with model.b), which is not there",
        "model.a in model.safetensors is not the same as model.a in " + kShard1}},
  };
  for (const Case& c : cases) Check(c);
}

TEST(HuggingFaceFiles, OtherFormats) {
  const std::string mistral = File({{"tok_embeddings.weight", 1}, {"layers.0.attention.wq.weight", 2}, {"norm.weight", 3}});
  const std::string adapter = File({{"base_model.model.a.lora_A.weight", 1}});
  const std::string only = "that can be imported; there is only ";
  const Case cases[] = {
      {"pickled",
       {{"pytorch_model-00001-of-00002.bin", ""}, {"pytorch_model-00002-of-00002.bin", ""}},
       {},
       {},
       kAbsent,
       {only + "pytorch_model-00001-of-00002.bin, pytorch_model-00002-of-00002.bin, which is PyTorch's pickled "
               "format: convert it to safetensors with from_pretrained"}},
      {"pth", {{"model.pth", ""}}, {}, {}, kAbsent, {only + "model.pth, which is PyTorch's pickled format: convert"}},
      {"pt", {{"model.pt", ""}}, {}, {}, kAbsent, {only + "model.pt, which is PyTorch's pickled format: convert"}},
      {"Meta's",
       {{"consolidated.00.pth", ""}},
       {},
       {},
       kAbsent,
       {only + "consolidated.00.pth, which is Mistral's or Meta's own format, pickled: convert"}},
      {"gguf",
       {{"model.Q4_K_M.gguf", ""}},
       {},
       {},
       kAbsent,
       {only + "model.Q4_K_M.gguf, which is llama.cpp's format", "gguf_file="}},
      {"TensorFlow's and Flax's",
       {{"tf_model.h5", ""}, {"flax_model.msgpack", ""}},
       {},
       {},
       kAbsent,
       {"tf_model.h5, which is TensorFlow's format", "; and flax_model.msgpack, which is Flax's format"}},
      {"Mistral's",
       {{"consolidated.safetensors", mistral}},
       {},
       {},
       kAbsent,
       {only + "consolidated.safetensors, which is Mistral's or Meta's own format, with other tensor names: convert it",
        "convert_mistral_weights_to_hf.py"}},
      {"Mistral's under our name",
       {{kModel, mistral}},
       {},
       {},
       kAbsent,
       {only + "model.safetensors, which is Mistral's or Meta's own format"}},
      {"an adapter",
       {{"adapter_model.safetensors", adapter}, {"adapter_model.bin", ""}},
       {},
       {},
       kAbsent,
       {only + "adapter_model.bin, adapter_model.safetensors, which is an adapter (LoRA), which changes another "
               "model: merge it"}},
      {"an adapter under our name", {{kModel, adapter}}, {}, {}, kAbsent, {only + "model.safetensors, which is an adapter"}},
      {"beside the right ones",
       {{"a.safetensors", File(kRight)},
        {"consolidated.safetensors", mistral},
        {"adapter_model.safetensors", adapter},
        {"pytorch_model.bin", ""},
        {"lora.safetensors", adapter}},
       kRight,
       {"not taken: adapter_model.safetensors, lora.safetensors; it is an adapter",
        "not taken: consolidated.safetensors; it is Mistral's", "not taken: pytorch_model.bin; it is PyTorch's"}},
      {"Mistral's as a pointer beside shards without an index",
       {{"a.safetensors", File(kRight)}, {"consolidated.safetensors", LfsPointer()}},
       kRight,
       {"not taken: consolidated.safetensors"}},
      {"our names in consolidated.safetensors", {{"consolidated.safetensors", File(kRight)}}, kRight, {}},
  };
  for (const Case& c : cases) Check(c);
}

TEST(HuggingFaceFiles, GitLfsPointers) {
  const std::string says = " is a git-lfs pointer, not the file that it stands for: run `git lfs pull` in its folder";
  const std::string a = File({{"model.a", 1}});
  const Case cases[] = {
      {"the weights", {{kModel, LfsPointer()}}, {}, {}, kWrong, {"/weights/model.safetensors" + says}},
      {"one of the shards",
       {{"x.safetensors", a}, {"y.safetensors", LfsPointer()}},
       {},
       {},
       kWrong,
       {"/weights/y.safetensors" + says}},
      {"an indexed shard",
       {{kIndex, kGoodIndex}, {kShard1, a}, {kShard2, LfsPointer()}},
       {},
       {},
       kWrong,
       {"/weights/" + kShard2 + says}},
      {"the index",
       {{kIndex, LfsPointer()}, {kModel, File(kRight)}},
       {},
       {},
       kWrong,
       {std::string("/weights/") + kIndex + says}},
      {"a file that is not taken",
       {{kModel, File(kRight)}, {"old.safetensors", LfsPointer()}},
       kRight,
       {"not taken: old.safetensors"}},
  };
  for (const Case& c : cases) Check(c);
}

TEST(HuggingFaceFiles, MalformedIndexes) {
  const std::string file = ", not the name of a *.safetensors file in the same folder";
  const auto map = [](const std::string& value) { return R"({"weight_map": {"model.a": )" + value + "}}"; };
  const struct {
    std::string text, message;
  } cases[] = {
      {"", "not a JSON object"},
      {"[]", "not a JSON object"},
      {R"({"weight_map": {"model.a": "x)", "not a JSON object"},
      {"{\"\xff\": 1}", "not a JSON object"},
      {R"({"metadata": {}})", "there is no weight_map"},
      {R"({"weight_map": []})", "weight_map is not an object that names a file for each tensor"},
      {R"({"weight_map": {}})", "weight_map is not an object that names a file for each tensor"},
      {R"({"weight_map": {"a": "x.safetensors"}, "weight_map": {}})", "the name weight_map appears twice"},
      {R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})", "the name a appears twice"},
      {map("3"), "weight_map: the file of model.a is 3" + file},
      {map("null"), "weight_map: the file of model.a is null" + file},
      {map(R"(["x.safetensors"])"), R"(the file of model.a is ["x.safetensors"])" + file},
      {map(R"("")"), R"(the file of model.a is "")" + file},
      {map(R"("..")"), R"(the file of model.a is "..")" + file},
      {map(R"("../x.safetensors")"), R"(the file of model.a is "../x.safetensors")" + file},
      {map(R"("/etc/x.safetensors")"), R"(the file of model.a is "/etc/x.safetensors")" + file},
      {map(R"("sub/x.safetensors")"), R"(the file of model.a is "sub/x.safetensors")" + file},
      {map(R"("sub\\x.safetensors")"), R"(the file of model.a is "sub\\x.safetensors")" + file},
      {map(R"("x\u0000.safetensors")"), R"(the file of model.a is "x\u0000.safetensors")" + file},
      {map(R"("pytorch_model.bin")"), R"(the file of model.a is "pytorch_model.bin")" + file},
  };
  for (const auto& c : cases) {
    const absl::Status status = ParseWeightMap(c.text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << c.text << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.text;
    // Without the index, the import could use model.safetensors, which has all tensors. But with a wrong index the import must
    // fail.
    Check({c.text,
           {{kIndex, c.text}, {kModel, File(kRight)}},
           {},
           {},
           kWrong,
           {std::string("/weights/") + kIndex + ": ", c.message}});
  }
  // A name may appear in other parts of the file, and a tensor may have the name of a part of the file.
  const auto good = ParseWeightMap(
      R"({"metadata": {"a": 1, "weight_map": {"a": 2}}, "weight_map": {"a": "x.safetensors", "weight_map": "..safetensors"}})");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(*good, (std::map<std::string, std::string>{{"a", "x.safetensors"}, {"weight_map", "..safetensors"}}));
}

// Damage at any place must cause no crash, and must never lead to a file outside the folder.
TEST(HuggingFaceFiles, RandomDamageOfAnIndexIsSafe) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = kGoodIndex;
    for (int i = 0; i < 2; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto map = ParseWeightMap(damaged);
    if (!map.ok()) continue;
    for (const auto& [tensor, file] : *map) {
      EXPECT_EQ(file.find('/'), std::string::npos) << "seed 5 round " << round;
      EXPECT_TRUE(file.ends_with(".safetensors")) << "seed 5 round " << round;
    }
  }
}

// Any call of the disk may fail: then the result must be right, or an error.
TEST(HuggingFaceFiles, EveryCallOfTheDiskMayFail) {
  const auto disk = DiskWith({{kIndex, kGoodIndex},
                              {kShard1, File({{"model.a", 1}})},
                              {kShard2, File({{"model.b", 2}})},
                              {kModel, File(kRight)},
                              {"consolidated.safetensors", File({{"tok_embeddings.weight", 1}})}});
  bool failed = true;
  int errors = 0;
  for (int call = 1; failed; ++call) {
    disk->FailAt(call, Fault::kFailOnce);
    const auto chosen = ChooseWeightFiles(*disk, kFolder, kNeeded);
    failed = disk->Failed();
    disk->Heal();
    if (!chosen.ok()) {
      ++errors;
      continue;
    }
    EXPECT_EQ(chosen->files.size(), 1u) << call;
    EXPECT_EQ(chosen->files[0].path, std::string(kFolder) + "/" + kModel) << call;
  }
  EXPECT_GT(errors, 5);
}

}  // namespace
}  // namespace lynx::worker
