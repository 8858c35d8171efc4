// Reads and writes JSON field by field, with one description of a struct for both directions: a function `template <class
// Fields> void Describe(Fields& fields, T& value)` names every field once; JsonWriter prints the fields and JsonReader reads
// them back. Reading is strict: every field must be there and have the right type and range, and no other field may be there;
// the error names the field by its path. Numbers are preserved exactly; numbers that are not finite are written as strings.
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

  // An enum that is written as text. The functions have the form of those in planner/problem/job_spec.h.
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
  void Begin(const char* name);  // `name` is "" in an array
  void BeginArray(const char* name);
  void End();

  std::unique_ptr<State> state_;
};

class JsonReader {
 public:
  // `what` is the beginning of every error message: "rank configuration".
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

  // Whether the field is there. For a field that an earlier release does not write; the member then keeps its default.
  bool Has(const char* name) const;
  // Records an error in a field of the current object. Only the first error counts.
  void Fail(const char* name, const std::string& what);
  bool ok() const { return status_.ok(); }
  // Call it once, after all fields: InvalidArgument with the first error.
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
