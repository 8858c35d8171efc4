// Messages of the protocol as values of Python: a message is a dict with the fields' names as they stand in the protocol,
// numbers are numbers, and values of enums are lower-case words without the enum's name ("running"). A message that is not set
// is None.
#ifndef LYNX_PYTHON_EXTENSION_MESSAGE_VALUES_H_
#define LYNX_PYTHON_EXTENSION_MESSAGE_VALUES_H_

#include <google/protobuf/message.h>
#include <pybind11/pybind11.h>

namespace lynx::python {

pybind11::dict ValuesOf(const google::protobuf::Message& message);

}  // namespace lynx::python

#endif  // LYNX_PYTHON_EXTENSION_MESSAGE_VALUES_H_
