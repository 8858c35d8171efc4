// Makes one unary gRPC call over a connection of its own. It does not use the gRPC library, because starting and ending the
// library takes longer than the call. Plain text only, to a numeric address. Thread-safe.
#ifndef LYNX_CLI_CONNECT_UNARY_CALL_H_
#define LYNX_CLI_CONNECT_UNARY_CALL_H_

#include <optional>
#include <string>

#include "common/units.h"

namespace lynx::cli {

// True if CallUnary can call the address: it is numeric and has a port.
bool IsCalledUnary(const std::string& address);

// Returns the message of the answer. `method`: "/lynx.v1.Jobs/SubmitJob". `message`: the serialized request.
//
// nullopt: the address is not numeric, or no answer with status OK came within `timeout`. The result does not say why, nor
// whether the server has carried out the call. A caller that needs to know must ask again with the gRPC library. So use
// CallUnary only for calls that can be made twice.
std::optional<std::string> CallUnary(const std::string& address, const std::string& method, const std::string& message,
                                     Nanos timeout);

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECT_UNARY_CALL_H_
