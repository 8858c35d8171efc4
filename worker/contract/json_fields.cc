#include "worker/contract/json_fields.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lynx {
namespace {

using Json = nlohmann::ordered_json;

// The largest text that is read. The limit is far above what any program needs.
constexpr size_t kMaxTextBytes = size_t{256} << 20;

// A text may contain bytes that are not UTF-8, such as a strange file name in an error message. They are replaced, so that the
// whole report does not fail because of them.
std::string Dump(const Json& json, int indent) { return json.dump(indent, ' ', false, Json::error_handler_t::replace); }

std::string Shown(const Json& json) {
  std::string text = Dump(json, -1);
  if (text.size() > 40) text = absl::StrCat(text.substr(0, 40), "...");
  return text;
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------- writing

struct JsonWriter::State {
  Json root = Json::object();
  std::vector<Json*> open;

  void Set(const char* name, Json value) { (*open.back())[name] = std::move(value); }
  Json* Add(const char* name, Json value) {
    Json& parent = *open.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[name] = std::move(value));
  }
};

JsonWriter::JsonWriter() : state_(std::make_unique<State>()) { state_->open.push_back(&state_->root); }
JsonWriter::~JsonWriter() = default;

void JsonWriter::Field(const char* name, bool& value) { state_->Set(name, value); }
void JsonWriter::Field(const char* name, int32_t& value) { state_->Set(name, value); }
void JsonWriter::Field(const char* name, int64_t& value) { state_->Set(name, value); }
void JsonWriter::Field(const char* name, uint64_t& value) { state_->Set(name, value); }
void JsonWriter::Field(const char* name, std::string& value) { state_->Set(name, value); }
void JsonWriter::Field(const char* name, std::vector<int32_t>& values) { state_->Set(name, values); }
void JsonWriter::Field(const char* name, std::vector<int64_t>& values) { state_->Set(name, values); }

void JsonWriter::Field(const char* name, double& value) {
  if (std::isfinite(value)) {
    state_->Set(name, value);
  } else {
    state_->Set(name, std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  }
}

void JsonWriter::Begin(const char* name) { state_->open.push_back(state_->Add(name, Json::object())); }
void JsonWriter::BeginArray(const char* name) { state_->open.push_back(state_->Add(name, Json::array())); }
void JsonWriter::End() { state_->open.pop_back(); }

std::string JsonWriter::Line() const { return Dump(state_->root, -1); }
std::string JsonWriter::Indented() const { return Dump(state_->root, 1) + "\n"; }

// ---------------------------------------------------------------------------------------------------------- reading

struct JsonReader::State {
  struct Level {
    const Json* json;            // nullptr if the field is missing, or if a field above it is missing
    std::string path;            // such as "context.model."
    std::set<std::string> read;  // for an object: the names of the fields that have been read
  };
  std::string what;
  Json root;
  std::vector<Level> open;
};

JsonReader::JsonReader(const std::string& text, const std::string& what) : state_(std::make_unique<State>()) {
  state_->what = what;
  if (text.size() > kMaxTextBytes) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(what, ": ", text.size(), " bytes of text; at most ", kMaxTextBytes, " are read"));
  } else {
    try {
      state_->root = Json::parse(text);
    } catch (const Json::exception& error) {
      status_ = absl::InvalidArgumentError(absl::StrCat(what, " is not JSON: ", error.what()));
    }
  }
  if (status_.ok() && !state_->root.is_object()) {
    status_ = absl::InvalidArgumentError(absl::StrCat(what, ": expected an object, found ", Shown(state_->root)));
  }
  state_->open.push_back({status_.ok() ? &state_->root : nullptr, "", {}});
}

JsonReader::~JsonReader() = default;

namespace {

// Returns the value of field `name`, or nullptr if there is no such field.
const Json* Find(const Json* object, const char* name) {
  if (object == nullptr) return nullptr;
  const auto found = object->find(name);
  return found == object->end() ? nullptr : &*found;
}

// Reads an integer. Returns false if `json` is not an integer that fits into T.
template <class T>
bool ReadInteger(const Json& json, T& value) {
  if (json.is_number_unsigned()) {
    const uint64_t number = json.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<T>::max())) return false;
    value = static_cast<T>(number);
    return true;
  }
  if (!json.is_number_integer()) return false;
  const int64_t number = json.get<int64_t>();
  if (std::is_unsigned_v<T> && number < 0) return false;
  if (number < static_cast<int64_t>(std::numeric_limits<T>::min())) return false;
  if (number > 0 && static_cast<uint64_t>(number) > static_cast<uint64_t>(std::numeric_limits<T>::max())) return false;
  value = static_cast<T>(number);
  return true;
}

bool ReadValue(const Json& json, int32_t& value) { return ReadInteger(json, value); }
bool ReadValue(const Json& json, int64_t& value) { return ReadInteger(json, value); }
bool ReadValue(const Json& json, uint64_t& value) { return ReadInteger(json, value); }

bool ReadValue(const Json& json, bool& value) {
  if (!json.is_boolean()) return false;
  value = json.get<bool>();
  return true;
}

bool ReadValue(const Json& json, std::string& value) {
  if (!json.is_string()) return false;
  value = json.get<std::string>();
  return true;
}

bool ReadValue(const Json& json, double& value) {
  if (json.is_string()) {
    const std::string text = json.get<std::string>();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (text == "nan") value = std::numeric_limits<double>::quiet_NaN();
    if (text == "inf") value = kInfinity;
    if (text == "-inf") value = -kInfinity;
    return text == "nan" || text == "inf" || text == "-inf";
  }
  if (!json.is_number()) return false;
  value = json.get<double>();
  return true;
}

template <class Integer>
bool ReadValue(const Json& json, std::vector<Integer>& values) {
  if (!json.is_array()) return false;
  values.clear();
  for (const Json& element : json) {
    if (!ReadInteger(element, values.emplace_back())) return false;
  }
  return true;
}

}  // namespace

bool JsonReader::Has(const char* name) const { return ok() && Find(state_->open.back().json, name) != nullptr; }

template <class T>
void JsonReader::Read(const char* name, T& value, const char* expected) {
  if (!ok()) return;
  state_->open.back().read.insert(name);
  const Json* json = Find(state_->open.back().json, name);
  if (json == nullptr) return Fail(name, "is missing");
  if (!ReadValue(*json, value)) Fail(name, absl::StrCat("expected ", expected, ", found ", Shown(*json)));
}

void JsonReader::Field(const char* name, bool& value) { Read(name, value, "true or false"); }
void JsonReader::Field(const char* name, int32_t& value) { Read(name, value, "an integer of 32 bits"); }
void JsonReader::Field(const char* name, int64_t& value) { Read(name, value, "an integer of 64 bits"); }
void JsonReader::Field(const char* name, uint64_t& value) { Read(name, value, "a non-negative integer of 64 bits"); }
void JsonReader::Field(const char* name, double& value) { Read(name, value, "a number"); }
void JsonReader::Field(const char* name, std::string& value) { Read(name, value, "a string"); }
void JsonReader::Field(const char* name, std::vector<int32_t>& values) { Read(name, values, "a list of integers of 32 bits"); }
void JsonReader::Field(const char* name, std::vector<int64_t>& values) { Read(name, values, "a list of integers of 64 bits"); }

size_t JsonReader::IndexOfName(const char* name, std::span<const char* const> names) {
  std::string text;
  Field(name, text);
  if (!ok()) return 0;
  for (size_t i = 0; i < names.size(); ++i) {
    if (text == names[i]) return i;
  }
  Fail(name, absl::StrCat("'", text, "' is none of its values"));
  return 0;
}

void JsonReader::Begin(const char* name) {
  State::Level& parent = state_->open.back();
  parent.read.insert(name);
  const Json* json = ok() ? Find(parent.json, name) : nullptr;
  if (ok() && json == nullptr) Fail(name, "is missing");
  if (ok() && !json->is_object()) Fail(name, absl::StrCat("expected an object, found ", Shown(*json)));
  state_->open.push_back({ok() ? json : nullptr, absl::StrCat(parent.path, name, "."), {}});
}

size_t JsonReader::BeginArray(const char* name) {
  State::Level& parent = state_->open.back();
  parent.read.insert(name);
  const Json* json = ok() ? Find(parent.json, name) : nullptr;
  if (ok() && json == nullptr) Fail(name, "is missing");
  if (ok() && !json->is_array()) Fail(name, absl::StrCat("expected a list, found ", Shown(*json)));
  state_->open.push_back({ok() ? json : nullptr, absl::StrCat(parent.path, name), {}});
  return ok() ? json->size() : 0;
}

void JsonReader::BeginElement(size_t index) {
  const State::Level& list = state_->open.back();
  const Json* json = list.json == nullptr ? nullptr : &(*list.json)[index];
  const std::string path = absl::StrCat(list.path, "[", index, "]");
  if (ok() && !json->is_object()) Fail("", absl::StrCat("[", index, "]: expected an object, found ", Shown(*json)));
  state_->open.push_back({ok() ? json : nullptr, path + ".", {}});
}

void JsonReader::End() {
  if (state_->open.size() > 1) {
    const State::Level& level = state_->open.back();
    if (ok() && level.json->is_object()) {
      for (const auto& [name, value] : level.json->items()) {
        if (!level.read.contains(name)) Fail(name.c_str(), "is not a known field");
      }
    }
    state_->open.pop_back();
  }
}

void JsonReader::Fail(const char* name, const std::string& what) {
  if (!ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat(state_->what, ": field '", state_->open.back().path, name, "': ", what));
}

absl::Status JsonReader::Finish() {
  LYNX_CHECK(state_->open.size() == 1);
  if (ok()) {
    for (const auto& [name, value] : state_->root.items()) {
      if (!state_->open.back().read.contains(name)) Fail(name.c_str(), "is not a known field");
    }
  }
  return status_;
}

}  // namespace lynx
