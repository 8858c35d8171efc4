// JSON field by field, from one description of a struct for both directions: a function
// `template <class Fields> void Describe(Fields& fields, T& value)` names every field once; JsonWriter prints them
// and JsonReader reads them back. Reading is strict: every field must be there, have the right type and range, and no
// other may be there; the error names the field by its path. Numbers survive exactly; those that are not finite are
// strings.
//
// Objects are used by one thread.
#ifndef LYNX_WORKER_CONTRACT_JSON_FIELDS_H_
#define LYNX_WORKER_CONTRACT_JSON_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/units.h"

namespace lynx {

class JsonWriter {
 public:
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

  // A value that stands in the text under a name. The functions have the form of planner/problem/job_spec.h.
  template <class Enum>
  void Named(const char* name, Enum& value, const char* (*name_of)(Enum), bool (*)(const std::string&, Enum&)) {
    std::string text = name_of(value);
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
  std::string Line() const;      // without newline
  std::string Indented() const;  // with a final newline

 private:
  struct State;
  void Begin(const char* name);  // "" in an array
  void BeginArray(const char* name);
  void End();

  std::unique_ptr<State> state_;
};

class JsonReader {
 public:
  // `what` begins every message: "rank configuration".
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
  void Named(const char* name, Enum& value, const char* (*)(Enum), bool (*parse)(const std::string&, Enum&)) {
    std::string text;
    Field(name, text);
    if (ok() && !parse(text, value)) Fail(name, "'" + text + "' is none of its values");
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

  // For a field that writers of an earlier release leave out, and that keeps its default then.
  bool Has(const char* name) const;
  // Notes an error with a field of the present object. The first one counts.
  void Fail(const char* name, const std::string& what);
  bool ok() const { return status_.ok(); }
  // Once, after all fields: InvalidArgument with the first error.
  absl::Status Finish();

 private:
  struct State;
  template <class T>
  void Read(const char* name, T& value, const char* expected);
  void Begin(const char* name);
  void BeginElement(size_t index);
  size_t BeginArray(const char* name);
  void End();

  std::unique_ptr<State> state_;
  absl::Status status_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_JSON_FIELDS_H_
