// See gate.h.
#include "server/access/gate.h"

#include "absl/strings/str_cat.h"
#include "common/standby.h"

namespace lynx::server {

void Gate::SetLeader(const std::string& address) {
  const std::lock_guard lock(mutex_);
  leader_ = address;
}

std::string Gate::Text() const {
  const std::lock_guard lock(mutex_);
  return leader_.empty() ? "this server stands by; no server leads at present"
                         : absl::StrCat("this server stands by; the server at ", leader_, " leads");
}

absl::Status Gate::Refuse(grpc::CallbackServerContext& context) const {
  context.AddTrailingMetadata(kStandbyKey, kStandbyValue);
  {
    const std::lock_guard lock(mutex_);
    if (!leader_.empty()) context.AddTrailingMetadata(kLeaderKey, leader_);
  }
  return absl::UnavailableError(Text());
}

absl::Status Gate::LostMeanwhile() {
  return absl::UnavailableError(
      "this server stopped leading while it answered the call, which may have been carried out: ask the server that leads");
}

}  // namespace lynx::server
