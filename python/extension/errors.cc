#include "python/extension/errors.h"

#include <pybind11/pybind11.h>

#include <string>

#include "common/utf8.h"

namespace lynx::python {
namespace {

namespace py = pybind11;

// Throws the exception that the function of lynx._errors returns.
template <class... Arguments>
[[noreturn]] void Throw(const char* function, Arguments&&... arguments) {
  const py::object made = py::module_::import("lynx._errors").attr(function)(std::forward<Arguments>(arguments)...);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  throw py::error_already_set();
}

}  // namespace

void Raise(const absl::Status& status) {
  Throw("error_of", absl::StatusCodeToString(status.code()), VisibleText(std::string(status.message())));
}

void RaiseInfeasible(const Infeasible& infeasible) {
  Throw("infeasible_of", infeasible.reason, infeasible.suggestion, infeasible.stage, infeasible.needed.value,
        infeasible.limit.value);
}

}  // namespace lynx::python
