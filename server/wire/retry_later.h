// Errors that tell the caller to try again later: ResourceExhausted with a delay. The client gets the delay as
// google.rpc.RetryInfo (server/wire/grpc_status.h). Pure.
#ifndef LYNX_SERVER_WIRE_RETRY_LATER_H_
#define LYNX_SERVER_WIRE_RETRY_LATER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/units.h"

namespace lynx::server {

absl::Status RetryLater(const std::string& message, Nanos delay);
// Returns nullopt if the status has no delay.
std::optional<Nanos> RetryDelayOf(const absl::Status& status);

// The error when the event loop accepts no more events.
absl::Status Overloaded();

}  // namespace lynx::server

#endif  // LYNX_SERVER_WIRE_RETRY_LATER_H_
