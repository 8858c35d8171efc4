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

struct UnaryAnswer {
  // The message of an answer with status OK. nullopt: the address is not numeric, or no such answer came within the timeout.
  // Then the result does not say why, nor whether the server has carried out the call. A caller that needs to know must ask
  // again with the gRPC library.
  std::optional<std::string> message;
  bool ended = false;  // the server has ended the call; false: there is no server, or it does not answer, or was lost
  // The server stands by (common/standby.h) and has not read the call: the leader that it named, "" if none.
  std::optional<std::string> leader = {};
};

// Makes the call. `method`: "/lynx.v1.Jobs/SubmitJob". `message`: the serialized request. Gives up if the server has sent
// nothing after `silence`, or has not answered after `timeout`. Use it only for calls that can be made twice.
UnaryAnswer CallUnary(const std::string& address, const std::string& method, const std::string& message, Nanos timeout,
                      Nanos silence);

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECT_UNARY_CALL_H_
