// FieldName: the name of a struct's field. A struct that one process passes to another is described once, by a function
// `template <class Fields> void Describe(Fields& fields, T& value)`, which calls one function of `fields` for each field of the
// struct. All readers and writers of JSON and of protobuf messages use this description. planner/problem/job_spec_fields.h and
// worker/contract/rank_report_fields.h list the functions that `fields` must have.
//
// A Describe function does not depend on protobuf. Programs that must start quickly use messages without descriptors, and such
// a message cannot find a field by the text of its name. So LYNX_FIELD also puts code into the FieldName that calls the
// functions that protoc generates for the field. This code is a template and is compiled only where a reader or writer of
// messages uses it. If the message lacks the field, the compiler reports an error there. Thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_FIELD_H_
#define LYNX_PLANNER_PROBLEM_FIELD_H_

#include <cstdint>
#include <type_traits>
#include <utility>

namespace lynx {

enum class FieldAccess : uint8_t { kGet, kSet, kMutable, kAdd, kHas };
template <FieldAccess access>
using FieldAccessTag = std::integral_constant<FieldAccess, access>;

// A field's name. It converts to the name that the field has in files, so code that reads or writes JSON takes a `const char*`.
template <class Calls>
struct FieldName {
  const char* text;
  Calls calls;
  const char* text_in_files = text;

  constexpr FieldName(const char* name, Calls access) : text(name), calls(access) {}
  constexpr operator const char*() const { return text_in_files; }

  // Returns the name of the same field, with another name in files.
  constexpr FieldName InFiles(const char* other) const {
    FieldName name = *this;
    name.text_in_files = other;
    return name;
  }

  // Returns message.NAME(): a value, a message or a list.
  template <class Message>
  decltype(auto) Get(const Message& message) const {
    return calls(FieldAccessTag<FieldAccess::kGet>(), message);
  }
  // True if the message has the field set. Only fields with presence (messages, and members of a oneof) have this function.
  template <class Message>
  bool Has(const Message& message) const {
    return calls(FieldAccessTag<FieldAccess::kHas>(), message);
  }
  template <class Message, class Value>
  void Set(Message& message, Value&& value) const {
    calls(FieldAccessTag<FieldAccess::kSet>(), message, std::forward<Value>(value));
  }
  template <class Message>
  auto& Mutable(Message& message) const {
    return *calls(FieldAccessTag<FieldAccess::kMutable>(), message);
  }
  // Appends an empty message to a list of messages.
  template <class Message>
  auto& Add(Message& message) const {
    return *calls(FieldAccessTag<FieldAccess::kAdd>(), message);
  }
};

// Bounds of a number, or of a list's length. Both bounds are allowed values.
struct FieldLimits {
  int64_t least = 0;
  int64_t most = 0;

  constexpr bool Hold(int64_t value) const { return value >= least && value <= most; }
};

}  // namespace lynx

#define LYNX_FIELD(name)                                                                                    \
  ::lynx::FieldName(#name, [](auto access, auto& message, auto&&... value) -> decltype(auto) {              \
    using enum ::lynx::FieldAccess;                                                                         \
    if constexpr (access.value == kGet) return message.name();                                              \
    if constexpr (access.value == kSet) return message.set_##name(std::forward<decltype(value)>(value)...); \
    if constexpr (access.value == kMutable) return message.mutable_##name();                                \
    if constexpr (access.value == kAdd) return message.add_##name();                                        \
    if constexpr (access.value == kHas) return message.has_##name();                                        \
  })

#endif  // LYNX_PLANNER_PROBLEM_FIELD_H_
