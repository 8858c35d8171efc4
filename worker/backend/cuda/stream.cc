#include "worker/backend/cuda/stream.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace lynx::worker::cuda {

absl::Status StatusOf(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat("CUDA: ", what, ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
  switch (error) {
    case cudaErrorMemoryAllocation: return absl::ResourceExhaustedError(text);
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorDevicesUnavailable: return absl::AbortedError(text);
    default: return absl::InternalError(text);
  }
}

absl::StatusOr<std::unique_ptr<Stream>> Stream::Create() {
  std::unique_ptr<Stream> stream(new Stream());
  LYNX_RETURN_IF_ERROR(
      StatusOf(cudaStreamCreateWithFlags(&stream->handle_, cudaStreamNonBlocking), "creating the stream of ops"));
  int device = 0;
  LYNX_RETURN_IF_ERROR(StatusOf(cudaGetDevice(&device), "asking for the device"));
  LYNX_RETURN_IF_ERROR(StatusOf(cudaDeviceGetAttribute(&stream->compute_major_, cudaDevAttrComputeCapabilityMajor, device),
                                "asking for the compute capability"));
  LYNX_RETURN_IF_ERROR(StatusOf(cudaMalloc(&stream->scratch_, static_cast<size_t>(kScratch.value)),
                                absl::StrCat("allocating ", FormatBytes(kScratch), " of scratch")));
  return stream;
}

Stream::~Stream() {
  if (handle_ != nullptr) {
    cudaStreamSynchronize(handle_);
    cudaStreamDestroy(handle_);
  }
  if (scratch_ != nullptr) cudaFree(scratch_);
}

void Stream::ScratchTooSmall(int64_t bytes) {
  LYNX_CHECK(bytes <= kScratch.value && "an op needs more scratch than there is");
  std::abort();
}

void Stream::Note(const absl::Status& status) { status_.Update(status); }

void Stream::Note(cudaError_t error, const char* what) {
  if (error != cudaSuccess) Note(StatusOf(error, what));
}

absl::Status Stream::Synchronize() {
  Note(cudaStreamSynchronize(handle_), "an op that was issued before");
  return status_;
}

}  // namespace lynx::worker::cuda
