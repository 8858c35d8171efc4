// Errors of the extension: a Status becomes an exception of the package. The functions need the interpreter's lock.
#ifndef LYNX_PYTHON_EXTENSION_ERRORS_H_
#define LYNX_PYTHON_EXTENSION_ERRORS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/plan/plan.h"

namespace lynx::python {

// Throws the lynx.Error that lynx/_errors.py makes of the status. `status` must not be OK.
[[noreturn]] void Raise(const absl::Status& status);
// Throws the lynx.Infeasible for the result.
[[noreturn]] void RaiseInfeasible(const Infeasible& infeasible);

// Returns the value, or throws the error.
template <class T>
T Take(absl::StatusOr<T> result) {
  if (!result.ok()) Raise(result.status());
  return *std::move(result);
}

}  // namespace lynx::python

#endif  // LYNX_PYTHON_EXTENSION_ERRORS_H_
