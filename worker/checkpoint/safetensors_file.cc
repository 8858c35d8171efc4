#include "worker/checkpoint/safetensors_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "common/digest.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

// The bytes are hashed and written in chunks of this size. A chunk is small enough to stay in the cache between its digest and
// its write.
constexpr size_t kChunkBytes = size_t{4} << 20;
// The largest number of elements that are converted or compared at once.
constexpr size_t kBlockElements = size_t{1} << 20;

float FromBfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Converts an IEEE 754 binary16 number: a sign, 5 bits of exponent, 10 bits of mantissa.
float FromFloat16(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const auto mantissa = static_cast<float>(bits & 0x3FF);
  float value;
  if (exponent == 0x1F) {
    value = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(mantissa + 1024.0f, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

// Reads the elements of a tensor as fp32, from beginning to end.
class FloatStream {
 public:
  static absl::StatusOr<FloatStream> Open(FileSystem& files, const TensorInFile& place) {
    const SafetensorsEntry& tensor = *place.tensor;
    if (!IsReadAsFloat(tensor)) {
      return absl::InvalidArgumentError(
          absl::StrCat(place.file->path, ": ", tensor.name, " is of type ", tensor.type, ", not F32, F16 or BF16"));
    }
    LYNX_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, files.OpenFile(place.file->path));
    LYNX_RETURN_IF_ERROR(file->Skip(place.file->data_at + tensor.begin_bytes));
    return FloatStream(std::move(file), tensor);
  }

  size_t elements() const { return elements_; }

  // Reads the next elements.
  absl::Status Read(std::span<float> out) {
    if (convert_ == nullptr) return file_->Read({reinterpret_cast<char*>(out.data()), out.size_bytes()});
    std::vector<uint16_t> narrow(std::min(out.size(), kBlockElements));
    while (!out.empty()) {
      const std::span<uint16_t> block = std::span(narrow).first(std::min(out.size(), narrow.size()));
      LYNX_RETURN_IF_ERROR(file_->Read({reinterpret_cast<char*>(block.data()), block.size_bytes()}));
      std::transform(block.begin(), block.end(), out.begin(), convert_);
      out = out.subspan(block.size());
    }
    return absl::OkStatus();
  }

 private:
  FloatStream(std::unique_ptr<ReadableFile> file, const SafetensorsEntry& tensor)
      : file_(std::move(file)), convert_(tensor.type == "F32"    ? nullptr
                                         : tensor.type == "BF16" ? FromBfloat16
                                                                 : FromFloat16),
        elements_(static_cast<size_t>(tensor.end_bytes - tensor.begin_bytes) /
                  (convert_ == nullptr ? sizeof(float) : sizeof(uint16_t))) {}

  std::unique_ptr<ReadableFile> file_;
  float (*convert_)(uint16_t);  // null for F32
  size_t elements_;
};

}  // namespace

absl::StatusOr<WrittenFile> WriteSafetensorsFile(FileSystem& files, const std::string& path, const SafetensorsHeader& header,
                                                 const TensorContent& content) {
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files.CreateFile(path));
  Sha256 digest;
  int64_t bytes = 0;
  const auto append = [&](std::string_view data) -> absl::Status {
    while (!data.empty()) {
      const std::string_view chunk = data.substr(0, kChunkBytes);
      digest.Update(chunk);
      LYNX_RETURN_IF_ERROR(file->Append(chunk));
      bytes += static_cast<int64_t>(chunk.size());
      data.remove_prefix(chunk.size());
    }
    return absl::OkStatus();
  };
  LYNX_RETURN_IF_ERROR(append(EncodeSafetensorsHeader(header)));
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(const std::span<const char> tensor, content(i));
    LYNX_RETURN_IF_ERROR(append({tensor.data(), tensor.size()}));
  }
  LYNX_RETURN_IF_ERROR(file->Sync());
  return WrittenFile{Bytes(bytes), digest.FinishHex()};
}

absl::StatusOr<SafetensorsFile> OpenSafetensorsFile(FileSystem& files, const std::string& path) {
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.OpenFile(path));
  const int64_t bytes = file->size().value;
  if (bytes < kSafetensorsPrefixBytes) {
    return absl::DataLossError(absl::StrCat(path, ": ", bytes, " bytes are too few for a safetensors file"));
  }
  std::string prefix(kSafetensorsPrefixBytes, '\0');
  LYNX_RETURN_IF_ERROR(file->Read(prefix));
  const absl::StatusOr<int64_t> length = DecodeSafetensorsPrefix(prefix, bytes);
  if (!length.ok()) return Annotate(length.status(), path);
  std::string text(static_cast<size_t>(*length), '\0');
  LYNX_RETURN_IF_ERROR(file->Read(text));
  const int64_t data_at = kSafetensorsPrefixBytes + *length;
  absl::StatusOr<SafetensorsHeader> header = DecodeSafetensorsHeader(text, bytes - data_at, SafetensorsTypes::kAll);
  if (!header.ok()) return Annotate(header.status(), path);
  return SafetensorsFile{path, *std::move(header), data_at};
}

bool IsReadAsFloat(const SafetensorsEntry& tensor) {
  return tensor.type == "F32" || tensor.type == "F16" || tensor.type == "BF16";
}

absl::StatusOr<std::vector<float>> ReadAsFloat(FileSystem& files, const SafetensorsFile& file, const SafetensorsEntry& tensor) {
  LYNX_ASSIGN_OR_RETURN(FloatStream stream, FloatStream::Open(files, {&file, &tensor}));
  std::vector<float> values(stream.elements());
  LYNX_RETURN_IF_ERROR(stream.Read(values));
  return values;
}

absl::StatusOr<bool> SameContent(FileSystem& files, const TensorInFile& a, const TensorInFile& b) {
  LYNX_ASSIGN_OR_RETURN(FloatStream first, FloatStream::Open(files, a));
  LYNX_ASSIGN_OR_RETURN(FloatStream second, FloatStream::Open(files, b));
  if (a.tensor->shape != b.tensor->shape) return false;
  std::vector<float> ours(std::min(first.elements(), kBlockElements)), theirs(ours.size());
  for (size_t left = first.elements(); left > 0;) {
    const size_t block = std::min(left, ours.size());
    LYNX_RETURN_IF_ERROR(first.Read(std::span(ours).first(block)));
    LYNX_RETURN_IF_ERROR(second.Read(std::span(theirs).first(block)));
    // Compares bits: a NaN equals the same NaN, and 0 differs from -0.
    if (std::memcmp(ours.data(), theirs.data(), block * sizeof(float)) != 0) return false;
    left -= block;
  }
  return true;
}

}  // namespace lynx::worker
