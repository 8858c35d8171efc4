#include "worker/backend/cuda/stream.h"

#include <algorithm>
#include <cstring>

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
  LYNX_RETURN_IF_ERROR(stream->MakePieces());
  return stream;
}

absl::Status Stream::MakePieces() {
  const Bytes bytes = kPiece * kPieces;
  LYNX_RETURN_IF_ERROR(StatusOf(cudaHostAlloc(&pinned_, static_cast<size_t>(bytes.value), cudaHostAllocDefault),
                                absl::StrCat("allocating ", FormatBytes(bytes), " of pinned memory")));
  for (size_t i = 0; i < pieces_.size(); ++i) {
    pieces_[i].memory = static_cast<char*>(pinned_) + static_cast<int64_t>(i) * kPiece.value;
    LYNX_RETURN_IF_ERROR(
        StatusOf(cudaEventCreateWithFlags(&pieces_[i].copied, cudaEventDisableTiming), "creating an event of copies"));
  }
  return absl::OkStatus();
}

Stream::~Stream() {
  if (handle_ != nullptr) {
    cudaStreamSynchronize(handle_);
    cudaStreamDestroy(handle_);
  }
  if (scratch_ != nullptr) cudaFree(scratch_);
  for (const Piece& piece : pieces_) {
    if (piece.copied != nullptr) cudaEventDestroy(piece.copied);
  }
  if (pinned_ != nullptr) cudaFreeHost(pinned_);
}

void Stream::ScratchTooSmall(int64_t bytes) {
  LYNX_CHECK(bytes <= kScratch.value && "an op needs more scratch than there is");
  std::abort();
}

void Stream::Note(const absl::Status& status) { status_.Update(status); }

void Stream::Note(cudaError_t error, const char* what) {
  if (error != cudaSuccess) Note(StatusOf(error, what));
}

bool Stream::IsPageable(const void* memory) {
  cudaPointerAttributes attributes{};
  Note(cudaPointerGetAttributes(&attributes, memory), "asking what kind of memory an address is");
  return attributes.type == cudaMemoryTypeUnregistered;
}

// Returns a piece that the device does not copy any more.
Stream::Piece& Stream::NextPiece() {
  Piece& piece = pieces_[static_cast<size_t>(next_piece_)];
  next_piece_ = (next_piece_ + 1) % kPieces;
  Note(cudaEventSynchronize(piece.copied), "waiting for an earlier copy");
  return piece;
}

void Stream::CopyPiece(const Piece& piece, const void* from, int64_t bytes, void* to) {
  if (!ok()) return;
  Note(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, handle_), "a copy");
  Note(cudaEventRecord(piece.copied, handle_), "recording an event");
}

void Stream::CopyFromPageable(const char* from, int64_t bytes, char* to) {
  for (int64_t at = 0; at < bytes && ok(); at += kPiece.value) {
    const Piece& piece = NextPiece();
    const int64_t part = std::min(kPiece.value, bytes - at);
    std::memcpy(piece.memory, from + at, static_cast<size_t>(part));
    CopyPiece(piece, piece.memory, part, to + at);
  }
}

// The device copies up to kPieces pieces ahead of the host.
void Stream::CopyToPageable(const char* from, int64_t bytes, char* to) {
  std::array<const Piece*, kPieces> under_way;
  const auto place = [](int64_t at) { return static_cast<size_t>(at / kPiece.value % kPieces); };
  int64_t issued = 0;
  for (int64_t at = 0; at < bytes; at += kPiece.value) {
    for (; issued < bytes && issued - at < kPiece.value * kPieces; issued += kPiece.value) {
      const Piece& piece = *(under_way[place(issued)] = &NextPiece());
      CopyPiece(piece, from + issued, std::min(kPiece.value, bytes - issued), piece.memory);
    }
    const Piece& piece = *under_way[place(at)];
    Note(cudaEventSynchronize(piece.copied), "waiting for a copy");
    if (!ok()) return;
    std::memcpy(to + at, piece.memory, static_cast<size_t>(std::min(kPiece.value, bytes - at)));
  }
}

// If the device can address memory that is not pinned, a copy by CUDA itself may read or write this memory after the call has
// returned.
void Stream::Copy(const void* from, Bytes bytes, void* to) {
  if (!ok() || bytes.value == 0) return;
  if (IsPageable(from)) return CopyFromPageable(static_cast<const char*>(from), bytes.value, static_cast<char*>(to));
  if (IsPageable(to)) return CopyToPageable(static_cast<const char*>(from), bytes.value, static_cast<char*>(to));
  Note(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes.value), cudaMemcpyDefault, handle_), "a copy");
}

absl::Status Stream::Synchronize() {
  Note(cudaStreamSynchronize(handle_), "an op that was issued before");
  return status_;
}

}  // namespace lynx::worker::cuda
