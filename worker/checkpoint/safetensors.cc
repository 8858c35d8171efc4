#include "worker/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian and written as they are");

constexpr char kMetadata[] = "__metadata__";

absl::Status Damaged(const std::string& what) { return absl::DataLossError("bad safetensors header: " + what); }

// Sets `out` and returns true if the value is a non-negative integer that fits int64_t.
bool AsCount(const json& value, int64_t& out) {
  if (!value.is_number_unsigned()) return false;
  const auto number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
  out = static_cast<int64_t>(number);
  return true;
}

// The types of the format and the bytes of an element: https://docs.rs/safetensors/latest/safetensors/tensor/enum.Dtype.html
struct TypeInfo {
  const char* name;
  int64_t bytes;
};
constexpr TypeInfo kTypes[] = {{"F32", 4},     {"F16", 2},     {"BF16", 2}, {"F64", 8}, {"I64", 8},
                               {"U64", 8},     {"I32", 4},     {"U32", 4},  {"I16", 2}, {"U16", 2},
                               {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1},   {"U8", 1},  {"BOOL", 1}};

// Returns the number of bytes of a tensor, or -1 if it overflows.
int64_t BytesOf(const std::vector<int64_t>& shape, int64_t element_bytes = sizeof(float)) {
  int64_t bytes = element_bytes;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return -1;
  }
  return bytes;
}

absl::StatusOr<SafetensorsEntry> DecodeEntry(const std::string& name, const json& value, SafetensorsTypes types) {
  SafetensorsEntry entry;
  entry.name = name;
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    return Damaged(absl::StrCat(name, " is not an object of dtype, shape and data_offsets"));
  }
  const TypeInfo* const end = types == SafetensorsTypes::kFloat32 ? kTypes + 1 : std::end(kTypes);
  const TypeInfo* const type =
      std::find_if(std::begin(kTypes), end, [&](const TypeInfo& info) { return value["dtype"] == info.name; });
  if (type == end) {
    return Damaged(absl::StrCat(name, " has dtype ", value["dtype"].dump(),
                                types == SafetensorsTypes::kFloat32 ? ", not F32" : ", which is not known"));
  }
  entry.type = type->name;
  const json& shape = value["shape"];
  if (!shape.is_array()) return Damaged(absl::StrCat(name, ": shape is not an array"));
  for (const json& extent : shape) {
    if (!AsCount(extent, entry.shape.emplace_back())) {
      return Damaged(absl::StrCat(name, ": ", extent.dump(), " in shape is not a size"));
    }
  }
  const json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !AsCount(offsets[0], entry.begin_bytes) ||
      !AsCount(offsets[1], entry.end_bytes) || entry.begin_bytes > entry.end_bytes) {
    return Damaged(absl::StrCat(name, ": data_offsets ", offsets.dump(), " are not a range"));
  }
  if (BytesOf(entry.shape, type->bytes) != entry.end_bytes - entry.begin_bytes) {
    return Damaged(absl::StrCat(name, ": shape ", shape.dump(), " does not fill data_offsets ", offsets.dump()));
  }
  return entry;
}

absl::Status DecodeMetadata(const json& value, std::map<std::string, std::string>& metadata) {
  if (!value.is_object()) return Damaged(absl::StrCat(kMetadata, " is not an object"));
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return Damaged(absl::StrCat(kMetadata, ": ", key, " is not a string"));
    metadata[key] = text.get<std::string>();
  }
  return absl::OkStatus();
}

}  // namespace

void SafetensorsHeader::Append(std::string name, std::vector<int64_t> shape) {
  const int64_t bytes = BytesOf(shape);
  LYNX_CHECK(bytes >= 0);
  const int64_t begin = DataBytes();
  tensors.push_back({std::move(name), std::move(shape), begin, begin + bytes, kTypes[0].name});
}

std::string EncodeSafetensorsHeader(const SafetensorsHeader& header) {
  json root = json::object();
  if (!header.metadata.empty()) root[kMetadata] = header.metadata;
  for (const SafetensorsEntry& entry : header.tensors) {
    root[entry.name] = {{"dtype", entry.type}, {"shape", entry.shape}, {"data_offsets", {entry.begin_bytes, entry.end_bytes}}};
  }
  std::string text = root.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string out(kSafetensorsPrefixBytes, '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out + text;
}

absl::StatusOr<int64_t> DecodeSafetensorsPrefix(std::string_view prefix, int64_t file_bytes) {
  LYNX_CHECK(prefix.size() == kSafetensorsPrefixBytes && file_bytes >= kSafetensorsPrefixBytes);
  uint64_t length = 0;
  std::memcpy(&length, prefix.data(), sizeof(length));
  const auto rest = static_cast<uint64_t>(file_bytes - kSafetensorsPrefixBytes);
  if (length > std::min(rest, kSafetensorsHeaderLimitBytes)) {
    return Damaged(absl::StrCat("it is said to have ", length, " bytes, but ", rest, " follow, and at most ",
                                kSafetensorsHeaderLimitBytes, " are allowed"));
  }
  return static_cast<int64_t>(length);
}

absl::StatusOr<SafetensorsHeader> DecodeSafetensorsHeader(std::string_view text, int64_t data_bytes, SafetensorsTypes types) {
  // If a key is repeated, the parser keeps only the last value. The format forbids repeated keys, because they could hide a
  // tensor. So this function looks for repeated keys while it parses.
  std::set<std::string> keys;
  std::optional<std::string> repeated;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1) {
      const auto [key, fresh] = keys.insert(parsed.get<std::string>());
      if (!fresh && !repeated) repeated = *key;
    }
    return true;
  };
  const json root = json::parse(text, watch, /*allow_exceptions=*/false);
  if (!root.is_object()) return Damaged("not a JSON object");
  if (repeated) return Damaged(absl::StrCat("the name ", *repeated, " appears twice"));
  SafetensorsHeader header;
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadata) {
      LYNX_RETURN_IF_ERROR(DecodeMetadata(value, header.metadata));
    } else {
      LYNX_ASSIGN_OR_RETURN(SafetensorsEntry entry, DecodeEntry(name, value, types));
      header.tensors.push_back(std::move(entry));
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin_bytes, a.end_bytes) < std::pair(b.begin_bytes, b.end_bytes);
  });
  int64_t at = 0;
  for (const SafetensorsEntry& entry : header.tensors) {
    if (entry.begin_bytes != at) {
      return Damaged(absl::StrCat(entry.name, " begins at byte ", entry.begin_bytes, ", but the tensors before it end at ", at,
                                  ": they overlap or leave a gap"));
    }
    at = entry.end_bytes;
  }
  if (at != data_bytes) {
    return Damaged(absl::StrCat("its tensors have ", at, " bytes, but ", data_bytes, " follow it"));
  }
  return header;
}

}  // namespace lynx::worker
