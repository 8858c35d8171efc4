#include "worker/backend/host_view.h"

#include "common/status.h"

namespace lynx::worker {

HostView::HostView(std::span<float> device, Backend& backend) : device_(device), backend_(backend) {
  if (!backend.host_addressable()) copy_.resize(device.size());
}

absl::StatusOr<HostView> HostView::Fetch(std::span<float> device, Backend& backend) {
  HostView view(device, backend);
  if (view.copy_.empty()) return view;
  backend.Copy(device.data(), Bytes(static_cast<int64_t>(device.size_bytes())), view.copy_.data());
  LYNX_RETURN_IF_ERROR(backend.Finish());
  return view;
}

void HostView::Store() {
  if (copy_.empty()) return;
  backend_.Copy(copy_.data(), Bytes(static_cast<int64_t>(device_.size_bytes())), device_.data());
}

}  // namespace lynx::worker
