#include "python/extension/message_values.h"

#include <google/protobuf/descriptor.h>

#include <string>

#include "absl/strings/ascii.h"
#include "common/utf8.h"

namespace lynx::python {
namespace {

namespace py = pybind11;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// "running" for JOB_STATE_RUNNING of JobState.
std::string WordOf(const EnumValueDescriptor& value) {
  std::string prefix;
  for (const char c : value.type()->name()) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  const std::string& name = value.name();
  const bool prefixed = name.starts_with(prefix + "_");
  return absl::AsciiStrToLower(prefixed ? name.substr(prefix.size() + 1) : name);
}

// A text field of the protocol is UTF-8 and becomes str; a bytes field becomes bytes.
py::object TextOf(const FieldDescriptor& field, const std::string& text) {
  if (field.type() == FieldDescriptor::TYPE_BYTES) return py::bytes(text);
  return py::str(VisibleText(text));
}

// The value at `index` of a repeated field.
py::object ItemOf(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return py::int_(reflection.GetRepeatedInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_INT64: return py::int_(reflection.GetRepeatedInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_UINT32: return py::int_(reflection.GetRepeatedUInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_UINT64: return py::int_(reflection.GetRepeatedUInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_DOUBLE: return py::float_(reflection.GetRepeatedDouble(message, &field, index));
    case FieldDescriptor::CPPTYPE_FLOAT: return py::float_(reflection.GetRepeatedFloat(message, &field, index));
    case FieldDescriptor::CPPTYPE_BOOL: return py::bool_(reflection.GetRepeatedBool(message, &field, index));
    case FieldDescriptor::CPPTYPE_ENUM: return py::str(WordOf(*reflection.GetRepeatedEnum(message, &field, index)));
    case FieldDescriptor::CPPTYPE_STRING: return TextOf(field, reflection.GetRepeatedString(message, &field, index));
    case FieldDescriptor::CPPTYPE_MESSAGE: return ValuesOf(reflection.GetRepeatedMessage(message, &field, index));
  }
  return py::none();
}

py::object ValueOf(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) {
    py::list items;
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) items.append(ItemOf(message, field, i));
    return items;
  }
  if (field.has_presence() && !reflection.HasField(message, &field)) return py::none();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return py::int_(reflection.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64: return py::int_(reflection.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_UINT32: return py::int_(reflection.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64: return py::int_(reflection.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE: return py::float_(reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_FLOAT: return py::float_(reflection.GetFloat(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL: return py::bool_(reflection.GetBool(message, &field));
    case FieldDescriptor::CPPTYPE_ENUM: return py::str(WordOf(*reflection.GetEnum(message, &field)));
    case FieldDescriptor::CPPTYPE_STRING: return TextOf(field, reflection.GetString(message, &field));
    case FieldDescriptor::CPPTYPE_MESSAGE: return ValuesOf(reflection.GetMessage(message, &field));
  }
  return py::none();
}

}  // namespace

py::dict ValuesOf(const Message& message) {
  py::dict values;
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) values[type.field(i)->name().c_str()] = ValueOf(message, *type.field(i));
  return values;
}

}  // namespace lynx::python
