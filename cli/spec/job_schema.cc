// See job_schema.h.
#include "cli/spec/job_schema.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/spec/job_fields.h"

namespace lynx::cli {
namespace {

using Json = nlohmann::ordered_json;

// The schema of a scalar.
Json ScalarSchema(const JobField& field) {
  const auto typed = [&](const char* type) {
    const Json one = {{"type", type}};
    return field.words.empty() ? one : Json{{"anyOf", {one, {{"enum", field.words}}}}};
  };
  switch (field.scalar) {
    case ScalarKind::kInteger: return typed("integer");
    case ScalarKind::kReal: return typed("number");
    case ScalarKind::kBoolean: return typed("boolean");
    case ScalarKind::kIntegers: return {{"type", {"array", "string", "integer"}}, {"items", {{"type", "integer"}}}};
    case ScalarKind::kText: break;
  }
  return field.words.empty() ? Json{{"type", {"string", "number"}}} : Json{{"enum", field.words}};
}

Json& PropertiesOf(Json& object) {
  if (!object.contains("properties")) {
    object["type"] = "object";
    object["additionalProperties"] = false;
    object["properties"] = Json::object();
  }
  return object["properties"];
}

void Require(Json& object, const std::string& name) {
  Json& required = object["required"];
  if (std::find(required.begin(), required.end(), name) == required.end()) required.push_back(name);
}

void AddField(const JobField& field, const JobSpec& defaults, Json& root) {
  const std::vector<std::string> path = absl::StrSplit(field.path, '.');
  Json* object = &root;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    // JobSchemaText requires the section `model` in any case.
    if (field.required && path[i] != "model") Require(*object, path[i]);
    object = &PropertiesOf(*object)[path[i]];
  }
  Json& schema = PropertiesOf(*object)[path.back()];
  schema.update(ScalarSchema(field));
  if (field.meaning.empty()) return;  // the field only allows one word in place of a whole section
  schema["description"] = field.meaning;
  if (field.required) {
    Require(*object, path.back());
  } else if (const std::string value = field.write ? field.write(defaults) : ""; !value.empty()) {
    absl::StrAppend(&schema["description"].get_ref<std::string&>(), " (default: ", value, ")");
  }
}

}  // namespace

std::string JobSchemaText() {
  Json root = {{"$schema", "http://json-schema.org/draft-07/schema#"},
               {"title", "A training job of Lynx"},
               {"required", {"apiVersion", "kind", "model"}}};
  PropertiesOf(root)["apiVersion"] = {{"const", "lynx/v1"}};
  PropertiesOf(root)["kind"] = {{"const", "TrainingJob"}};
  for (const JobField& field : JobFields()) AddField(field, JobSpec(), root);
  Json& properties = root["properties"];
  // A word can be written in place of the section `parallel`.
  Json& parallel = properties["parallel"];
  const Json word = {{"enum", parallel["enum"]}};
  parallel.erase("enum");
  parallel = {{"anyOf", {word, parallel}}};
  Json& model = properties["model"];
  const Json fields = model["required"];
  model.erase("required");
  model["anyOf"] = {{{"required", {"preset"}}}, {{"required", {"config"}}}, {{"required", fields}}};
  return root.dump(2) + "\n";
}

}  // namespace lynx::cli
