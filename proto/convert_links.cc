#include "proto/convert_links.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "proto/bounds.h"

namespace lynx {

v1::LinkUse ToProto(const LinkUse& link) {
  v1::LinkUse message;
  message.set_peer(link.peer);
  message.set_bytes(link.bytes);
  message.set_busy_ns(link.busy.value);
  return message;
}

absl::StatusOr<std::vector<LinkUse>> LinkUsesFromProto(const google::protobuf::RepeatedPtrField<v1::LinkUse>& messages,
                                                       const std::string& path) {
  LYNX_RETURN_IF_ERROR(CheckSize(path, static_cast<size_t>(messages.size()), 0, kMaxLinkUses, "entries"));
  std::vector<LinkUse> links;
  for (int i = 0; i < messages.size(); ++i) {
    const v1::LinkUse& m = messages[i];
    const std::string own = FieldPath("", path, i);
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(own, "peer"), m.peer(), 0, kMaxWireRanks - 1));
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(own, "bytes"), m.bytes(), 0, kMaxWireBytes));
    LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(own, "busy_ns"), m.busy_ns(), 0, kMaxWireNanos));
    if (!links.empty() && m.peer() <= links.back().peer) {
      return BadField(FieldPath(own, "peer"), absl::StrCat(m.peer()), absl::StrCat("must be above that before it, ", links.back().peer));
    }
    links.push_back({.peer = m.peer(), .bytes = m.bytes(), .busy = Nanos(m.busy_ns())});
  }
  return links;
}

}  // namespace lynx
