// Stream is the CUDA stream on which a device's ops are issued one after another. It holds the fixed memory that the ops share,
// and the first error of any op. No call that issues an op waits for the device.
//
// After an error nothing more is issued. An op does not return its own error; a caller that needs it calls Synchronize. One
// thread at a time. Owns the CUDA stream and the scratch memory.
#ifndef LYNX_WORKER_BACKEND_CUDA_STREAM_H_
#define LYNX_WORKER_BACKEND_CUDA_STREAM_H_

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx::worker::cuda {

// Returns the status for a CUDA error: ResourceExhausted if memory is short, Aborted if the device has failed, otherwise
// Internal. `what`: what the caller was doing.
absl::Status StatusOf(cudaError_t error, const std::string& what);

class Stream {
 public:
  // The size of the memory that an op may use between its kernels, and that a matrix product may use within a kernel.
  static constexpr Bytes kScratch{int64_t{32} << 20};

  // Copies from and to memory of the host that is not pinned go through kPieces pieces of pinned memory of kPiece bytes each. A
  // piece is free again when the device has copied it. So the host can be ahead of the device by up to kPieces small copies.
  static constexpr int kPieces = 32;
  static constexpr Bytes kPiece{int64_t{512} << 10};

  // The largest size of a kernel's parameters. A larger size needs a driver of version 530 or newer.
  static constexpr size_t kMaxParameterBytes = 4096;

  // Creates the stream on the calling thread's device.
  static absl::StatusOr<std::unique_ptr<Stream>> Create();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t handle() const { return handle_; }
  void* scratch() const { return scratch_; }
  // Returns memory for `count` values, which begins `first` bytes after the beginning of the scratch. `first` is a multiple
  // of 16.
  template <class T>
  T* ScratchOf(int64_t count, Bytes first = Bytes(0)) const;

  // True if the device has tensor cores for bfloat16 (compute capability 8.0 and later).
  bool multiplies_bfloat16() const { return compute_major_ >= 8; }

  bool ok() const { return status_.ok(); }
  // Stores the status if it is the first one that is not OK.
  void Note(const absl::Status& status);
  void Note(cudaError_t error, const char* what);

  // Launches kernel<<<grid, block>>>(arguments...). Does nothing if there was an error before or if the grid is empty.
  template <class... Parameters, class... Arguments>
  void Launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
    static_assert((sizeof(Parameters) + ... + 0) <= kMaxParameterBytes);
    if (!ok() || grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = handle_;
    Note(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), name);
  }

  // Copies between device memory and device or host memory. If `from` is host memory that is not pinned, it is read before the
  // call returns. If `to` is such memory, the call waits for the device and writes it.
  void Copy(const void* from, Bytes bytes, void* to);

  // Waits for all work that was issued. Returns the first error.
  absl::Status Synchronize();

 private:
  Stream() = default;
  [[noreturn]] static void ScratchTooSmall(int64_t bytes);

  struct Piece {
    char* memory = nullptr;
    cudaEvent_t copied = nullptr;  // reached when the device has copied it
  };
  absl::Status MakePieces();
  bool IsPageable(const void* memory);
  Piece& NextPiece();
  void CopyPiece(const Piece& piece, const void* from, int64_t bytes, void* to);
  void CopyFromPageable(const char* from, int64_t bytes, char* to);
  void CopyToPageable(const char* from, int64_t bytes, char* to);

  cudaStream_t handle_ = nullptr;
  void* scratch_ = nullptr;
  void* pinned_ = nullptr;  // the memory of all pieces
  std::array<Piece, kPieces> pieces_;
  int next_piece_ = 0;
  int compute_major_ = 0;
  absl::Status status_;
};

template <class T>
T* Stream::ScratchOf(int64_t count, Bytes first) const {
  const auto bytes = first.value + count * static_cast<int64_t>(sizeof(T));
  if (bytes > kScratch.value) ScratchTooSmall(bytes);
  return reinterpret_cast<T*>(static_cast<char*>(scratch_) + first.value);
}

// Returns the number of blocks of `size` elements that cover `count` elements.
constexpr unsigned BlocksOf(int64_t count, int64_t size) { return static_cast<unsigned>((count + size - 1) / size); }

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_STREAM_H_
