#include "proto/convert_report.h"

#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <google/protobuf/reflection.h>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "proto/bounds.h"
#include "worker/contract/rank_report_fields.h"

namespace lynx {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Names are literals of rank_report_fields.h, so their addresses identify them.
const FieldDescriptor& FieldOf(const Message& message, const char* name) {
  static thread_local absl::flat_hash_map<std::pair<const Descriptor*, const char*>, const FieldDescriptor*> known;
  const FieldDescriptor*& field = known[{message.GetDescriptor(), name}];
  if (field == nullptr) field = message.GetDescriptor()->FindFieldByName(name);
  LYNX_CHECK(field != nullptr);  // otherwise cluster.proto lacks a field of rank_report_fields.h
  return *field;
}

int64_t& ValueOf(int64_t& value) { return value; }
int32_t& ValueOf(int32_t& value) { return value; }
int64_t& ValueOf(Bytes& value) { return value.value; }
int64_t& ValueOf(Nanos& value) { return value.value; }

class ReportWriter {
 public:
  explicit ReportWriter(Message& message) : message_(message), reflection_(*message.GetReflection()) {}

  template <class T>
  void Number(const char* name, T& value, FieldLimits) {
    Set(FieldOf(message_, name), ValueOf(value));
  }
  void Flag(const char* name, bool& value) { reflection_.SetBool(&message_, &FieldOf(message_, name), value); }
  void Real(const char* name, double& value) { reflection_.SetDouble(&message_, &FieldOf(message_, name), value); }
  void Finite(const char* name, double& value) { Real(name, value); }
  void Text(const char* name, std::string& value, size_t) {
    reflection_.SetString(&message_, &FieldOf(message_, name), std::move(value));
  }
  void Path(const char* name, std::string& value) { Text(name, value, 0); }
  void Cause(const char* name, FaultCause& value) {
    reflection_.SetEnumValue(&message_, &FieldOf(message_, name), static_cast<int>(value));
  }
  void Numbers(const char* name, std::vector<int32_t>& values, FieldLimits, FieldLimits) {
    for (const int32_t value : values) reflection_.AddInt32(&message_, &FieldOf(message_, name), value);
  }
  void Numbers(const char* name, std::vector<int64_t>& values, FieldLimits, FieldLimits) {
    auto field = reflection_.GetMutableRepeatedFieldRef<int64_t>(&message_, &FieldOf(message_, name));
    for (const int64_t value : values) field.Add(value);
  }
  template <class T>
  void Objects(const char* name, std::vector<T>& values, FieldLimits) {
    for (T& value : values) {
      ReportWriter element(*reflection_.AddMessage(&message_, &FieldOf(message_, name)));
      Describe(element, value);
    }
  }
  static constexpr bool Has(const char*) { return true; }

 private:
  void Set(const FieldDescriptor& field, int64_t value) { reflection_.SetInt64(&message_, &field, value); }
  void Set(const FieldDescriptor& field, int32_t value) { reflection_.SetInt32(&message_, &field, value); }

  Message& message_;
  const Reflection& reflection_;
};

// Paths of fields are only built for an error: the server reads a report of every rank in every step.
class ReportReader {
 public:
  // The report of a kind in the message at `path`. Keeps references to all three.
  ReportReader(const Message& message, const std::string& path, const std::string& kind)
      : message_(message), reflection_(*message.GetReflection()), path_([&] { return FieldPath(path, kind); }) {}

  template <class T>
  void Number(const char* name, T& value, FieldLimits limits) {
    Get(FieldOf(message_, name), ValueOf(value));
    const int64_t number = ValueOf(value);
    if (!Within(number, limits)) Fail(CheckRange(At(name), number, limits.least, limits.most));
  }
  void Flag(const char* name, bool& value) { value = reflection_.GetBool(message_, &FieldOf(message_, name)); }
  void Real(const char* name, double& value) { value = reflection_.GetDouble(message_, &FieldOf(message_, name)); }
  void Finite(const char* name, double& value) {
    Real(name, value);
    if (!std::isfinite(value)) Fail(CheckFinite(At(name), value));
  }
  void Text(const char* name, std::string& value, size_t most) {
    value = reflection_.GetString(message_, &FieldOf(message_, name));
    if (value.size() > most) Fail(CheckSize(At(name), value.size(), 0, most, "characters"));
  }
  void Path(const char* name, std::string& value) {
    value = reflection_.GetString(message_, &FieldOf(message_, name));
    Fail(CheckAbsolutePath(At(name), value));  // there are few checkpoints
  }
  void Cause(const char* name, FaultCause& value) {
    value = FaultCauseOfNumber(reflection_.GetEnumValue(message_, &FieldOf(message_, name)));
  }
  template <class T>
  void Numbers(const char* name, std::vector<T>& values, FieldLimits limits, FieldLimits counts) {
    const auto field = reflection_.GetRepeatedFieldRef<T>(message_, &FieldOf(message_, name));
    if (!CountFits(name, field.size(), counts)) return;
    values.assign(field.begin(), field.end());
    for (size_t i = 0; i < values.size(); ++i) {
      if (Within(values[i], limits)) continue;
      return Fail(CheckRange(FieldPath(path_(), name, static_cast<int64_t>(i)), values[i], limits.least, limits.most));
    }
  }
  template <class T>
  void Objects(const char* name, std::vector<T>& values, FieldLimits counts) {
    const FieldDescriptor& field = FieldOf(message_, name);
    const int size = reflection_.FieldSize(message_, &field);
    if (!CountFits(name, size, counts)) return;
    values.resize(static_cast<size_t>(size));
    for (int i = 0; i < size; ++i) {
      ReportReader element(reflection_.GetRepeatedMessage(message_, &field, i), [&] { return FieldPath(path_(), name, i); });
      Describe(element, values[static_cast<size_t>(i)]);
      Fail(element.status_);
    }
  }
  static constexpr bool Has(const char*) { return true; }

  template <class Report>
  absl::Status Finish(const Report& report) {
    LYNX_RETURN_IF_ERROR(status_);
    const std::optional<FieldMistake> mistake = MistakeBetweenFields(report);
    return mistake ? BadField(FieldPath(path_(), mistake->field), mistake->value, mistake->rule) : absl::OkStatus();
  }

 private:
  ReportReader(const Message& message, std::function<std::string()> path)
      : message_(message), reflection_(*message.GetReflection()), path_(std::move(path)) {}

  static bool Within(int64_t value, FieldLimits limits) { return value >= limits.least && value <= limits.most; }
  std::string At(const char* name) const { return FieldPath(path_(), name); }
  void Fail(const absl::Status& status) { status_.Update(status); }  // the first error counts
  bool CountFits(const char* name, int count, FieldLimits counts) {
    if (Within(count, counts)) return true;
    Fail(CheckSize(At(name), static_cast<size_t>(count), static_cast<size_t>(counts.least), static_cast<size_t>(counts.most),
                   "entries"));
    return false;
  }
  void Get(const FieldDescriptor& field, int64_t& value) { value = reflection_.GetInt64(message_, &field); }
  void Get(const FieldDescriptor& field, int32_t& value) { value = reflection_.GetInt32(message_, &field); }

  const Message& message_;
  const Reflection& reflection_;
  const std::function<std::string()> path_;
  absl::Status status_;
};

}  // namespace

void SetReport(const RankReport& report, v1::RankReport& message) {
  RankReport copy = report;
  std::visit(
      [&](auto& value) {
        ReportWriter writer(*message.GetReflection()->MutableMessage(&message, &FieldOf(message, ReportKind(value))));
        Describe(writer, value);
      },
      copy);
}

absl::StatusOr<RankReport> ReportFromProto(const v1::RankReport& message, const std::string& path) {
  const Reflection& reflection = *message.GetReflection();
  const FieldDescriptor* kind = reflection.GetOneofFieldDescriptor(message, message.GetDescriptor()->FindOneofByName("report"));
  std::optional<RankReport> report = kind == nullptr ? std::nullopt : ReportOfKind(kind->name());
  if (!report) return BadField(path, "empty or of an unknown kind", "must hold one report that this version knows");
  ReportReader reader(reflection.GetMessage(message, kind), path, kind->name());
  LYNX_RETURN_IF_ERROR(std::visit(
      [&](auto& value) {
        Describe(reader, value);
        return reader.Finish(value);
      },
      *report));
  return *std::move(report);
}

}  // namespace lynx
