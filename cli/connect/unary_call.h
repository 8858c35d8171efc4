// One unary gRPC call over a connection of its own, without the gRPC library, whose start and end take longer than such a call.
// Plain text, to an address in numbers. Thread-safe.
#ifndef LYNX_CLI_CONNECT_UNARY_CALL_H_
#define LYNX_CLI_CONNECT_UNARY_CALL_H_

#include <optional>
#include <string>

#include "common/units.h"

namespace lynx {

// Whether CallUnary calls it: an address in numbers, with a port.
bool IsCalledUnary(const std::string& address);

// The message of the answer. `method`: "/lynx.v1.Jobs/SubmitJob"; `message`: of the request, serialized.
//
// nullopt: the address is none in numbers, or no answer with status OK came within `timeout`. It is not told why, nor whether
// the server has carried the call out: whoever needs to know asks again with the gRPC library, and only what may be asked twice
// is to be asked in this way.
std::optional<std::string> CallUnary(const std::string& address, const std::string& method, const std::string& message,
                                     Nanos timeout);

}  // namespace lynx

#endif  // LYNX_CLI_CONNECT_UNARY_CALL_H_
