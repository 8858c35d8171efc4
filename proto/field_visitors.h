// Visitors that read and write protobuf messages with the Describe function of a struct. planner/problem/job_spec_fields.h,
// worker/contract/rank_report_fields.h and rank_config_fields.h have these Describe functions and list the visitor functions
// that they call. A described field must have the same name and exactly the same type as a field of the message.
//
// The number of an enum's value in a message is its number in the struct's enum; NumberOf has the exceptions. The functions are
// thread-safe, but the objects are not.
#ifndef LYNX_PROTO_FIELD_VISITORS_H_
#define LYNX_PROTO_FIELD_VISITORS_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/enum_names.h"
#include "common/fault_cause.h"
#include "planner/problem/field.h"
#include "planner/problem/job_spec.h"
#include "proto/bounds.h"

namespace lynx {

// The number of an enum's value in messages. If the message's enum has a value "unspecified", this value has the number 0 and
// is refused, and the numbers of all other values are larger by 1.
template <class Enum>
constexpr int NumberOf(Enum value) {
  constexpr bool unspecified =
      std::is_same_v<Enum, RecomputeMode> || std::is_same_v<Enum, DataKind> || std::is_same_v<Enum, LrSchedule>;
  return static_cast<int>(value) + (unspecified ? 1 : 0);
}
// ScheduleKind and the message's enum list kZeroBubbleV and kChimera in opposite orders, so their numbers are exchanged.
constexpr int NumberOf(ScheduleKind kind) {
  if (kind == ScheduleKind::kZeroBubbleV) return static_cast<int>(ScheduleKind::kChimera);
  if (kind == ScheduleKind::kChimera) return static_cast<int>(ScheduleKind::kZeroBubbleV);
  return static_cast<int>(kind);
}

// Sets `value` to the value with this number. Returns false if no value has this number.
template <class Enum>
bool EnumOfNumber(int number, Enum& value) {
  const int count = static_cast<int>(kEnumNames<Enum>.size());
  for (int i = 0; i < count; ++i) {
    if (NumberOf(static_cast<Enum>(i)) != number) continue;
    value = static_cast<Enum>(i);
    return true;
  }
  return false;
}

// Returns an error such as "... is 9: must be one of any (0), cpu (1), cuda (2)". It lists the choices whose numbers are
// `least` or more.
template <class Enum>
absl::Status BadNumber(const std::string& path, int number, int least = 0) {
  // If there is no "unspecified", the number `most` does not exist, and the loop skips it.
  const int most = static_cast<int>(kEnumNames<Enum>.size());
  std::string choices;
  for (int choice = least; choice <= most; ++choice) {
    Enum value;
    if (!EnumOfNumber(choice, value)) continue;
    const char* name = EnumName(value);
    absl::StrAppend(&choices, choices.empty() ? "" : ", ", name, " (", choice, ")");
  }
  return BadField(path, absl::StrCat(number), absl::StrCat("must be one of ", choices));
}

namespace internal {

// Returns the number in a Bytes, a Nanos or an id. Returns any other value without a change.
template <class T>
auto& RawValue(T& value) {
  if constexpr (requires { value.value; }) {
    return value.value;
  } else {
    return value;
  }
}

}  // namespace internal

template <class Message>
class MessageWriter {
 public:
  static constexpr bool kForRanks = false;

  explicit MessageWriter(Message& message) : message_(message) {}

  template <class Name, class T>
  void Field(const Name& name, T& value) {
    auto& raw = internal::RawValue(value);
    using Raw = std::remove_reference_t<decltype(raw)>;
    static_assert(std::is_same_v<std::remove_cvref_t<decltype(name.Get(message_))>, Raw>, "the setter would convert the value");
    name.Set(message_, raw);
  }
  template <class Name, class T>
  void Field(const Name& name, std::vector<T>& values) {
    name.Mutable(message_).Add(values.begin(), values.end());
  }
  template <class Name, class T>
  void FieldOrDefault(const Name& name, T& value) {
    Field(name, value);
  }
  template <class Name, class T>
  void OptionalField(const Name& name, T& value, const T& standard) {
    if (value != standard) Field(name, value);
  }
  template <class Name, class Enum>
  void Named(const Name& name, Enum& value) {
    name.Set(message_, static_cast<decltype(name.Get(message_))>(NumberOf(value)));
  }
  template <class Name, class Enum>
  void NamedOrDefault(const Name& name, Enum& value) {
    Named(name, value);
  }
  template <class Name, class Enum>
  void NamedList(const Name& name, std::vector<Enum>& values) {
    for (const Enum value : values) name.Mutable(message_).Add(NumberOf(value));
  }
  template <class Name, class T>
  void Object(const Name& name, T& value) {
    MessageWriter<std::remove_reference_t<decltype(name.Mutable(message_))>> part(name.Mutable(message_));
    Describe(part, value);
  }
  template <class Name, class T>
  void OptionalObject(const Name& name, T& value) {
    if (value != T()) Object(name, value);
  }
  template <class Name, class T>
  void Objects(const Name& name, std::vector<T>& values) {
    for (T& value : values) {
      MessageWriter<std::remove_reference_t<decltype(name.Add(message_))>> element(name.Add(message_));
      Describe(element, value);
    }
  }
  template <class Name>
  static constexpr bool Chosen(const Name&, bool chosen) {
    return chosen;
  }

  template <class T>
  void Part(const char*, T& value) {
    Describe(*this, value);
  }
  template <class Name, class T>
  void Number(const Name& name, T& value, FieldLimits) {
    Field(name, value);
  }
  template <class Name>
  void Finite(const Name& name, double& value) {
    Field(name, value);
  }
  template <class Name>
  void Text(const Name& name, std::string& value, size_t) {
    Field(name, value);
  }
  template <class Name>
  void Path(const Name& name, std::string& value) {
    Field(name, value);
  }
  template <class Name>
  void Cause(const Name& name, FaultCause& value) {
    Named(name, value);
  }
  template <class Name, class T>
  void Numbers(const Name& name, std::vector<T>& values, FieldLimits, FieldLimits) {
    Field(name, values);
  }
  template <class Name, class T>
  void Objects(const Name& name, std::vector<T>& values, FieldLimits) {
    Objects(name, values);
  }
  template <class Name>
  static constexpr bool Has(const Name&) {
    return true;
  }

 private:
  Message& message_;
};

// How an error names fields. kMessage: as in the message ("on_failure"). kJobFile: as in the job file ("onFailure").
enum class PathNames : uint8_t { kMessage, kJobFile };
std::string NameInPath(const char* name, PathNames names);

// A visitor that reads a message. It builds the path of a field only if there is an error.
template <class Message>
class MessageReader {
 public:
  static constexpr bool kForRanks = false;

  // `path` returns the path of the message. The function must stay valid as long as the reader exists.
  MessageReader(const Message& message, absl::FunctionRef<std::string()> path, PathNames names = PathNames::kMessage)
      : message_(message), path_(path), names_(names) {}

  template <class Name, class T>
  void Field(const Name& name, T& value) {
    auto& raw = internal::RawValue(value);
    using Raw = std::remove_reference_t<decltype(raw)>;
    static_assert(std::is_same_v<std::remove_cvref_t<decltype(name.Get(message_))>, Raw>, "the value would be converted");
    raw = name.Get(message_);
  }
  template <class Name, class T>
  void Field(const Name& name, std::vector<T>& values) {
    values.assign(name.Get(message_).begin(), name.Get(message_).end());
  }
  template <class Name, class T>
  void FieldOrDefault(const Name& name, T& value) {
    if (name.Get(message_) != std::remove_cvref_t<decltype(name.Get(message_))>()) Field(name, value);
  }
  template <class Name, class T>
  void OptionalField(const Name& name, T& value, const T& standard) {
    value = standard;
    FieldOrDefault(name, value);
  }
  template <class Name, class Enum>
  void Named(const Name& name, Enum& value) {
    const int number = name.Get(message_);
    if (!EnumOfNumber(number, value)) Fail(BadNumber<Enum>(At(name), number));
  }
  template <class Name, class Enum>
  void NamedOrDefault(const Name& name, Enum& value) {
    const int number = name.Get(message_);
    if (number == NumberOf(Enum::kAuto)) return;
    if (!EnumOfNumber(number, value)) Fail(BadNumber<Enum>(At(name), number, NumberOf(Enum::kAuto) + 1));
  }
  template <class Name, class Enum>
  void NamedList(const Name& name, std::vector<Enum>& values) {
    const auto& numbers = name.Get(message_);
    if (!CountFits(name, numbers.size(), {0, static_cast<int64_t>(kEnumNames<Enum>.size())})) return;
    for (int i = 0; i < numbers.size(); ++i) {
      if (!EnumOfNumber(numbers[i], values.emplace_back())) return Fail(BadNumber<Enum>(At(name, i), numbers[i]));
    }
  }
  // An absent message is read like an empty message.
  template <class Name, class T>
  void Object(const Name& name, T& value) {
    const auto path = [&] { return At(name); };
    MessageReader<std::remove_cvref_t<decltype(name.Get(message_))>> part(name.Get(message_), path, names_);
    Describe(part, value);
    Fail(part.status());
  }
  template <class Name, class T>
  void OptionalObject(const Name& name, T& value) {
    if (name.Has(message_)) Object(name, value);
  }
  template <class Name, class T>
  void Objects(const Name& name, std::vector<T>& values) {
    const auto& elements = name.Get(message_);
    values.resize(static_cast<size_t>(elements.size()));
    for (int i = 0; i < elements.size(); ++i) {
      const auto path = [&] { return At(name, i); };
      MessageReader<std::remove_cvref_t<decltype(elements[i])>> element(elements[i], path, names_);
      Describe(element, values[static_cast<size_t>(i)]);
      Fail(element.status());
    }
  }
  template <class Name>
  bool Chosen(const Name& name, bool) {
    return name.Has(message_);
  }

  template <class T>
  void Part(const char*, T& value) {
    Describe(*this, value);
  }
  template <class Name, class T>
  void Number(const Name& name, T& value, FieldLimits limits) {
    Field(name, value);
    const int64_t number = internal::RawValue(value);
    if (!limits.Hold(number)) Fail(CheckRange(At(name), number, limits.least, limits.most));
  }
  template <class Name>
  void Finite(const Name& name, double& value) {
    Field(name, value);
    if (!std::isfinite(value)) Fail(CheckFinite(At(name), value));
  }
  template <class Name>
  void Text(const Name& name, std::string& value, size_t most) {
    Field(name, value);
    if (value.size() > most) Fail(CheckSize(At(name), value.size(), 0, most, "characters"));
  }
  template <class Name>
  void Path(const Name& name, std::string& value) {
    Field(name, value);
    Fail(CheckAbsolutePath(At(name), value));  // builds the path even if there is no error; only few messages have such a field
  }
  template <class Name>
  void Cause(const Name& name, FaultCause& value) {
    value = FaultCauseOfNumber(name.Get(message_));
  }
  template <class Name, class T>
  void Numbers(const Name& name, std::vector<T>& values, FieldLimits limits, FieldLimits counts) {
    if (!CountFits(name, name.Get(message_).size(), counts)) return;
    Field(name, values);
    for (size_t i = 0; i < values.size(); ++i) {
      if (limits.Hold(values[i])) continue;
      return Fail(CheckRange(At(name, static_cast<int64_t>(i)), values[i], limits.least, limits.most));
    }
  }
  template <class Name, class T>
  void Objects(const Name& name, std::vector<T>& values, FieldLimits counts) {
    if (CountFits(name, name.Get(message_).size(), counts)) Objects(name, values);
  }
  template <class Name>
  static constexpr bool Has(const Name&) {
    return true;
  }

  void Fail(const absl::Status& status) { status_.Update(status); }  // keeps the first error
  const absl::Status& status() const { return status_; }

 private:
  template <class Name>
  std::string At(const Name& name) const {
    return FieldPath(path_(), NameInPath(name.text, names_));
  }
  template <class Name>
  std::string At(const Name& name, int64_t index) const {
    return FieldPath(path_(), NameInPath(name.text, names_), index);
  }
  template <class Name>
  bool CountFits(const Name& name, int count, FieldLimits counts) {
    if (counts.Hold(count)) return true;
    Fail(CheckSize(At(name), static_cast<size_t>(count), static_cast<size_t>(counts.least), static_cast<size_t>(counts.most),
                   "entries"));
    return false;
  }

  const Message& message_;
  const absl::FunctionRef<std::string()> path_;
  const PathNames names_;
  absl::Status status_;
};

}  // namespace lynx

#endif  // LYNX_PROTO_FIELD_VISITORS_H_
