// See reason_text.h.
#include "server/controller/state/reason_text.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace lynx::server {
namespace {

constexpr size_t kMaxNames = 16;

}  // namespace

std::string Plural(int64_t count, const std::string& one) { return absl::StrCat(count, " ", one, count == 1 ? "" : "s"); }

std::string CountText(int32_t count, DeviceKind kind) { return Plural(count, kind == DeviceKind::kCuda ? "GPU" : "device"); }

std::string NodeNames(const std::vector<DeviceRef>& devices) {
  std::vector<NodeId> nodes;
  for (const DeviceRef& device : devices) nodes.push_back(device.node);
  return NodeNames(nodes);
}

std::string NodeNames(const std::vector<NodeId>& nodes) {
  const std::set<NodeId> names(nodes.begin(), nodes.end());
  const size_t shown = names.size() > kMaxNames ? kMaxNames - 1 : names.size();
  std::string text;
  size_t count = 0;
  for (auto name = names.begin(); count < shown; ++name, ++count) absl::StrAppend(&text, text.empty() ? "" : ", ", name->value);
  if (shown < names.size()) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

int32_t CountDevices(const std::vector<NodeDevices>& nodes) {
  int32_t count = 0;
  for (const NodeDevices& node : nodes) count += static_cast<int32_t>(node.free.size());
  return count;
}

}  // namespace lynx::server
