// Reads and writes JSON field by field. One description of a struct serves both directions. It is a function `template <class
// Fields> void Describe(Fields& fields, T& value)` that names every field once. JsonWriter prints the fields, and JsonReader
// reads them back. Reading is strict: every field must exist and have the right type and range, and no other field may exist.
// An error names the field by its path. Numbers are preserved exactly. Numbers that are not finite are written as strings.
//
// Only one thread may use an object.
#ifndef LYNX_WORKER_CONTRACT_JSON_FIELDS_H_
#define LYNX_WORKER_CONTRACT_JSON_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/enum_names.h"
#include "common/units.h"
#include "planner/problem/field.h"

namespace lynx {

// Some functions that a description calls, such as FieldOrDefault, differ from Field only for messages
// (planner/problem/job_spec_fields.h). In JSON they all read or write an ordinary field. Limits are not checked here: the
// reader of the values checks them afterwards (worker/contract/rank_report_fields.h).
template <class Json>
class JsonDescription {
 public:
  static constexpr bool kForRanks = true;

  template <class T>
  void FieldOrDefault(const char* name, T& value) {
    json().Field(name, value);
  }
  template <class T>
  void OptionalField(const char* name, T& value, const T&) {
    json().Field(name, value);
  }
  template <class T>
  void OptionalObject(const char* name, T& value) {
    json().Object(name, value);
  }
  template <class Enum>
  void NamedOrDefault(const char* name, Enum& value) {
    json().Named(name, value);
  }

  template <class T>
  void Part(const char* name, T& value) {
    json().Object(name, value);
  }
  template <class T>
  void Number(const char* name, T& value, FieldLimits) {
    json().Field(name, value);
  }
  void Finite(const char* name, double& value) { json().Field(name, value); }
  void Text(const char* name, std::string& value, size_t) { json().Field(name, value); }
  void Path(const char* name, std::string& value) { json().Field(name, value); }
  template <class Enum>
  void Cause(const char* name, Enum& value) {
    json().Named(name, value);
  }
  template <class T>
  void Numbers(const char* name, std::vector<T>& values, FieldLimits, FieldLimits) {
    json().Field(name, values);
  }
  template <class T>
  void Objects(const char* name, std::vector<T>& values, FieldLimits) {
    json().Objects(name, values);
  }

 private:
  Json& json() { return static_cast<Json&>(*this); }
};

class JsonWriter : public JsonDescription<JsonWriter> {
 public:
  using JsonDescription::Objects;

  JsonWriter();
  ~JsonWriter();

  void Field(const char* name, bool& value);
  void Field(const char* name, int32_t& value);
  void Field(const char* name, int64_t& value);
  void Field(const char* name, uint64_t& value);
  void Field(const char* name, double& value);
  void Field(const char* name, std::string& value);
  void Field(const char* name, std::vector<int32_t>& values);
  void Field(const char* name, std::vector<int64_t>& values);
  void Field(const char* name, Bytes& value) { Field(name, value.value); }
  void Field(const char* name, Nanos& value) { Field(name, value.value); }

  template <class Enum>
  void Named(const char* name, Enum& value) {
    std::string text = EnumName(value);
    Field(name, text);
  }
  template <class T>
  void Object(const char* name, T& value) {
    Begin(name);
    Describe(*this, value);
    End();
  }
  template <class T>
  void Objects(const char* name, std::vector<T>& values) {
    BeginArray(name);
    for (T& value : values) {
      Begin("");
      Describe(*this, value);
      End();
    }
    End();
  }

  static constexpr bool Has(const char*) { return true; }
  std::string Line() const;      // without a newline
  std::string Indented() const;  // with a newline at the end

 private:
  struct State;
  void Begin(const char* name);  // `name` is "" in a list
  void BeginArray(const char* name);
  void End();

  std::unique_ptr<State> state_;
};

class JsonReader : public JsonDescription<JsonReader> {
 public:
  using JsonDescription::Objects;

  // `what` is the beginning of every error message, such as "rank configuration".
  JsonReader(const std::string& text, const std::string& what);
  ~JsonReader();

  void Field(const char* name, bool& value);
  void Field(const char* name, int32_t& value);
  void Field(const char* name, int64_t& value);
  void Field(const char* name, uint64_t& value);
  void Field(const char* name, double& value);
  void Field(const char* name, std::string& value);
  void Field(const char* name, std::vector<int32_t>& values);
  void Field(const char* name, std::vector<int64_t>& values);
  void Field(const char* name, Bytes& value) { Field(name, value.value); }
  void Field(const char* name, Nanos& value) { Field(name, value.value); }

  template <class Enum>
  void Named(const char* name, Enum& value) {
    value = static_cast<Enum>(IndexOfName(name, kEnumNames<Enum>));
  }
  template <class T>
  void Object(const char* name, T& value) {
    Begin(name);
    Describe(*this, value);
    End();
  }
  template <class T>
  void Objects(const char* name, std::vector<T>& values) {
    values.resize(BeginArray(name));
    for (size_t i = 0; i < values.size(); ++i) {
      BeginElement(i);
      Describe(*this, values[i]);
      End();
    }
    End();
  }

  // True if the field exists. Use this function for a field that an earlier release does not write. If the field is missing,
  // the member keeps its default value.
  bool Has(const char* name) const;
  // Records an error in a field of the current object. Only the first error is kept.
  void Fail(const char* name, const std::string& what);
  bool ok() const { return status_.ok(); }
  // Call it once, after all fields. Returns InvalidArgument with the first error, if there was one.
  absl::Status Finish();

 private:
  struct State;
  template <class T>
  void Read(const char* name, T& value, const char* expected);
  size_t IndexOfName(const char* name, std::span<const char* const> names);  // 0 after an error
  void Begin(const char* name);
  void BeginElement(size_t index);
  size_t BeginArray(const char* name);
  void End();

  std::unique_ptr<State> state_;
  absl::Status status_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_JSON_FIELDS_H_
