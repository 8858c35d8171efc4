// See retry_later.h.
#include "server/wire/retry_later.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lynx::server {
namespace {

constexpr char kRetryDelay[] = "lynx/retry-delay-ns";
constexpr Nanos kOverloadDelay{1'000'000'000};

}  // namespace

absl::Status RetryLater(const std::string& message, Nanos delay) {
  absl::Status status = absl::ResourceExhaustedError(message);
  status.SetPayload(kRetryDelay, absl::Cord(absl::StrCat(delay.value)));
  return status;
}

std::optional<Nanos> RetryDelayOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRetryDelay);
  int64_t nanos = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &nanos)) return std::nullopt;
  return Nanos(nanos);
}

absl::Status Overloaded() {
  return RetryLater("the server's queue is full or it is stopping; try again in a moment", kOverloadDelay);
}

}  // namespace lynx::server
