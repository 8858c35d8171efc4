// Conversion of LinkUse. As proto/convert.h. Pure; thread-safe.
#ifndef LYNX_PROTO_CONVERT_LINKS_H_
#define LYNX_PROTO_CONVERT_LINKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/link_use.h"
#include "lynx/v1/cluster.pb.h"

namespace lynx {

v1::LinkUse ToProto(const LinkUse& link);
// Of one step: at most kMaxLinkUses, ascending by peer.
absl::StatusOr<std::vector<LinkUse>> LinkUsesFromProto(const google::protobuf::RepeatedPtrField<v1::LinkUse>& messages,
                                                       const std::string& path);

}  // namespace lynx

#endif  // LYNX_PROTO_CONVERT_LINKS_H_
