// Reads the indexed data sets of Megatron-LM. PREFIX.bin has the tokens, and PREFIX.idx says where each sequence is. The tokens
// are read as one stream, in the order of the sequences.
//
// PREFIX.idx, little-endian, unaligned after the header:
//   "MMIDIDX\0\0"  u64 version = 1  u8 dtype  u64 sequences n  u64 d = number of documents + 1
//   i32 tokens per sequence [n]   i64 byte offset in .bin of each sequence [n]
//   i64 first sequence of each document [d]
// (megatron/core/datasets/indexed_dataset.py)
#include <cstring>
#include <string_view>
#include <utility>

#include "common/status.h"
#include "worker/data/token_dataset.h"

namespace lynx::worker {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMagic = "MMIDIDX\0\0"sv;
constexpr size_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;

template <class T>
T LoadAt(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

absl::Status BadIndex(const MappedFile& index, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(index.path(), ": ", what, "; make the pair again with Megatron's preprocess_data.py"));
}

// Converts a dtype code of Megatron's DType enumeration.
absl::StatusOr<TokenType> TokenTypeOf(const MappedFile& index, uint8_t code) {
  switch (code) {
    case 1: return TokenType::kUint8;
    case 2: return TokenType::kInt8;
    case 3: return TokenType::kInt16;
    case 4: return TokenType::kInt32;
    case 5: return TokenType::kInt64;
    case 8: return TokenType::kUint16;
    case 6:
    case 7: return BadIndex(index, absl::StrCat("dtype code ", int{code}, " is floating point, which tokens cannot be"));
    default: return BadIndex(index, absl::StrCat("unknown dtype code ", int{code}));
  }
}

struct IndexHeader {
  TokenType type = TokenType::kUint8;
  size_t sequences = 0;
  size_t documents = 0;
};

absl::StatusOr<IndexHeader> ReadHeader(const MappedFile& index) {
  const std::span<const std::byte> bytes = index.bytes();
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return BadIndex(index, "not a Megatron index: it does not begin with MMIDIDX");
  }
  if (bytes.size() < kHeaderBytes) {
    return BadIndex(index, absl::StrCat("cut short: ", bytes.size(), " bytes, the header alone has ", kHeaderBytes));
  }
  const auto version = LoadAt<uint64_t>(bytes, 9);
  if (version != 1) return BadIndex(index, absl::StrCat("version ", version, ", only version 1 is known"));
  IndexHeader header;
  LYNX_ASSIGN_OR_RETURN(header.type, TokenTypeOf(index, LoadAt<uint8_t>(bytes, 17)));
  const auto sequences = LoadAt<uint64_t>(bytes, 18);
  const auto documents = LoadAt<uint64_t>(bytes, 26);
  // The code divides instead of multiplying, because the counts in the file may be so large that a product overflows.
  const uint64_t rest = bytes.size() - kHeaderBytes;
  if (sequences > rest / 12 || documents > (rest - sequences * 12) / 8) {
    return BadIndex(index, absl::StrCat("cut short: ", bytes.size(), " bytes cannot hold the ", sequences, " sequences and ",
                                        documents, " document entries that its header promises"));
  }
  if (sequences * 12 + documents * 8 != rest) {
    return BadIndex(index, absl::StrCat(rest - sequences * 12 - documents * 8, " bytes more than its header promises"));
  }
  header.sequences = static_cast<size_t>(sequences);
  header.documents = static_cast<size_t>(documents);
  return header;
}

// Checks that the sequences follow each other without gaps and fill the .bin file, and that the document entries never
// decrease.
absl::Status CheckIndex(const MappedFile& index, const IndexHeader& header, const MappedFile& bin) {
  const std::span<const std::byte> bytes = index.bytes();
  const size_t pointers = kHeaderBytes + header.sequences * 4;
  const size_t document_entries = pointers + header.sequences * 8;
  const int64_t width = TokenWidthBytes(header.type);
  const auto bin_bytes = static_cast<int64_t>(bin.bytes().size());
  int64_t at = 0;  // at most bin_bytes, so no sum overflows
  for (size_t i = 0; i < header.sequences; ++i) {
    const int64_t size = LoadAt<int32_t>(bytes, kHeaderBytes + i * 4);
    const auto pointer = LoadAt<int64_t>(bytes, pointers + i * 8);
    if (size < 0) return BadIndex(index, absl::StrCat("sequence ", i, " has ", size, " tokens"));
    if (pointer != at) {
      return BadIndex(index, absl::StrCat("sequence ", i, " is said to start at byte ", pointer, " of ", bin.path(),
                                          ", but those before it end at byte ", at));
    }
    if (size > (bin_bytes - at) / width) {
      return BadIndex(index, absl::StrCat("sequence ", i, " of ", size, " tokens at byte ", at, " reaches beyond the ",
                                          bin_bytes, " bytes of ", bin.path(), ", which is cut short"));
    }
    at += size * width;
  }
  if (at != bin_bytes) {
    return BadIndex(
        index, absl::StrCat("describes ", at, " bytes, but ", bin.path(), " has ", bin_bytes, ": they do not belong together"));
  }
  int64_t previous = 0;
  for (size_t i = 0; i < header.documents; ++i) {
    const auto first = LoadAt<int64_t>(bytes, document_entries + i * 8);
    if (first < previous || first > static_cast<int64_t>(header.sequences)) {
      return BadIndex(index, absl::StrCat("document entry ", i, " is ", first, ", which is not between ", previous,
                                          " and the number of sequences, ", header.sequences));
    }
    previous = first;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenMegatronDataset(const std::string& path, int32_t seq, int32_t vocab,
                                                             uint64_t seed) {
  // The path may be the prefix, or either of the two files.
  std::string prefix = path;
  if (prefix.ends_with(".bin") || prefix.ends_with(".idx")) prefix.resize(prefix.size() - 4);
  LYNX_ASSIGN_OR_RETURN(MappedFile index, MappedFile::Open(prefix + ".idx"));
  LYNX_ASSIGN_OR_RETURN(MappedFile bin, MappedFile::Open(prefix + ".bin"));
  LYNX_ASSIGN_OR_RETURN(IndexHeader header, ReadHeader(index));
  LYNX_RETURN_IF_ERROR(CheckIndex(index, header, bin));
  DataFingerprint fingerprint = FingerprintOf(DataKind::kMegatron, {index.bytes(), bin.bytes()});
  return TokenDataset::Create(std::move(bin), header.type, std::move(fingerprint), seq, vocab, seed);
}

}  // namespace lynx::worker
