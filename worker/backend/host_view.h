// HostView is memory of this process that represents a part of a device's memory. If the host can address that part, the view
// is the part itself. Otherwise the view is a copy of it.
//
// Not thread-safe. Borrows the backend and its memory.
#ifndef LYNX_WORKER_BACKEND_HOST_VIEW_H_
#define LYNX_WORKER_BACKEND_HOST_VIEW_H_

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/backend.h"

namespace lynx::worker {

class HostView {
 public:
  // Returns a view with the present content of the device's memory. Errors are those of the backend's Finish.
  static absl::StatusOr<HostView> Fetch(std::span<float> device, Backend& backend);
  // Makes a view whose content is undefined. Use it for memory that will be overwritten.
  HostView(std::span<float> device, Backend& backend);

  HostView(HostView&&) = default;
  HostView& operator=(HostView&&) = delete;

  std::span<float> floats() { return copy_.empty() ? device_ : std::span<float>(copy_); }
  // Writes the view's content to the device. Work that is issued to the backend afterwards sees this content.
  void Store();

 private:
  const std::span<float> device_;
  Backend& backend_;
  std::vector<float> copy_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_BACKEND_HOST_VIEW_H_
