// HostView: memory of this process that stands for a part of a device's memory: the part itself where the host can
// address it, else a copy.
//
// Not thread-safe. Borrows the backend and its memory.
#ifndef LYNX_WORKER_BACKEND_HOST_VIEW_H_
#define LYNX_WORKER_BACKEND_HOST_VIEW_H_

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/backend.h"

namespace lynx {

class HostView {
 public:
  // What the device has now. Errors as the backend's Finish.
  static absl::StatusOr<HostView> Fetch(std::span<float> device, Backend& backend);
  // Anything: for what is overwritten.
  HostView(std::span<float> device, Backend& backend);

  HostView(HostView&&) = default;
  HostView& operator=(HostView&&) = delete;

  std::span<float> floats() { return copy_.empty() ? device_ : std::span<float>(copy_); }
  // Makes the device have what the view has. It is there for all that is called on the backend from now on.
  void Store();

 private:
  const std::span<float> device_;
  Backend& backend_;
  std::vector<float> copy_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_BACKEND_HOST_VIEW_H_
