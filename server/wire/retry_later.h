// Refusals that a later call may not meet: ResourceExhausted with the time after which to try again, which travels to the
// client as google.rpc.RetryInfo (server/wire/grpc_status.h). Pure.
#ifndef LYNX_SERVER_WIRE_RETRY_LATER_H_
#define LYNX_SERVER_WIRE_RETRY_LATER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/units.h"

namespace lynx {

absl::Status RetryLater(const std::string& message, Nanos delay);
// nullopt: the status says nothing of it.
std::optional<Nanos> RetryDelayOf(const absl::Status& status);

// The loop takes no more.
absl::Status Overloaded();

}  // namespace lynx

#endif  // LYNX_SERVER_WIRE_RETRY_LATER_H_
