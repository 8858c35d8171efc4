// See caller.h.
#include "server/access/caller.h"

#include "absl/strings/str_cat.h"

namespace lynx::server {

std::string CallerText(const Caller& caller) {
  switch (caller.kind) {
    case Caller::Kind::kNobody: return "";
    case Caller::Kind::kLocal: return kLocalUser;
    case Caller::Kind::kUser: return caller.name;
    case Caller::Kind::kNode: return absl::StrCat("node/", caller.name);
  }
  return "";
}

}  // namespace lynx::server
