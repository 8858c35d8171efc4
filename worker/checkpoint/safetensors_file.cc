#include "worker/checkpoint/safetensors_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "common/digest.h"
#include "common/status.h"

namespace lynx {
namespace {

// Digest and disk see each chunk while it is in the cache.
constexpr size_t kChunkBytes = size_t{4} << 20;

float FromBfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// IEEE 754 binary16: sign, 5 bits of exponent, 10 of mantissa.
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

}  // namespace

absl::StatusOr<WrittenFile> WriteSafetensorsFile(FileSystem& files, const std::string& path,
                                                 const SafetensorsHeader& header, const TensorContent& content) {
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

absl::StatusOr<std::vector<float>> ReadAsFloat(FileSystem& files, const SafetensorsFile& file,
                                               const SafetensorsEntry& tensor) {
  const bool bfloat = tensor.type == "BF16";
  const bool wide = tensor.type == "F32";
  if (!wide && !bfloat && tensor.type != "F16") {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path, ": ", tensor.name, " is of type ", tensor.type, ", not F32, F16 or BF16"));
  }
  const int64_t bytes = tensor.end_bytes - tensor.begin_bytes;
  std::vector<float> values(static_cast<size_t>(bytes) / (wide ? sizeof(float) : sizeof(uint16_t)));
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> open, files.OpenFile(file.path));
  LYNX_RETURN_IF_ERROR(open->Skip(file.data_at + tensor.begin_bytes));
  if (wide) {
    LYNX_RETURN_IF_ERROR(open->Read({reinterpret_cast<char*>(values.data()), static_cast<size_t>(bytes)}));
    return values;
  }
  std::vector<uint16_t> narrow(values.size());
  LYNX_RETURN_IF_ERROR(open->Read({reinterpret_cast<char*>(narrow.data()), static_cast<size_t>(bytes)}));
  std::transform(narrow.begin(), narrow.end(), values.begin(), bfloat ? FromBfloat16 : FromFloat16);
  return values;
}

}  // namespace lynx
